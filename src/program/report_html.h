// A whole report, and its two texts.
#pragma once

#include <string>
#include <vector>

#include "program/report_pages.h"
#include "program/report_pictures.h"
#include "program/report_study.h"
#include "program/report_table.h"

namespace fovea::program {

struct Report {
  const Study* study = nullptr;
  std::string headline;
  std::vector<std::string> observations;
  Table summary;
  std::vector<Table> times;
  Table memory, accuracy, failures;
  std::vector<PublishedPage> pages;
  Pictures pictures;
};

// Everything but the pictures.
Report make_report(const Study& study);

// One page with style, script and pictures inside; it loads nothing.
std::string to_html(const Report& report);
std::string to_markdown(const Report& report);

}  // namespace fovea::program
