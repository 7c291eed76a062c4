// What every problem of a layer must fulfil, told from its sizes, types and heads.
#include "layers/facts.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <utility>

#include "attention/mask.h"
#include "core/check.h"
#include "core/names.h"
#include "layers/norms.h"
#include "layers/parts.h"
#include "layers/problem_line.h"
#include "layers/validate.h"
#include "linear/validate.h"

namespace fovea::layers {
namespace {

using core::to_string;

void check_sizes_of_problem(const core::Validator& check, const LayerProblem& p) {
  for (const auto& [name, size] : {std::pair{"batch", p.batch}, {"len_q", p.len_q}, {"len_k", p.len_k}}) {
    if (size < 0) check.refuse(name, "negative size", to_string(size), "0 or more", "sizes count elements");
  }
  for (const auto& [name, size] : {std::pair{"width", p.width}, {"width_kv", p.width_kv}}) {
    if (size < 1) check.refuse(name, "no columns", to_string(size), "1 or more", "sizes[3] of x and x_kv");
  }
  for (const auto& [name, dim] : {std::pair{"dim_qk", p.dim_qk}, {"dim_v", p.dim_v}}) {
    if (dim < 1 || dim > kMaxDim)
      check.refuse(name, "head dimension out of range", to_string(dim), "1 to " + to_string(kMaxDim),
                   "it is the rows of the weight of q or v divided by its heads");
  }
  for (const auto& [name, size] : {std::pair{"latent_q", p.latent_q}, {"latent_kv", p.latent_kv}}) {
    if (p.kind == LayerKind::mla && size < 1)
      check.refuse(name, "no latent", to_string(size), "1 or more",
                   "it is the rows of q_down.weight or kv_down.weight");
    if (p.kind != LayerKind::mla && size != 0)
      check.refuse(name, "only mla has latents", to_string(size), "0", "set kind to mla");
  }
  if (p.dim_shared < 0 || p.dim_shared >= p.dim_qk || (p.dim_shared > 0 && p.kind != LayerKind::mla))
    check.refuse("dim_shared", "columns of a shared key out of range", to_string(p.dim_shared),
                 p.kind == LayerKind::mla ? "0 to " + to_string(p.dim_qk - 1) : "0",
                 "only mla has a shared key, beside columns of each head's own");
  if (p.caches && (p.pass == Pass::backward || p.saves || p.cross || p.len_k < p.len_q))
    check.refuse(p.cross                               ? "x_kv"
                 : p.pass == Pass::backward || p.saves ? "saved"
                                                       : "len_k",
                 "a cache is for forward alone, of keys of x itself",
                 p.cross                               ? "another sequence for keys and values"
                 : p.pass == Pass::backward || p.saves ? "saved state"
                                                       : "len_k " + to_string(p.len_k),
                 "no x_kv, no saved state, len_k of " + to_string(p.len_q) + " or more",
                 "leave the cache {} to save for backward, or for another sequence");
  if (!p.cross && ((p.len_k != p.len_q && !p.caches) || p.width_kv != p.width))
    check.refuse("len_k", "keys of x itself have its length and width",
                 "len_k " + to_string(p.len_k) + ", width_kv " + to_string(p.width_kv),
                 "len_k " + to_string(p.len_q) + ", width_kv " + to_string(p.width), "set cross for another sequence");
  if (p.kind == LayerKind::mha_fused && (p.cross || p.dim_v != p.dim_qk))
    check.refuse(p.cross ? "x_kv" : "dim_v", "one product makes q, k and v of mha_fused",
                 p.cross ? "another sequence for keys and values" : "dim_v " + to_string(p.dim_v),
                 p.cross ? "no x_kv" : "dim_v " + to_string(p.dim_qk), "mha has separate projections");
}

void check_types(const core::Validator& check, const LayerProblem& p) {
  check.check_element_types(p.dtype, p.result_dtype, p.parameter_dtype);
  check.check_known_device(p.device);
  if (p.accumulate && p.parameter_dtype != DType::fp32)
    check.refuse("accumulate", "gradients accumulate in fp32 only", std::string(core::name_of(p.parameter_dtype)),
                 "fp32 gradients", "give fp32 gradients, which 16-bit parameters may have, or add them yourself");
}

void check_rotary(const core::Validator& check, const LayerProblem& p) {
  if (p.dim_shared > 0 && !p.rotary)
    check.refuse(
        "rotary", "a shared rotary key without rotary embedding",
        "k.weight makes " + to_string(p.dim_qk - p.dim_shared) + " of " + to_string(p.dim_qk) + " columns of a head",
        "rotary, or a k.weight that makes all columns", "the other columns are the rotated key of all heads");
  if (!p.rotary) return;
  const Rotary& r = *p.rotary;
  if (!(std::isfinite(r.theta) && r.theta >= 1))
    check.refuse("rotary.theta", "the base of the angles is out of range", std::to_string(r.theta),
                 "a finite number of 1 or more", "10000 is the usual one");
  if (r.pairs > RotaryPairs::halves)
    check.refuse("rotary.pairs", "unknown order of pairs", std::to_string(static_cast<int>(r.pairs)),
                 "interleaved, halves", "set it to a value of enum RotaryPairs");
  const std::int64_t most = p.dim_shared > 0 ? p.dim_shared : p.dim_qk;
  if (r.columns < 2 || r.columns > most || r.columns % 2 != 0 || (p.dim_shared > 0 && r.columns != most))
    check.refuse("rotary.columns", "columns that do not make pairs within a head", to_string(r.columns),
                 p.dim_shared > 0 ? "0, or " + to_string(most) + ", which must be even"
                                  : "an even number up to " + to_string(most),
                 "0 means all columns of a head, or of the shared key");
  for (const auto& [name, first, len] :
       {std::tuple{"rotary.position_q", r.position_q, p.len_q}, {"rotary.position_k", r.position_k, p.len_k}}) {
    if (first < 0 || first > Rotary::kMaxPosition || len > Rotary::kMaxPosition - first + 1)
      check.refuse(name, "positions out of range", to_string(first) + " for the first of " + to_string(len) + " rows",
                   "all of them 0 to " + to_string(Rotary::kMaxPosition),
                   "beyond it the rounding of an angle would show in fp32");
  }
}

void check_norms(const core::Validator& check, const LayerProblem& p) {
  bool any = false;
  for (const Norm norm : kAllNorms) {
    if (!at(p.norms, norm).given) continue;
    any = true;
    const bool of_latent = norm == Norm::q_latent || norm == Norm::kv_latent;
    if (columns_of(p, norm) == 0)
      check.refuse("norms." + std::string(name_of(norm)), "the layer has no such norm", "a weight", "none",
                   of_latent ? "only mla has latents" : "with a shared rotary key, latents are normalised instead");
  }
  if (any && !(std::isfinite(p.epsilon) && p.epsilon > 0))
    check.refuse("epsilon", "epsilon of the norms out of range", std::to_string(p.epsilon), "a finite number above 0",
                 "1e-6 is the usual one");
}

}  // namespace

std::string line_if_any(const LayerProblem& p) {
  if (p.caches) return "";  // a line has no cache
  const bool said = std::min({p.batch, p.len_q, p.len_k, p.width, p.width_kv, p.heads_q, p.heads_kv, p.dim_qk, p.dim_v,
                              p.latent_q, p.latent_kv, p.dim_shared}) >= 0 &&
                    p.kind <= LayerKind::mla && core::is_known(p.dtype) && core::is_known(p.device.kind) &&
                    core::has_words(p.mask) && std::isfinite(p.scale) &&
                    (!p.rotary || (std::isfinite(p.rotary->theta) && p.rotary->pairs <= RotaryPairs::halves &&
                                   p.rotary->columns >= 0)) &&
                    std::isfinite(p.epsilon);
  return said ? line_of(p) : "";
}

void check_kind(const core::Validator& check, LayerKind kind) {
  if (kind > LayerKind::mla)
    check.refuse("kind", "unknown kind of layer", std::to_string(static_cast<int>(kind)),
                 "mha_fused, mha, gqa, mqa, mla", "set kind to a value of enum LayerKind");
}

std::int64_t usual_heads_kv(LayerKind kind, std::int64_t heads_q) {
  return kind == LayerKind::gqa ? 0 : kind == LayerKind::mqa ? 1 : heads_q;
}

void check_heads(const core::Validator& check, const LayerProblem& p) {
  const std::string got = "heads_q " + to_string(p.heads_q) + ", heads_kv " + to_string(p.heads_kv);
  if (p.heads_q < 1)
    check.refuse("heads_q", "no heads", to_string(p.heads_q), "1 or more",
                 "the rows of q are split into heads_q heads");
  if (p.heads_kv < 1)
    check.refuse("heads_kv", "no key heads", to_string(p.heads_kv), "1 or more, a divisor of heads_q",
                 "gqa needs heads_kv; the other kinds know it");
  const std::int64_t usual = usual_heads_kv(p.kind, p.heads_q);
  if (usual != 0 && p.heads_kv != usual)
    check.refuse("heads_kv", std::string(fovea::to_string(p.kind)) + " has another number of key heads", got,
                 "heads_kv " + to_string(usual) + ", or kind gqa", "leave heads_kv 0");
  if (p.heads_q % p.heads_kv != 0)
    check.refuse("heads_kv", "heads_q must be a multiple of heads_kv", got, "heads_q % heads_kv == 0",
                 "every key head serves the same number of query heads");
}

void check_facts(const core::Validator& check, const LayerProblem& p) {
  check_heads(check, p);
  check_sizes_of_problem(check, p);
  check_types(check, p);
  check_rotary(check, p);
  check_norms(check, p);
  if (const auto fault = core::fault_of(p.mask, p.len_q, p.len_k, core::kArgumentLengths))
    check.refuse(fault->argument, fault->problem, fault->got, fault->wanted, fault->hint);
  if (!std::isfinite(p.scale))
    check.refuse("scale", "the scale must be finite", std::to_string(p.scale), "any finite number",
                 "leave it out for 1/sqrt(dim_qk)");
  if (!sizes_fit(p))
    check.refuse("problem", "the product of the sizes overflows", line_of(p),
                 "at most " + to_string(core::kMaxElements) + " elements of a tensor and " +
                     to_string(linear::kMaxMultiplyAdds) + " multiply-adds of a product",
                 "sizes count elements, not bytes");
}

bool sizes_fit(const LayerProblem& p) {
  return core::sizes_fit(attention_of(p)) &&
         std::ranges::all_of(steps_of(p), [&](const Step& step) { return linear::sizes_fit(forward_of(p, step)); });
}

void validate(const LayerProblem& p, std::string_view call) {
  core::Validator check(call);
  check.line = [&p] { return line_if_any(p); };
  check_kind(check, p.kind);
  check_facts(check, p);
  if (p.pass == Pass::backward && !p.saves)
    check.refuse("saves", "backward reads saved state", "false", "true", "describe(..) sets it");
}

}  // namespace fovea::layers
