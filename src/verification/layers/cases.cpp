// Draws every key, then halves sizes until the case is cheap.
#include "verification/layers/cases.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "attention/mask.h"
#include "core/names.h"
#include "core/random.h"
#include "verification/problem_line.h"

namespace fovea::verification {
namespace {

constexpr std::int64_t kBatches[] = {1, 1, 2, 3}, kHeads[] = {1, 2, 3, 4, 6, 8}, kGroups[] = {1, 2, 3, 4},
                       kLengths[] = {1, 2, 3, 5, 8, 13, 16, 17, 31, 32, 33, 48, 63, 64, 65, 96, 127, 128, 129},
                       kDims[] = {1, 3, 8, 15, 16, 17, 32, 33, 64, 64, 80, 128},
                       kWidths[] = {1, 5, 16, 33, 64, 100, 128, 192};
constexpr double kThetas[] = {1.0, 100.0, 500000.0};
constexpr double kScales[] = {0.0, -0.3, 0.05, 0.5};
constexpr double kMostFlops = 4e6;
constexpr int kTries = 100;

class Draw {
 public:
  Draw(std::uint64_t seed, std::uint64_t n) : seed_(seed), n_(n) {}
  std::uint32_t below(std::size_t count) { return word() % static_cast<std::uint32_t>(count); }
  bool one_in(std::size_t count) { return below(count) == 0; }
  template <std::size_t Count>
  std::int64_t of(const std::int64_t (&values)[Count]) {
    return values[below(Count)];
  }
  std::uint32_t word() { return core::philox(seed_, n_, position_++)[0]; }

 private:
  std::uint64_t seed_, n_, position_ = 0;
};

class LayerDraw {
 public:
  LayerDraw(const Operation& operation, Draw& draw)
      : draw_(draw), case_(operation), given_(operation.keys().keys.size(), false) {}

  Case drawn(const CaseLimits& limits) {
    for (const core::Key& key : case_.values.table().keys) {
      if (key.kind == core::KeyKind::word) set(key.name, std::string(key.words[draw_.below(key.words.size())]));
    }
    given_[index("accumulate")] = case_["pass"] != "fwd";
    if (!limits.backward) set("pass", std::string("fwd"));
    if (!limits.forward) set("pass", std::string("bwd"));
    set("device", std::string(core::name_of(limits.device)));
    draw_sizes();
    if (draw_.one_in(40)) draw_empty();
    draw_mask();
    if (case_["rope"] != "no") draw_rotary();
    // A norm takes the mean out of a gradient: of equal elements only roundings remain. It divides tiny rows by
    // sqrt(epsilon): products that treat tiny numbers as 0 are off by more than such a number.
    const bool normalises = case_["qk_norm"] == "yes" || (has("latent_norm") && case_["latent_norm"] == "yes");
    if (normalises && (case_["data"] == "ones" || case_["data"] == "denormal")) set("data", std::string("normal"));
    if (draw_.one_in(4)) case_.values.set("scale", kScales[draw_.below(std::size(kScales))]), give("scale");
    set("seed", std::to_string(draw_.word()));
    case_.values.resolve(given_);
    return case_;
  }

 private:
  std::size_t index(std::string_view key) const {
    return static_cast<std::size_t>(case_.values.table().find(key) - case_.values.table().keys.data());
  }
  bool has(std::string_view key) const { return case_.values.table().find(key) != nullptr; }
  void give(std::string_view key) { given_[index(key)] = true; }
  template <class Value>
  void set(std::string_view key, const Value& value) {
    case_.values.set(key, value);
    give(key);
  }

