// A task is a block of positions, of all batch elements and heads: they share their angles.
#include "heads/host.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/float16.h"
#include "cpu/tasks.h"
#include "heads/angles.h"

namespace fovea::heads {
namespace {

constexpr std::int64_t kPositions = Angles::kPositions;

std::int64_t divide_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step; }

template <class Pointer>
auto* row_of(const BasicTensorView<Pointer>& view, std::int64_t b, std::int64_t h, std::int64_t i) {
  using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<Pointer>>, const char, char>;
  return static_cast<Byte*>(view.data) +
         (b * view.strides[0] + h * view.strides[1] + i * view.strides[2]) * size_of(view.dtype);
}

void load(const void* from, DType dtype, std::int64_t count, float* to) {
  if (dtype == DType::fp32) {
    std::copy_n(static_cast<const float*>(from), count, to);
  } else if (dtype == DType::bf16) {
    const auto* const bits = static_cast<const std::uint16_t*>(from);
    for (std::int64_t c = 0; c < count; ++c) to[c] = core::bf16_to_float(bits[c]);
  } else {
    for (std::int64_t c = 0; c < count; ++c) to[c] = core::load_as_float(from, dtype, c);
  }
}

void store(const float* from, DType dtype, std::int64_t count, void* to) {
  if (dtype == DType::fp32) {
    std::copy_n(from, count, static_cast<float*>(to));
  } else if (dtype == DType::bf16) {
    auto* const bits = static_cast<std::uint16_t*>(to);
    for (std::int64_t c = 0; c < count; ++c) bits[c] = core::float_to_bf16(from[c]);
  } else {
    for (std::int64_t c = 0; c < count; ++c) core::store_from_float(to, dtype, c, from[c]);
  }
}

// `sign` -1 rotates back, which is the transpose.
void rotate(float* row, const Rotation& r, const Angles& angles, float sign) {
  const std::int64_t pairs = r.columns / 2;
  const float *const cos = angles.cos(), *const sin = angles.sin();
  float* const a = row + r.first_column;
  if (r.pairs == RotaryPairs::halves) {
    float* const b = a + pairs;
    for (std::int64_t i = 0; i < pairs; ++i) {
      const float x = a[i], y = b[i], s = sign * sin[i];
      a[i] = x * cos[i] - y * s;
      b[i] = x * s + y * cos[i];
    }
    return;
  }
  for (std::int64_t i = 0; i < pairs; ++i) {
    const float x = a[2 * i], y = a[2 * i + 1], s = sign * sin[i];
    a[2 * i] = x * cos[i] - y * s;
    a[2 * i + 1] = x * s + y * cos[i];
  }
}

// The sum of term(c); several partial sums, which the compiler keeps in one vector.
template <class Term>
float sum_of(std::int64_t count, Term term) {
  constexpr std::int64_t kSums = 16;
  std::array<float, kSums> sums{};
  std::int64_t c = 0;
  for (; c + kSums <= count; c += kSums) {
    for (std::int64_t n = 0; n < kSums; ++n) sums[static_cast<std::size_t>(n)] += term(c + n);
  }
  for (; c < count; ++c) sums[0] += term(c);
  for (std::size_t width = kSums / 2; width > 0; width /= 2) {
    for (std::size_t n = 0; n < width; ++n) sums[n] += sums[n + width];
  }
  return sums[0];
}

// 1 / sqrt(mean(x^2) + epsilon).
float inverse_rms(const float* x, std::int64_t count, double epsilon) {
  const float squares = sum_of(count, [x](std::int64_t c) { return x[c] * x[c]; });
  return 1.0f / std::sqrt(squares / static_cast<float>(count) + static_cast<float>(epsilon));
}

// What the rows of one call share.
struct Shared {
  Shared(const TensorView& norm_weight, const std::optional<Rotation>& given)
      : pairs(given.value_or(Rotation{})), weight(static_cast<std::size_t>(norm_weight.sizes[3])) {
    load(norm_weight.data, norm_weight.dtype, norm_weight.sizes[3], weight.data());
  }
  Pairs pairs;
  std::vector<float> weight;  // empty: not normalised
};

// Visits the rows of `sizes`, a block of positions per task. A block begins at a multiple of kPositions.
template <class Rows, class Pass>
void run_blocks(const Pass& pass, const Sizes& sizes, const core::RunContext& context) {
  const Shared shared(pass.weight, pass.rotation);
  const std::int64_t first = pass.rotation ? pass.rotation->first_position : 0;
  cpu::run_cancellable(
      context, context.threads, partial_rows_on_host(sizes[2], pass.rotation), [&](std::int64_t task, int) {
        Angles angles(shared.pairs);
        Rows rows(pass, shared, task);
        const std::int64_t begin = (first / kPositions + task) * kPositions - first;
        for (std::int64_t i = std::max<std::int64_t>(begin, 0); i < std::min(begin + kPositions, sizes[2]); ++i) {
          if (pass.rotation) angles.move_to(first + i);
          for (std::int64_t b = 0; b < sizes[0]; ++b) {
            for (std::int64_t h = 0; h < sizes[1]; ++h) rows.run(b, h, i, angles);
          }
        }
      });
}

class ForwardRows {
 public:
  ForwardRows(const RowPass& pass, const Shared& shared, std::int64_t)
      : pass_(pass), shared_(shared), row_(static_cast<std::size_t>(pass.to.sizes[3])) {
    // Only the rotated columns change, if rows stay where they are.
    if (pass.rotation && shared.weight.empty() && pass.from.data == pass.to.data)
      first_ = pass.rotation->first_column, count_ = pass.rotation->columns;
    else
      count_ = pass.to.sizes[3];
  }

