// Draws every key until the case is cheap.
#include "verification/model/cases.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>

#include "core/names.h"
#include "core/random.h"
#include "model/problem_line.h"
#include "verification/model/check.h"
#include "verification/problem_line.h"

namespace fovea::verification {
namespace {

constexpr std::int64_t kBatches[] = {1, 1, 2, 3}, kLengths[] = {1, 2, 3, 5, 8, 13, 16, 17, 31, 32, 33, 65},
                       kLayers[] = {1, 1, 2, 3}, kHeads[] = {1, 2, 3, 4}, kDims[] = {4, 6, 8, 10, 16, 32, 64},
                       kHidden[] = {1, 5, 16, 33, 64, 100}, kVocabularies[] = {1, 2, 11, 37, 70, 130};
constexpr double kMostFlops = 3e6;
constexpr double kMoment = 0.01;  // about the size of gradients

class Draw {
 public:
  Draw(std::uint64_t seed, std::uint64_t n) : seed_(seed), n_(n) {}
  template <class Value, std::size_t Count>
  Value of(const Value (&values)[Count]) {
    return values[word() % Count];
  }
  const std::string_view& of(const std::vector<std::string_view>& words) { return words[word() % words.size()]; }
  std::uint32_t word() { return core::philox(seed_, n_, position_++)[0]; }

 private:
  std::uint64_t seed_, n_, position_ = 0;
};

// Whole numbers below the vocabulary.
ValueAt tokens(const Source& source) {
  const auto vocabulary = static_cast<std::uint32_t>(source.c.count("vocabulary"));
  return [&source, vocabulary](const Position& at) { return static_cast<float>(source.block(at)[0] % vocabulary); };
}

ValueAt model_values(const Source& source, const Family& family) {
  const std::string_view name = source.tensor.name;
  if (name == "tokens" || name == "targets") return tokens(source);
  const auto scaled = [&source](double factor) -> ValueAt {
    return [&source, factor](const Position& at) { return static_cast<float>(factor) * source.normal(at); };
  };
  if (source.tensor.role == Role::gradient || name.starts_with(kFirstMoment)) return scaled(kMoment);
  if (name.starts_with(kSecondMoment)) {
    return [root = scaled(kMoment)](const Position& at) {
      return root(at) * root(at) + static_cast<float>(kMoment * kMoment / 16);
    };
  }
  const ValueAt value = family.values(source);
  if (name.ends_with("norm.weight")) return [value](const Position& at) { return 1.0f + 0.125f * value(at); };
  const bool is_embedding = name.starts_with("embedding"), has_outliers = family.name == "outliers";
  const double columns = static_cast<double>(source.tensor.sizes[3]);
  const int exponent =
      (is_embedding ? 0 : -static_cast<int>(std::lround(std::log2(columns) / 2))) - (has_outliers ? 2 : 0);
  return [value, exponent](const Position& at) { return std::ldexp(value(at), exponent); };
}

Case drawn_case(const Operation& operation, Draw& draw, const CaseLimits& limits) {
  Case c(operation);
  std::vector<bool> given;
  for (const core::Key& key : operation.keys().keys) {
    const bool is_word = key.kind == core::KeyKind::word && key.name != "model";
    if (is_word) c.values.set(key.name, std::string(draw.of(key.words)));
    given.push_back(key.name != "params");
  }
  if (!limits.backward) c.values.set("pass", "fwd");
  if (!limits.forward) c.values.set("pass", draw.word() % 2 == 0 ? "bwd" : "step_rest");
  c.values.set("device", std::string(core::name_of(limits.device)));
  const std::int64_t heads = draw.of(kHeads);
  c.values.set("b", draw.of(kBatches)), c.values.set("lq", draw.of(kLengths));
  c.values.set("layers", draw.of(kLayers)), c.values.set("heads", heads);
  c.values.set("width", heads * draw.of(kDims)), c.values.set("hidden", draw.of(kHidden));
  c.values.set("vocabulary", draw.of(kVocabularies));
  c.values.set("seed", std::to_string(draw.word()));
  c.values.resolve(given);
  return c;
}

}  // namespace

std::vector<Family> model_families() {
  std::vector<Family> families;
  for (const Family& common : common_families()) {
    if (common.name != "normal" && common.name != "outliers") continue;
    families.push_back({common.name, [common](const Source& source) { return model_values(source, common); }});
  }
  return families;
}

Case random_model_case(const Operation& operation, std::uint64_t seed, std::uint64_t n, const CaseLimits& limits) {
  Draw draw(seed, n);
  for (;;) {
    const Case c = drawn_case(operation, draw, limits);
    if (fault_of(c).empty() && operation.cost(c).flops <= kMostFlops) return c;
  }
}

}  // namespace fovea::verification
