// What the pictures of a report show, decided here; drawing them is Python's part (python/fovea_report).
#pragma once

#include <string>
#include <vector>

#include "program/report_pages.h"
#include "program/report_study.h"

namespace fovea::program {

// A picture that was drawn: <directory>/<name>.png and .svg.
struct Picture {
  std::string name;
  std::string title;
  std::string conditions;
  std::string description;  // what it shows, in words
  std::string svg;          // ready to stand inside a page
};

struct Pictures {
  std::vector<Picture> drawn;
  std::string missing;  // why there are none; empty if there are
};

// The description of all pictures that drawing reads: JSON, "schema":"fovea.pictures/1".
std::string describe_pictures(const Study& study, const std::vector<PublishedPage>& pages);

// The Python to draw with: the one named, else the first that can of FOVEA_PYTHON, the environment that the set-up
// makes, and python3 of the path; empty if none can. Throws Error(invalid_argument) if the one that was named cannot.
std::string drawing_python(const std::string& named);

// Writes the description to <directory>/pictures.json and has `python` draw it, if there is one.
Pictures draw_pictures(const std::string& description, const std::string& directory, const std::string& python);

}  // namespace fovea::program
