// Pictures that set published speed-ups beside those measured here.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "program/report_pages.h"

namespace fovea::program {

// One picture per report: speed-ups, solid lines here and dashed lines published; memory for D2.
std::vector<nlohmann::ordered_json> published_pictures(const std::vector<PublishedPage>& pages, const Study& study);

}  // namespace fovea::program
