// The files of data/published, compiled in.
#pragma once

#include <string_view>

namespace fovea::program {

extern const std::string_view kPublishedA, kPublishedB, kPublishedD2, kPublishedD3, kPublishedE;

}  // namespace fovea::program
