// Linear's refusals. Nothing is read through a pointer here.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/tensor_checks.h"
#include "fovea/linear.h"

namespace fovea::linear {

// Throw Error(invalid_argument) naming the argument, what it is and what it should be.
LinearProblem validate(const LinearForwardTensors& tensors, const LinearOptions& options, std::string_view call);
LinearProblem validate(const LinearBackwardTensors& tensors, const LinearOptions& options, std::string_view call);
void validate(const LinearProblem& problem, std::string_view call);

inline constexpr std::int64_t kMaxMultiplyAdds = std::int64_t{1} << 60;  // counted in 64 bits

// Whether elements of every tensor and multiply-adds can be counted. Sizes of 0 count as 1.
bool sizes_fit(const LinearProblem& problem);

// Refuses a weight of other sizes, or whose rows overlap.
void check_weight(const core::Validator& check, const core::TensorArg& weight, std::int64_t columns_out,
                  std::int64_t columns_in);

// Whether products cannot read these strides, so that the workspace holds a copy; of `dy` with what the problem wants.
bool copies_x(const TensorView& x, Pass pass);
bool copies_dy(const LinearProblem& problem, const TensorView& dy);

}  // namespace fovea::linear
