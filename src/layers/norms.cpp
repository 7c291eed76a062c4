// What follows from a layer's options for the rows of q, k and the latents.
#include "layers/norms.h"

namespace fovea::layers {

std::string_view name_of(Norm norm) {
  constexpr std::array<std::string_view, kNorms> kNames = {"q", "k", "q_latent", "kv_latent"};
  return kNames[static_cast<std::size_t>(norm)];
}

std::int64_t columns_of(const LayerProblem& p, Norm norm) {
  switch (norm) {
    case Norm::q:
    case Norm::k:
      return p.dim_shared == 0 ? p.dim_qk : 0;
    case Norm::q_latent:
      return p.latent_q;
    case Norm::kv_latent:
      return p.latent_kv;
  }
  return 0;
}

namespace {

std::int64_t cached_rows(const LayerProblem& p) { return p.caches ? p.len_k - p.len_q : 0; }

}  // namespace

std::optional<heads::Rotation> rotation_of(const LayerProblem& p, Norm rows) {
  const bool is_key = rows == Norm::k;
  const bool all_keys = p.kind == LayerKind::mla;  // k is made of all latents, also of those in the cache
  if (!p.rotary || (rows != Norm::q && !is_key) || (is_key && p.dim_shared > 0)) return std::nullopt;
  return heads::Rotation{.theta = p.rotary->theta,
                         .pairs = p.rotary->pairs,
                         .first_column = p.dim_shared > 0 ? p.dim_qk - p.dim_shared : 0,
                         .columns = p.rotary->columns,
                         .first_position = is_key ? p.rotary->position_k + (all_keys ? 0 : cached_rows(p))
                                                  : p.rotary->position_q + cached_rows(p)};
}

std::optional<heads::Rotation> rotation_of_shared_key(const LayerProblem& p) {
  if (!p.rotary || p.dim_shared == 0) return std::nullopt;
  return heads::Rotation{.theta = p.rotary->theta,
                         .pairs = p.rotary->pairs,
                         .columns = p.dim_shared,
                         .first_position = p.rotary->position_k + cached_rows(p)};
}

bool has_own_memory(const LayerProblem& p, Norm rows) {
  if (rows == Norm::k && p.dim_shared > 0) return true;
  return at(p.norms, rows).given && (p.saves || p.pass == Pass::backward);
}

std::vector<std::string> row_passes_of(const LayerProblem& p) {
  std::vector<std::string> all;
  for (const Norm norm : {Norm::q_latent, Norm::kv_latent, Norm::q, Norm::k}) {
    const bool normalises = at(p.norms, norm).given, rotates = rotation_of(p, norm).has_value();
    if (!normalises && !rotates) continue;
    all.push_back(std::string(name_of(norm)) + ": " + (normalises ? "RMS norm" : "") +
                  (normalises && rotates ? ", " : "") + (rotates ? "rotary embedding" : ""));
  }
  if (p.caches && p.kind == LayerKind::mha_fused) all.emplace_back("k, v: into the cache");
  if (p.dim_shared > 0) all.emplace_back("k: columns of k, then the shared key with rotary embedding");
  return all;
}

}  // namespace fovea::layers

namespace fovea {

PerNorm<Sizes> norm_sizes(const LayerProblem& problem) {
  PerNorm<Sizes> sizes;
  for (const layers::Norm norm : layers::kAllNorms) {
    const std::int64_t columns = layers::columns_of(problem, norm);
    if (columns > 0) at(sizes, norm) = {1, 1, 1, columns};
  }
  return sizes;
}

}  // namespace fovea
