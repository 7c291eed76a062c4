// Pictures that set published speed-ups beside those measured here.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "program/report_pages.h"

namespace fovea::program {

// One picture per report that has speed-ups: solid lines here, dashed lines published.
std::vector<nlohmann::ordered_json> published_pictures(const std::vector<PublishedPage>& pages);

}  // namespace fovea::program
