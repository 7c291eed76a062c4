// The steps of a kind of layer, and what follows from them: sizes of weights.
#include "layers/projections.h"

namespace fovea::layers {
namespace {

constexpr std::array<std::string_view, kSlots> kNames = {"qkv", "q_down", "q", "kv_down", "k", "v", "out"};

constexpr std::array<std::string_view, kSources> kSourceNames = {"x", "x_kv", "q_latent", "kv_latent", "attention"};

}  // namespace

std::string_view name_of(Source source) { return kSourceNames[static_cast<std::size_t>(source)]; }

std::string_view name_of(Slot slot) { return kNames[static_cast<std::size_t>(slot)]; }

std::int64_t len_of(const LayerProblem& p, const Step& step) {
  const bool new_only = p.caches && step.source != Source::kv_latent;
  return step.of_keys && !new_only ? p.len_k : p.len_q;
}

bool writes_cache(const LayerProblem& p, Slot slot) {
  return p.caches && (p.kind == LayerKind::mla ? slot == Slot::kv_down : slot == Slot::k || slot == Slot::v);
}

Steps steps_of(const LayerProblem& p) {
  Steps steps = p.kind == LayerKind::mha_fused ? fused_steps(p)
                : p.kind == LayerKind::mla     ? latent_steps(p)
                                               : separate_steps(p);
  steps.push_back({Slot::out, Source::attention, false, columns_of(p.heads_q, p.dim_v), p.width});
  return steps;
}

}  // namespace fovea::layers

namespace fovea {

std::string_view to_string(LayerKind kind) {
  constexpr std::array<std::string_view, 5> kWords = {"mha_fused", "mha", "gqa", "mqa", "mla"};
  return kind <= LayerKind::mla ? kWords[static_cast<std::size_t>(kind)] : "unknown";
}

PerProjection<Sizes> weight_sizes(const LayerProblem& problem) {
  PerProjection<Sizes> sizes;
  for (const layers::Step& step : layers::steps_of(problem))
    at(sizes, step.slot) = {1, 1, step.columns_out, step.columns_in};
  return sizes;
}

}  // namespace fovea