  void run(std::int64_t b, std::int64_t h, std::int64_t i, const Angles& angles) {
    const std::int64_t element = size_of(pass_.to.dtype);
    float* const row = row_.data();
    load(row_of(pass_.from, b, h, i) + first_ * element, pass_.from.dtype, count_, row + first_);
    if (!shared_.weight.empty()) normalise(row);
    if (pass_.rotation) rotate(row, *pass_.rotation, angles, 1.0f);
    store(row + first_, pass_.to.dtype, count_, row_of(pass_.to, b, h, i) + first_ * element);
  }

 private:
  void normalise(float* row) const {
    const float factor = inverse_rms(row, count_, pass_.epsilon);
    const float* const weight = shared_.weight.data();
    for (std::int64_t c = 0; c < count_; ++c) row[c] = row[c] * factor * weight[c];
  }

  const RowPass& pass_;
  const Shared& shared_;
  std::int64_t first_ = 0, count_ = 0;
  std::vector<float> row_;
};

class BackwardRows {
 public:
  BackwardRows(const RowPassBackward& pass, const Shared& shared, std::int64_t task)
      : pass_(pass), shared_(shared), dim_(pass.dx.sizes[3]) {
    for (std::vector<float>* const one : {&gradient_, &other_}) one->resize(static_cast<std::size_t>(dim_));
    if (pass.partial == nullptr) return;
    partial_ = pass.partial + task * dim_;
    std::fill_n(partial_, dim_, 0.0f);
  }

  void run(std::int64_t b, std::int64_t h, std::int64_t i, const Angles& angles) {
    float* const gradient = gradient_.data();
    const DType dtype = pass_.dy.dtype;
    load(row_of(pass_.dy, b, h, i), dtype, dim_, gradient);
    for (std::int64_t head = 1; pass_.dx.sizes[1] == 1 && head < pass_.dy.sizes[1]; ++head) {
      load(row_of(pass_.dy, b, head, i), dtype, dim_, other_.data());
      for (std::int64_t c = 0; c < dim_; ++c) gradient[c] += other_[static_cast<std::size_t>(c)];
    }
    if (pass_.rotation) rotate(gradient, *pass_.rotation, angles, -1.0f);
    if (!shared_.weight.empty()) differentiate_norm(row_of(pass_.x, b, h, i));
    void* const dx = row_of(pass_.dx, b, h, i);
    if (pass_.accumulate) {
      load(dx, pass_.dx.dtype, dim_, other_.data());
      for (std::int64_t c = 0; c < dim_; ++c) gradient[c] += other_[static_cast<std::size_t>(c)];
    }
    store(gradient, pass_.dx.dtype, dim_, dx);
  }

 private:
  // With n = x factor: dx = factor (g w - n mean(g w n)), dweight += g n.
  void differentiate_norm(const void* from) {
    float *const gradient = gradient_.data(), *const x = other_.data();
    const float* const weight = shared_.weight.data();
    load(from, pass_.x.dtype, dim_, x);
    const float factor = inverse_rms(x, dim_, pass_.epsilon);
    for (std::int64_t c = 0; c < dim_; ++c) x[c] *= factor;
    for (std::int64_t c = 0; partial_ != nullptr && c < dim_; ++c) partial_[c] += gradient[c] * x[c];
    for (std::int64_t c = 0; c < dim_; ++c) gradient[c] *= weight[c];
    const float mean = sum_of(dim_, [&](std::int64_t c) { return gradient[c] * x[c]; }) / static_cast<float>(dim_);
    for (std::int64_t c = 0; c < dim_; ++c) gradient[c] = factor * (gradient[c] - x[c] * mean);
  }

  const RowPassBackward& pass_;
  const Shared& shared_;
  std::int64_t dim_;
  float* partial_ = nullptr;
  std::vector<float> gradient_, other_;
};

}  // namespace

void forward_on_host(const RowPass& pass, const core::RunContext& context) {
  run_blocks<ForwardRows>(pass, pass.to.sizes, context);
}

void backward_on_host(const RowPassBackward& pass, const core::RunContext& context) {
  run_blocks<BackwardRows>(pass, pass.dx.sizes, context);
}

std::int64_t partial_rows_on_host(std::int64_t len, const std::optional<Rotation>& rotation) {
  const std::int64_t first = rotation ? rotation->first_position : 0;
  return len == 0 ? 0 : divide_up(first + len, kPositions) - first / kPositions;
}

void sum_on_host(const WeightGradient& sum, const core::RunContext&) {
  const std::int64_t dim = sum.dweight.sizes[3];
  std::vector<float> total(static_cast<std::size_t>(dim));
  if (sum.accumulate) load(sum.dweight.data, sum.dweight.dtype, dim, total.data());
  for (std::int64_t row = 0; row < sum.rows; ++row) {
    for (std::int64_t c = 0; c < dim; ++c) total[static_cast<std::size_t>(c)] += sum.partial[row * dim + c];
  }
  store(total.data(), sum.dweight.dtype, dim, sum.dweight.data);
}

}  // namespace fovea::heads
