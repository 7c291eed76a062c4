// Texts compiled in: the files of data/published, report_page.css and report_page.js.
#pragma once

#include <string_view>

namespace fovea::program {

extern const std::string_view kPublishedA, kPublishedB, kPublishedD2, kPublishedD3, kPublishedE;
extern const std::string_view kPageStyle, kPageScript;

}  // namespace fovea::program