  void draw_sizes() {
    const bool crosses = has("cross") && case_["cross"] == "yes";
    set("b", draw_.of(kBatches));
    set("lq", draw_.of(kLengths));
    set("d", draw_.of(kDims));
    const std::int64_t key_heads = draw_.of(kGroups), heads = draw_.of(kHeads);
    set("hq", has("hkv") ? key_heads * draw_.of(kGroups) : heads);
    if (has("hkv")) set("hkv", key_heads);
    if (draw_.one_in(2)) set("e", draw_.of(kWidths));
    if (has("dv") && draw_.one_in(3)) set("dv", draw_.of(kDims));
    if (crosses) set("lk", draw_.of(kLengths));
    if (crosses && draw_.one_in(2)) set("ekv", draw_.of(kWidths));
    for (const char* const key : {"latent", "latent_kv"}) {
      if (has(key)) set(key, draw_.of(kWidths));
    }
  }

  // No sequence, or one without tokens.
  void draw_empty() {
    std::vector<std::string_view> sizes{"b", "lq"};
    if (has("cross") && case_["cross"] == "yes") sizes.emplace_back("lk");
    set(sizes[draw_.below(sizes.size())], std::int64_t{0});
  }

  // Pairs need two columns. A position may be late, and one of k need not be that of q.
  void draw_rotary() {
    constexpr std::int64_t kPositions[] = {0, 0, 1, 40, 4095, 100000, 1 << 20};
    if (case_.count("d") < 2) set("d", std::int64_t{2});
    const std::int64_t d = case_.count("d");
    if (d % 2 != 0 || draw_.one_in(3))
      set("rope_dim", 2 + 2 * static_cast<std::int64_t>(draw_.below(static_cast<std::size_t>(d / 2))));
    if (draw_.one_in(2)) set("pos", draw_.of(kPositions));
    if (draw_.one_in(4)) set("pos_k", draw_.of(kPositions));
    if (draw_.one_in(3)) case_.values.set("theta", kThetas[draw_.below(std::size(kThetas))]), give("theta");
    if (!has("d_shared") || d < 3 || case_["qk_norm"] == "yes" || draw_.one_in(2)) return;
    set("d_shared", 2 + 2 * static_cast<std::int64_t>(draw_.below(static_cast<std::size_t>((d - 1) / 2))));
  }

  void draw_mask() {
    if (!core::find_mask_word(case_["mask"])->is_window) return;
    const std::int64_t reach = case_.count("lq");
    set("left", static_cast<std::int64_t>(draw_.below(static_cast<std::size_t>(reach) + 1)));
    set("right", static_cast<std::int64_t>(draw_.one_in(2) ? 0 : draw_.below(static_cast<std::size_t>(reach) + 1)));
  }

  Draw& draw_;
  Case case_;
  std::vector<bool> given_;
};

// Halves the largest size, with those that must agree with it. A rotated head keeps its columns, which are pairs.
Case cheaper(Case c) {
  const std::vector<std::vector<std::string_view>> groups{{"b"},        {"lq", "lk"}, {"hq", "hkv"}, {"d", "dv"},
                                                          {"e", "ekv"}, {"latent"},   {"latent_kv"}};
  const std::vector<std::string_view>* largest = nullptr;
  std::int64_t most = 1;
  for (const auto& group : groups) {
    if (group.front() == "d" && c["rope"] != "no") continue;
    for (const std::string_view key : group) {
      if (c.values.table().find(key) != nullptr && c.count(key) > most) most = c.count(key), largest = &group;
    }
  }
  for (const std::string_view key : largest == nullptr ? groups.front() : *largest) {
    if (c.values.table().find(key) != nullptr && c.count(key) > 1) c.values.set(key, c.count(key) / 2);
  }
  return c;
}

}  // namespace

Case random_layer_case(const Operation& operation, std::uint64_t seed, std::uint64_t n, const CaseLimits& limits) {
  Draw draw(seed, n);
  for (int tries = 0; tries < kTries; ++tries) {
    Case c = LayerDraw(operation, draw).drawn(limits);
    for (Case next = c; fault_of(c).empty() && operation.cost(c).flops > kMostFlops; c = next) {
      next = cheaper(c);
      if (next == c) break;
    }
    if (fault_of(c).empty() && operation.cost(c).flops <= kMostFlops) return c;
  }
  return Case(operation);
}

}  // namespace fovea::verification
