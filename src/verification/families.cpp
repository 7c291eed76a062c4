// The common families, and the function that fills a tensor with one of them.
#include "verification/families.h"

#include <algorithm>
#include <limits>

#include "core/float16.h"
#include "verification/blocks.h"
#include "verification/operation.h"

namespace fovea::verification {
namespace {

constexpr std::int64_t kRowsToFill = 4;
constexpr double kWorkOfAValue = 30;  // in multiply-adds

// -2..2, four in five zero: sums are exact in every type.
float integer(const Source& s, const Position& at) {
  const core::RandomBlock block = s.block(at);
  if (block[0] % 5 != 0) return 0.0f;
  constexpr float kValues[] = {-2.0f, -1.0f, 1.0f, 2.0f};
  return kValues[block[1] % 4];
}

// One channel and a few whole rows are far larger than the rest.
float outlier(const Source& s, const Position& at) {
  const bool channel = at.c == static_cast<std::int64_t>(s.choice(0)) % s.tensor.sizes[3];
  const bool row = at.i == 0 || s.block({at.b, at.h, at.i, 0})[3] % 64 == 0;
  return s.normal(at) * (channel ? 8.0f : 1.0f) * (row ? 6.0f : 1.0f);
}

// Half of the rows, and half of the other elements, are below the smallest normal number.
float denormal(const Source& s, const Position& at) {
  const bool tiny = s.block({at.b, at.h, at.i, 0})[2] % 2 == 0 || s.block(at)[3] % 2 == 0;
  return s.normal(at) * (tiny ? (s.c.dtype() == DType::fp16 ? 1e-5f : 1e-39f) : 1.0f);
}

// One element of each tensor is NaN or infinite.
float nonfinite(const Source& s, const Position& at) {
  const auto pick = [&s](std::uint64_t n, std::int64_t size) { return static_cast<std::int64_t>(s.choice(n)) % size; };
  const Sizes& sizes = s.tensor.sizes;
  const bool struck =
      at.b == pick(1, sizes[0]) && at.h == pick(2, sizes[1]) && at.i == pick(3, sizes[2]) && at.c == pick(4, sizes[3]);
  if (!struck) return s.normal(at);
  return s.choice(0) % 2 == 0 ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
}

template <auto Value>
ValueAt values_by(const Source& s) {
  return [&s](const Position& at) { return Value(s, at); };
}

float normal_value(const Source& s, const Position& at) { return s.normal(at); }
float one(const Source&, const Position&) { return 1.0f; }

// The tensor's index among all tensors that the operation can have, so that it has the same values in every pass and
// variation.
std::uint64_t stream_of(const Case& c, const std::string& tensor) {
  Case whole = c.with("pass", std::string(c.operation->keys().find("pass")->words.back()));  // has all tensors
  whole.variation.clear();
  std::uint64_t stream = 0;
  for (const TensorSpec& one : c.operation->tensors(whole)) {
    if (one.name == tensor) break;
    if (is_read(one.role) || one.role == Role::gradient) ++stream;
  }
  return stream;
}

}  // namespace

core::RandomBlock Source::block(const Position& at) const {
  const Sizes& sizes = tensor.sizes;
  const std::int64_t index = ((at.b * sizes[1] + at.h) * sizes[2] + at.i) * sizes[3] + at.c;
  return core::philox(seed, stream, static_cast<std::uint64_t>(index));
}

float Source::normal(const Position& at) const { return core::approximate_normal(block(at)); }
std::uint32_t Source::choice(std::uint64_t n) const { return core::philox(seed, 100, n)[0]; }

std::vector<Family> common_families() {
  return {{"normal", values_by<normal_value>}, {"integers", values_by<integer>}, {"outliers", values_by<outlier>},
          {"denormal", values_by<denormal>},   {"ones", values_by<one>},         {"nonfinite", values_by<nonfinite>}};
}

void fill(const Case& c, const TensorSpec& tensor, const MutableTensorView& view) {
  const Source source{c, tensor, c.seed(), stream_of(c, tensor.name)};
  const auto& families = c.operation->families();
  const auto family =
      std::find_if(families.begin(), families.end(), [&c](const Family& one) { return one.name == c.data(); });
  const ValueAt value = family->values(source);
  const auto distinct = [&view](int dimension) {
    return view.strides[dimension] == 0 ? std::min<std::int64_t>(view.sizes[dimension], 1) : view.sizes[dimension];
  };
  const std::int64_t heads = distinct(1), length = distinct(2), rows = distinct(0) * heads * length;
  const double work = kWorkOfAValue * static_cast<double>(rows) * static_cast<double>(view.sizes[3]);
  for_each_block(rows, kRowsToFill, work, [&](std::int64_t first, std::int64_t count) {
    for (std::int64_t row = first; row < first + count; ++row) {
      const std::int64_t b = row / length / heads, h = row / length % heads, i = row % length;
      const std::int64_t start = b * view.strides[0] + h * view.strides[1] + i * view.strides[2];
      for (std::int64_t n = 0; n < view.sizes[3]; ++n)
        core::store_from_float(view.data, view.dtype, start + n, value({b, h, i, n}));
    }
  });
}

}  // namespace fovea::verification
