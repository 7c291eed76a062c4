// The choices of a plain evaluation, with the names and meanings of verification's PlainVariant.
#pragma once

#include <cstdint>

namespace fovea::cuda::reference {

struct PlainForm {
  std::int64_t start = 0;  // the index at which sums begin
  bool fused = false;      // sums run backwards
  bool fused_delta = false, scaled_first = false, base_2 = false, divided_last = false;
  bool tensor_cores = false;
};

}  // namespace fovea::cuda::reference
