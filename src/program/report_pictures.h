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

// Writes the description to <directory>/pictures.json and draws it. `python` may be empty: then FOVEA_PYTHON, the
// environment that the set-up makes, and python3 of the path are tried. Throws Error(invalid_argument) if a Python that
// was named cannot draw.
Pictures draw_pictures(const std::string& description, const std::string& directory, const std::string& python);

}  // namespace fovea::program
