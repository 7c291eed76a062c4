// The scales that kernels with fp32 scores take.
#pragma once

#include <string>

namespace fovea::attention {

// Why kernels refuse a scale other than 0: its product with log2(e) is no normal number of fp32. Empty if they take it.
std::string scale_refusal(double scale);

}  // namespace fovea::attention
