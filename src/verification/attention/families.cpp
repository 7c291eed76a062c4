// Attention's input families: inputs that make scores, probabilities and gradients hard, besides the common families.
#include "verification/attention/families.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "verification/attention/case.h"
#include "verification/operation.h"

namespace fovea::verification {
namespace {

// A tensor to fill, and its role among q, k, v and dout.
struct AttentionSource {
  explicit AttentionSource(const Source& of)
      : source(of), problem(attention_case(of.c).problem), name(of.tensor.name), sizes(of.tensor.sizes) {}
  bool is(std::string_view tensor) const { return name == tensor; }
  float normal(const Position& at) const { return source.normal(at); }

  const Source& source;
  AttentionProblem problem;
  std::string_view name;
  Sizes sizes;
};

// Scores of standard deviation 10 and more: a few keys get all the probability.
float peaked(const AttentionSource& s, const Position& at) { return s.normal(at) * (s.is("q") ? 10.0f : 1.0f); }

// Scores that rise (or fall) steadily along the keys, so that the running maximum moves in every tile.
float ramps(const AttentionSource& s, const Position& at) {
  if (at.c != 0 || (!s.is("q") && !s.is("k"))) return s.normal(at) * (s.is("q") ? 0.25f : 1.0f);
  if (s.is("q")) return 4.0f;
  constexpr double kSlopes[] = {0.03, 0.125, 0.5, -0.25};
  const double scale = s.problem.scale == 0 ? 1.0 : s.problem.scale;
  const double value = kSlopes[s.source.choice(0) % 4] * static_cast<double>(at.i) / (4.0 * scale);
  return static_cast<float>(std::clamp(value, -6e4, 6e4));  // stays finite in fp16
}

// All keys are equal: uniform probabilities.
float constant(const AttentionSource& s, const Position& at) {
  return s.is("k") ? s.normal({at.b, at.h, 0, at.c}) : s.normal(at);
}

// Massive activations: one channel, and a few whole rows, far larger than the rest.
float outliers(const AttentionSource& s, const Position& at) {
  const float value = s.normal(at);
  const bool channel = at.c == static_cast<std::int64_t>(s.source.choice(0)) % s.sizes[3];
  const bool row = at.i == 0 || s.source.block({at.b, at.h, at.i, 0})[3] % 64 == 0;
  if (s.is("dout")) return value;
  return value * (channel ? 8.0f : 1.0f) * (row ? 6.0f : 1.0f);
}

// Scores of about +-1e4, with one sign for a whole row, that differ by a few units: large, but no key dominates.
float large(const AttentionSource& s, const Position& at) {
  if (at.c != 0 || (!s.is("q") && !s.is("k"))) return s.normal(at);
  if (s.is("q")) return s.source.block(at)[2] % 2 == 0 ? 100.0f : -100.0f;
  const double scale = s.problem.scale == 0 ? 1.0 : std::abs(s.problem.scale);
  return static_cast<float>(std::min(100.0 / scale, 6e4));
}

// An attention sink: one key gets probability 1/2 to 0.999; the others share the rest equally and hold the values.
float sink(const AttentionSource& s, const Position& at) {
  if (s.is("q")) return at.c == 0 ? 4.0f : s.normal(at);
  const bool dominant = (s.is("k") || s.is("v")) && at.i == static_cast<std::int64_t>(s.source.choice(0)) % s.sizes[2];
  if (s.is("v")) return dominant ? 0.0f : 1.0f + 0.125f * s.normal(at);
  if (!s.is("k")) return s.normal(at);
  if (at.c != 0 || !dominant) return 0.0f;
  constexpr double kGaps[] = {0, 2, 4, 7};
  const double scale = s.problem.scale == 0 ? 1.0 : s.problem.scale;
  const double score = std::log(static_cast<double>(s.sizes[2])) + kGaps[s.source.choice(1) % 4];
  return static_cast<float>(std::clamp(score / (4.0 * scale), -6e4, 6e4));  // stays finite in fp16
}

float ones(const AttentionSource& s, const Position& at) { return s.is("v") ? 1.0f : s.normal(at); }

// v_j is the unit vector of column j mod dim_v: the output shows which keys were read.
float onehot(const AttentionSource& s, const Position& at) {
  return s.is("v") ? (at.i % s.sizes[3] == at.c ? 1.0f : 0.0f) : s.normal(at);
}

// One non-finite row or element in one key head of one batch element, and NaN in every key that no query sees.
float nonfinite(const AttentionSource& s, const Position& at) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
  const AttentionProblem& p = s.problem;
  const bool keys = s.is("k") || s.is("v");
  if (keys && p.mask == Mask::causal_top_left && at.i >= p.len_q) return kNan;
  constexpr std::string_view kStruck[] = {"q", "k", "v", "v"};
  const std::uint32_t kind = s.source.choice(0) % 4;
  const auto pick = [&s](std::uint64_t n, std::int64_t size) {
    return static_cast<std::int64_t>(s.source.choice(n)) % size;
  };
  const bool struck = s.is(kStruck[kind]) && at.b == pick(1, s.sizes[0]) && at.h == pick(2, s.sizes[1]) &&
                      at.i == pick(3, s.sizes[2]) && (kind < 2 || at.c == pick(4, s.sizes[3]));
  return struck ? (kind == 3 ? kInfinity : kNan) : s.normal(at);
}

template <auto Value>
ValueAt values_by(const Source& source) {
  return [s = AttentionSource(source)](const Position& at) { return Value(s, at); };
}

}  // namespace

std::vector<Family> attention_families() {
  const std::vector<Family> common = common_families();
  const auto of = [&common](std::string_view name) {
    return *std::find_if(common.begin(), common.end(), [name](const Family& one) { return one.name == name; });
  };
  return {of("normal"),
          {"peaked", values_by<peaked>},
          of("integers"),
          {"ramps", values_by<ramps>},
          {"constant", values_by<constant>},
          {"outliers", values_by<outliers>},
          of("denormal"),
          {"large", values_by<large>},
          {"ones", values_by<ones>},
          {"onehot", values_by<onehot>},
          {"nonfinite", values_by<nonfinite>},
          {"sink", values_by<sink>}};
}

}  // namespace fovea::verification
