// Converts a problem's sizes, mask and scale for the kernels.
#include "cuda/attention/problem_shape.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace fovea::cuda {

Shape shape_of(const AttentionProblem& p) {
  const auto clamped = [](std::int64_t value) {
    return static_cast<int>(std::clamp<std::int64_t>(value, -kMaxLength, kMaxLength));
  };
  const KeyWindow window = key_window(p);
  // Of 0, the smallest number: then no score is larger than 5e-7, and that of a masked pair is still -inf.
  const double size = p.scale == 0 ? std::numeric_limits<float>::denorm_min() : std::abs(p.scale);
  return {.window_begin = clamped(window.begin),
          .window_end = clamped(window.end),
          .len_q = static_cast<int>(p.len_q),
          .len_k = static_cast<int>(p.len_k),
          .dim_qk = static_cast<int>(p.dim_qk),
          .dim_v = static_cast<int>(p.dim_v),
          .scale = static_cast<float>(p.scale),
          .abs_scale = static_cast<float>(size),
          .scale_log2e = static_cast<float>(size * 1.4426950408889634),
          .negate = p.scale < 0,
          .batch = static_cast<int>(p.batch),
          .heads_q = static_cast<int>(p.heads_q),
          .heads_kv = static_cast<int>(p.heads_kv),
          .group = static_cast<int>(p.heads_kv > 0 ? p.heads_q / p.heads_kv : 0)};
}

}  // namespace fovea::cuda
