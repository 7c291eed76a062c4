// The values of a case's inputs: a function of (seed, role, batch, head, row, column) and of nothing else.
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/float16.h"
#include "core/random.h"
#include "verification/case_tensors.h"

namespace fovea::verification {
namespace {

struct Position {
  std::int64_t b, h, i, c;
};

// What a family needs to know of its tensor.
struct Source {
  const core::Case& c;
  Role role;
  Sizes sizes;

  core::RandomBlock block(const Position& at) const {
    const std::int64_t index = ((at.b * sizes[1] + at.h) * sizes[2] + at.i) * sizes[3] + at.c;
    return core::philox(c.seed, static_cast<std::uint64_t>(role), static_cast<std::uint64_t>(index));
  }
  // A random number of the whole case, the same for every role.
  std::uint32_t choice(std::uint64_t n) const { return core::philox(c.seed, 100, n)[0]; }
};

using Family = float (*)(const Source&, const Position&);

float normal(const Source& s, const Position& at) { return core::approximate_normal(s.block(at)); }

// Scores of standard deviation 10 and more: few keys hold all the weight.
float peaked(const Source& s, const Position& at) { return normal(s, at) * (s.role == Role::q ? 10.0f : 1.0f); }

// -2..2, four in five zero: sums are exact in every type.
float integers(const Source& s, const Position& at) {
  const core::RandomBlock block = s.block(at);
  if (block[0] % 5 != 0) return 0.0f;
  constexpr float kValues[] = {-2.0f, -1.0f, 1.0f, 2.0f};
  return kValues[block[1] % 4];
}

// Scores that rise (or fall) steadily along the keys, so that the running maximum moves in every tile.
float ramps(const Source& s, const Position& at) {
  if (at.c != 0 || (s.role != Role::q && s.role != Role::k)) return normal(s, at) * (s.role == Role::q ? 0.25f : 1.0f);
  if (s.role == Role::q) return 4.0f;
  constexpr double kSlopes[] = {0.03, 0.125, 0.5, -0.25};
  const double scale = s.c.problem.scale == 0 ? 1.0 : s.c.problem.scale;
  const double value = kSlopes[s.choice(0) % 4] * static_cast<double>(at.i) / (4.0 * scale);
  return static_cast<float>(std::clamp(value, -6e4, 6e4));  // stays finite in fp16
}

// Every key the same: uniform weights.
float constant(const Source& s, const Position& at) {
  return s.role == Role::k ? normal(s, {at.b, at.h, 0, at.c}) : normal(s, at);
}

// Massive activations: one channel, and a few whole rows, far larger than the rest.
float outliers(const Source& s, const Position& at) {
  const float value = normal(s, at);
  const bool channel = at.c == static_cast<std::int64_t>(s.choice(0)) % s.sizes[3];
  const bool row = at.i == 0 || s.block({at.b, at.h, at.i, 0})[3] % 64 == 0;
  if (s.role == Role::dout) return value;
  return value * (channel ? 8.0f : 1.0f) * (row ? 6.0f : 1.0f);
}

// Half the rows, and half of the other elements, below the smallest normal number.
float denormal(const Source& s, const Position& at) {
  const bool tiny = s.block({at.b, at.h, at.i, 0})[2] % 2 == 0 || s.block(at)[3] % 2 == 0;
  return normal(s, at) * (tiny ? (s.c.problem.dtype == DType::fp16 ? 1e-5f : 1e-39f) : 1.0f);
}

// Scores of about +-1e4, the same sign for a whole row, that differ by a few units: far from 0, yet no key dominates.
float large(const Source& s, const Position& at) {
  if (at.c != 0 || (s.role != Role::q && s.role != Role::k)) return normal(s, at);
  if (s.role == Role::q) return s.block(at)[2] % 2 == 0 ? 100.0f : -100.0f;
  const double scale = s.c.problem.scale == 0 ? 1.0 : std::abs(s.c.problem.scale);
  return static_cast<float>(std::min(100.0 / scale, 6e4));
}

float ones(const Source& s, const Position& at) { return s.role == Role::v ? 1.0f : normal(s, at); }

// v_j is the unit vector of column j mod dim_v: the output shows which keys were read.
float onehot(const Source& s, const Position& at) {
  return s.role == Role::v ? (at.i % s.sizes[3] == at.c ? 1.0f : 0.0f) : normal(s, at);
}

// One non-finite row or element in one key head of one batch element, and NaN in every key that no query sees.
float nonfinite(const Source& s, const Position& at) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
  const AttentionProblem& p = s.c.problem;
  const bool keys = s.role == Role::k || s.role == Role::v;
  if (keys && p.mask == Mask::causal_top_left && at.i >= p.len_q) return kNan;
  constexpr Role kStruck[] = {Role::q, Role::k, Role::v, Role::v};
  const std::uint32_t kind = s.choice(0) % 4;
  const auto pick = [&s](std::uint64_t n, std::int64_t size) { return static_cast<std::int64_t>(s.choice(n)) % size; };
  const bool struck = s.role == kStruck[kind] && at.b == pick(1, s.sizes[0]) && at.h == pick(2, s.sizes[1]) &&
                      at.i == pick(3, s.sizes[2]) && (kind < 2 || at.c == pick(4, s.sizes[3]));
  return struck ? (kind == 3 ? kInfinity : kNan) : normal(s, at);
}

Family family_of(std::string_view name) {
  constexpr Family kFamilies[] = {normal,   peaked, integers, ramps,  constant, outliers,
                                  denormal, large,  ones,     onehot, nonfinite};
  static_assert(std::size(kFamilies) == std::size(core::kDataFamilies));
  const auto* const found = std::find(std::begin(core::kDataFamilies), std::end(core::kDataFamilies), name);
  return found == std::end(core::kDataFamilies) ? normal : kFamilies[found - std::begin(core::kDataFamilies)];
}

}  // namespace

void fill_input(const core::Case& c, Role role, const MutableTensorView& view) {
  const Source source{c, role, view.sizes};
  const Family family = family_of(c.data);
  const auto distinct = [&view](int dimension) {
    return view.strides[dimension] == 0 ? std::min<std::int64_t>(view.sizes[dimension], 1) : view.sizes[dimension];
  };
  for (std::int64_t b = 0; b < distinct(0); ++b) {
    for (std::int64_t h = 0; h < distinct(1); ++h) {
      for (std::int64_t i = 0; i < distinct(2); ++i) {
        const std::int64_t row = b * view.strides[0] + h * view.strides[1] + i * view.strides[2];
        for (std::int64_t n = 0; n < view.sizes[3]; ++n)
          core::store_from_float(view.data, view.dtype, row + n, family(source, {b, h, i, n}));
      }
    }
  }
}

}  // namespace fovea::verification
