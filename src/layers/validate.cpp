// Order: options, single tensors, agreement between tensors, then outputs against inputs.
#include "layers/validate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>
#include <utility>

#include "core/check.h"
#include "core/names.h"
#include "core/tensor_list.h"
#include "layers/facts.h"
#include "layers/norms.h"
#include "layers/parts.h"
#include "linear/validate.h"

namespace fovea::layers {
namespace {

using core::TensorArg;
using core::to_string;

constexpr std::array<std::string_view, kSlots> kWeights = {"qkv.weight", "q_down.weight", "q.weight",  "kv_down.weight",
                                                           "k.weight",   "v.weight",      "out.weight"};
constexpr std::array<std::string_view, kSlots> kBiases = {"qkv.bias", "q_down.bias", "q.bias",  "kv_down.bias",
                                                          "k.bias",   "v.bias",      "out.bias"};
constexpr std::array<std::string_view, kSlots> kWeightGradients = {
    "gradients.qkv.weight", "gradients.q_down.weight", "gradients.q.weight",  "gradients.kv_down.weight",
    "gradients.k.weight",   "gradients.v.weight",      "gradients.out.weight"};
constexpr std::array<std::string_view, kSlots> kBiasGradients = {
    "gradients.qkv.bias", "gradients.q_down.bias", "gradients.q.bias",  "gradients.kv_down.bias",
    "gradients.k.bias",   "gradients.v.bias",      "gradients.out.bias"};

constexpr std::array<std::string_view, kNorms> kNormWeights = {"norms.q", "norms.k", "norms.q_latent",
                                                               "norms.kv_latent"};
constexpr std::array<std::string_view, kNorms> kNormGradients = {"norm_gradients.q", "norm_gradients.k",
                                                                 "norm_gradients.q_latent", "norm_gradients.kv_latent"};

std::string_view name(const std::array<std::string_view, kSlots>& names, Slot slot) {
  return names[static_cast<std::size_t>(slot)];
}

class Checks : public core::TensorList<40> {
 public:
  using TensorList::TensorList;

  // The type of the inputs, or fp32; the same for all of them.
  void check_results(std::span<const TensorArg* const> results, const LayerProblem& p, DType& result) const {
    const TensorArg* first = nullptr;
    for (const TensorArg* const one : results) {
      if (one == nullptr) continue;
      if (one->view.dtype != p.dtype && one->view.dtype != DType::fp32)
        refuse(one->name, "element type of a result", std::string(core::name_of(one->view.dtype)),
               p.dtype == DType::fp32 ? "fp32" : core::join({core::name_of(p.dtype), "fp32"}, " or "),
               "results are stored in the type of x or in fp32");
      if (first == nullptr) first = one;
      check_dtype(*one, first->view.dtype);
      result = first->view.dtype;
    }
  }

  void check_rest(const LayerProblem& p, const LayerOptions& options, const Buffer& saved) {
    check_buffer("saved", saved, "saved_bytes(describe(..)) tells how many bytes");
    TensorList::check_rest(p.device, options.threads, options.thread_pool, options.workspace);
    check_buffers(tensors(), {"workspace", options.workspace, true}, {"saved", saved, p.pass == Pass::forward});
  }
};

// What a kind takes no tensor for.
template <class Projections>
void check_unused(const Checks& check, const Steps& steps, const Projections& all, std::string_view prefix,
                  LayerKind kind) {
  for (const Slot slot : kAllSlots) {
    if (std::ranges::find(steps, slot, &Step::slot) != steps.end()) continue;
    if (!at(all, slot).weight && !at(all, slot).bias) continue;
    std::string used;
    for (const Step& step : steps) used += (used.empty() ? "" : ", ") + std::string(name_of(step.slot));
    check.refuse(std::string(prefix) + std::string(name_of(slot)),
                 std::string(fovea::to_string(kind)) + " has no such projection", "a tensor", used,
                 "leave it {}, or choose another kind");
  }
}

// Rows of a weight as `parts` times `heads` times a head dimension.
std::int64_t dim_of(const Checks& check, std::string_view argument, std::int64_t rows, std::int64_t parts,
                    std::int64_t heads, std::string_view factor) {
  if (rows % parts != 0 || rows / parts % heads != 0)
    check.refuse(argument, "its rows do not divide into heads",
                 to_string(rows) + " rows, " + to_string(heads) + " heads",
                 std::string(factor) + " times a head dimension", "heads_q and heads_kv say how many heads there are");
  return rows / parts / heads;
}

// Columns of a head of q that k does not make: the shared key's.
std::int64_t shared_columns(const Checks& check, std::int64_t rows_of_k, const LayerProblem& p) {
  const std::int64_t own = dim_of(check, "k.weight", rows_of_k, 1, p.heads_kv, "heads_kv");
  if (own > p.dim_qk || own < 1)
    check.refuse("k.weight", "heads of other columns than those of q", to_string(own) + " columns a head",
                 "1 to " + to_string(p.dim_qk), "a head of k has the columns of q, or fewer and a shared rotary key");
  return p.dim_qk - own;
}

// Head dimensions, latents and the shared key, from the sizes of weights.
void take_sizes(const Checks& check, const LayerParameters& w, const LayerOptions& options, LayerProblem& p) {
  const auto rows = [&](Slot slot) { return at(w, slot).weight.sizes[2]; };
  if (p.kind == LayerKind::mha_fused) {
    p.dim_qk = p.dim_v = dim_of(check, "qkv.weight", rows(Slot::qkv), 3, p.heads_q, "3 heads_q");
  } else {
    p.dim_qk = dim_of(check, "q.weight", rows(Slot::q), 1, p.heads_q, "heads_q");
    p.dim_v = dim_of(check, "v.weight", rows(Slot::v), 1, p.heads_kv, "heads_kv");
  }
  if (p.kind == LayerKind::mla) {
    p.dim_shared = shared_columns(check, rows(Slot::k), p);
    p.latent_q = rows(Slot::q_down), p.latent_kv = rows(Slot::kv_down) - p.dim_shared;
  }
  if (p.rotary && p.rotary->columns == 0) p.rotary->columns = p.dim_shared > 0 ? p.dim_shared : p.dim_qk;
  if (!options.scale) p.scale = 1.0 / std::sqrt(static_cast<double>(std::max<std::int64_t>(p.dim_qk, 1)));
}

// A cache of the kind: its tensors, which agree with the call and have room for its rows.
struct CacheArgs {
  const TensorArg *k = nullptr, *v = nullptr, *latent = nullptr;
};

CacheArgs add_cache(Checks& check, const LayerForwardTensors& t, LayerProblem& p) {
  if (!t.cache) return {};
  const bool latent = p.kind == LayerKind::mla;
  const auto wrong = [&](std::string_view name) {
    check.refuse(name, std::string(fovea::to_string(p.kind)) + " caches something else", "a tensor",
                 latent ? "cache.latent" : "cache.k and cache.v", "leave it {}");
  };
  if (latent && (t.cache.k || t.cache.v)) wrong(t.cache.k ? "cache.k" : "cache.v");
  if (!latent && t.cache.latent) wrong("cache.latent");
  if (t.cache.length < 0 || t.cache.length > core::kMaxElements)
    check.refuse("cache.length", "rows of the cache out of range", to_string(t.cache.length), "0 or more",
                 "it is 0 for an empty cache, and grows by len_q with every call");
  p.caches = true;
  p.len_k = plus(t.cache.length, p.len_q);
  if (latent) return {.latent = &check.add("cache.latent", t.cache.latent, true)};
  return {&check.add("cache.k", t.cache.k, true), &check.add("cache.v", t.cache.v, true), nullptr};
}

void check_cache(const Checks& check, const CacheArgs& cache, const LayerCache& given, LayerProblem& p) {
  const auto one = [&](const TensorArg* tensor, std::int64_t columns, std::int64_t dim) {
    if (tensor == nullptr) return;
    const std::int64_t capacity = tensor->view.sizes[2];
    check.check_dtype(*tensor, p.dtype);
    check.check_sizes(*tensor, {p.batch, 1, capacity, columns});
    if (p.len_k > capacity)
      check.refuse("cache.length", "the cache overflows",
                   to_string(given.length) + " rows and " + to_string(p.len_q) + " new ones in " +
                       std::string(tensor->name) + " of " + to_string(capacity),
                   "at most " + to_string(capacity) + " rows in all", "give a cache of more rows, or fewer tokens");
    TensorView heads = tensor->view;
    heads.sizes[1] = columns / dim, heads.sizes[3] = heads.strides[1] = dim;
    p.unaligned_cache = p.unaligned_cache || (p.kind != LayerKind::mla && core::is_unaligned(heads));
  };
  one(cache.k, p.heads_kv * p.dim_qk, p.dim_qk);
  one(cache.v, p.heads_kv * p.dim_v, p.dim_v);
  one(cache.latent, p.latent_kv + p.dim_shared, p.latent_kv + p.dim_shared);
}

// What both passes say: options, x, x_kv.
LayerProblem facts_of(const Checks& check, const TensorView& x, const TensorView& x_kv, const LayerOptions& options) {
  check_kind(check, options.kind);
  const TensorView& keys = x_kv ? x_kv : x;
  LayerProblem p{.kind = options.kind,
                 .batch = x.sizes[0],
                 .len_q = x.sizes[2],
                 .len_k = keys.sizes[2],
                 .width = x.sizes[3],
                 .width_kv = keys.sizes[3],
                 .heads_q = options.heads_q,
                 .heads_kv = options.heads_kv,
                 .dtype = x.dtype,
                 .mask = options.mask,
                 .scale = options.scale.value_or(1.0),
                 .device = x.device,
                 .cross = bool(x_kv),
                 .reproducible = options.reproducible,
                 .rotary = options.rotary};
  p.result_dtype = p.parameter_dtype = p.dtype;
  if (p.heads_kv == 0) p.heads_kv = usual_heads_kv(p.kind, p.heads_q);
  check_heads(check, p);
  return p;
}

// The tensors that both passes read.
struct Inputs {
  Steps slots;  // of the kind; their sizes mean nothing yet
  const TensorArg* x = nullptr;
  const TensorArg* x_kv = nullptr;
  std::array<const TensorArg*, kSlots> weights{};
};

template <class Tensors>
Inputs add_inputs(Checks& check, const Tensors& t, const LayerProblem& p) {
  Inputs inputs{.slots = steps_of(p)};
  check_unused(check, inputs.slots, t.parameters, "", p.kind);
  inputs.x = &check.add("x", t.x);
  inputs.x_kv = check.add_if_given("x_kv", t.x_kv);
  for (std::size_t i = 0; i < inputs.slots.size(); ++i)
    inputs.weights[i] = &check.add(name(kWeights, inputs.slots[i].slot), at(t.parameters, inputs.slots[i].slot).weight);
  return inputs;
}

void check_inputs(const Checks& check, const Inputs& inputs, const Steps& steps, const LayerProblem& p) {
  check.check_sizes(*inputs.x, {p.batch, 1, p.len_q, p.width});
  if (inputs.x_kv != nullptr) {
    check.check_sizes(*inputs.x_kv, {p.batch, 1, p.len_k, p.width_kv});
    check.check_dtype(*inputs.x_kv, p.dtype);
  }
  for (std::size_t i = 0; i < steps.size(); ++i) {
    linear::check_weight(check, *inputs.weights[i], steps[i].columns_out, steps[i].columns_in);
    check.check_dtype(*inputs.weights[i], p.dtype);
  }
}

// Weights of norms, or their gradients.
using NormArgs = std::array<const TensorArg*, kNorms>;

template <class Views>
NormArgs add_norms(Checks& check, const std::array<std::string_view, kNorms>& names, const PerNorm<Views>& views,
                   bool is_output) {
  NormArgs all{};
  for (std::size_t n = 0; n < kNorms; ++n) all[n] = check.add_if_given(names[n], at(views, kAllNorms[n]), is_output);
  return all;
}

NormArgs add_norms(Checks& check, const LayerNorms& norms, const LayerOptions& options, LayerProblem& p) {
  const NormArgs all = add_norms(check, kNormWeights, norms, false);
  for (std::size_t n = 0; n < kNorms; ++n) {
    if (all[n] == nullptr) continue;
    at(p.norms, kAllNorms[n]).given = true;
    p.epsilon = options.epsilon;
  }
  return all;
}

void check_norms(const Checks& check, const NormArgs& norms, const LayerProblem& p) {
  for (std::size_t n = 0; n < kNorms; ++n) {
    if (norms[n] == nullptr) continue;
    check.check_sizes(*norms[n], {1, 1, 1, columns_of(p, kAllNorms[n])});
    if (!norms[n]->is_output) check.check_dtype(*norms[n], p.dtype);
  }
}

// Gradients of parameters: of the weight and the bias of each slot, in the steps' order; of norms.
struct Gradients {
  std::array<const TensorArg*, 2 * kSlots + kNorms> given{};
  std::span<const TensorArg* const> all() const { return given; }
  bool any() const {
    return std::ranges::any_of(given, [](const TensorArg* one) { return one != nullptr; });
  }
};

Gradients add_gradients(Checks& check, const Steps& slots, const LayerBackwardTensors& t, LayerProblem& p) {
  const LayerGradients& views = t.gradients;
  Gradients all;
  const NormArgs norms = add_norms(check, kNormGradients, t.norm_gradients, true);
  std::ranges::copy(norms, all.given.begin() + 2 * kSlots);
  for (std::size_t n = 0; n < kNorms; ++n) at(p.norms, kAllNorms[n]).wants_dweight = norms[n] != nullptr;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const Slot slot = slots[i].slot;
    all.given[2 * i] = check.add_if_given(name(kWeightGradients, slot), at(views, slot).weight, true);
    all.given[2 * i + 1] = check.add_if_given(name(kBiasGradients, slot), at(views, slot).bias, true);
    at(p.projections, slot).wants_dweight = all.given[2 * i] != nullptr;
    at(p.projections, slot).wants_dbias = all.given[2 * i + 1] != nullptr;
  }
  return all;
}

void check_gradients(const Checks& check, const Gradients& all, const Steps& steps, const LayerProblem& p) {
  NormArgs norms{};
  std::copy_n(all.given.begin() + 2 * kSlots, kNorms, norms.begin());
  for (std::size_t n = 0; n < kNorms; ++n) {
    if (norms[n] != nullptr && !at(p.norms, kAllNorms[n]).given)
      check.refuse(kNormGradients[n], "a gradient of a norm that is not given", to_string(norms[n]->view.sizes),
                   "no gradient, or " + std::string(kNormWeights[n]), "without its weight nothing is normalised");
  }
  check_norms(check, norms, p);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const TensorArg *const weight = all.given[2 * i], *const bias = all.given[2 * i + 1];
    if (weight != nullptr) check.check_sizes(*weight, {1, 1, steps[i].columns_out, steps[i].columns_in});
    if (bias != nullptr) check.check_sizes(*bias, {1, 1, 1, steps[i].columns_out});
  }
}

}  // namespace

LayerProblem validate(const LayerForwardTensors& t, const LayerOptions& options, std::string_view call) {
  Checks check(call);
  LayerProblem p = facts_of(check, t.x, t.x_kv, options);
  p.saves = t.saved.data != nullptr;
  const Inputs inputs = add_inputs(check, t, p);
  std::array<const TensorArg*, kSlots> biases{};
  for (std::size_t i = 0; i < inputs.slots.size(); ++i) {
    const Slot slot = inputs.slots[i].slot;
    biases[i] = check.add_if_given(name(kBiases, slot), at(t.parameters, slot).bias);
    at(p.projections, slot).bias = biases[i] != nullptr;
  }
  const NormArgs norms = add_norms(check, t.norms, options, p);
  const CacheArgs cache = add_cache(check, t, p);
  const TensorArg& y = check.add("y", t.y, true);
  check.check_each();
  take_sizes(check, t.parameters, options, p);
  check.line = [&p] { return line_if_any(p); };
  const TensorArg* const results[] = {&y};
  check.check_results(results, p, p.result_dtype);
  check_facts(check, p);
  const Steps steps = steps_of(p);
  check_inputs(check, inputs, steps, p);
  check_norms(check, norms, p);
  check_cache(check, cache, t.cache, p);
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (biases[i] == nullptr) continue;
    check.check_sizes(*biases[i], {1, 1, 1, steps[i].columns_out});
    check.check_dtype(*biases[i], p.dtype);
  }
  check.check_sizes(y, {p.batch, 1, p.len_q, p.width});
  p.copies_x = linear::copies_x(t.x, Pass::forward);
  p.copies_x_kv = p.cross && linear::copies_x(t.x_kv, Pass::forward);
  check.check_rest(p, options, t.saved);
  return p;
}

LayerProblem validate(const LayerBackwardTensors& t, const LayerOptions& options, std::string_view call) {
  Checks check(call);
  LayerProblem p = facts_of(check, t.x, t.x_kv, options);
  p.pass = Pass::backward;
  p.saves = true;
  p.wants_dx = bool(t.dx), p.wants_dx_kv = bool(t.dx_kv);
  const Inputs inputs = add_inputs(check, t, p);
  check_unused(check, inputs.slots, t.gradients, "gradients.", p.kind);
  const TensorArg& dy = check.add("dy", t.dy);
  const TensorArg* const dx[] = {check.add_if_given("dx", t.dx, true), check.add_if_given("dx_kv", t.dx_kv, true)};
  const NormArgs norms = add_norms(check, t.norms, options, p);
  const Gradients gradients = add_gradients(check, inputs.slots, t, p);
  check.check_each();
  if (dx[1] != nullptr && !p.cross)
    check.refuse("dx_kv", "a gradient of x_kv, which is not given", to_string(t.dx_kv.sizes), "no dx_kv, or x_kv",
                 "without x_kv, dx holds the gradient through keys and values too");
  take_sizes(check, t.parameters, options, p);
  check.line = [&p] { return line_if_any(p); };
  check.check_results(dx, p, p.result_dtype);
  check.check_results(gradients.all(), p, p.parameter_dtype);
  p.accumulate = t.accumulate && gradients.any();
  check_facts(check, p);
  if (dx[0] == nullptr && dx[1] == nullptr && !gradients.any() && dy.has_elements())
    check.refuse("dx", "no gradient is asked for", "all of them null", "at least one of them",
                 "give memory for the gradients that are wanted");
  const Steps steps = steps_of(p);
  check_inputs(check, inputs, steps, p);
  check_norms(check, norms, p);
  check.check_dtype(dy, p.dtype);
  check.check_sizes(dy, {p.batch, 1, p.len_q, p.width});
  if (dx[0] != nullptr) check.check_sizes(*dx[0], t.x.sizes);
  if (dx[1] != nullptr) check.check_sizes(*dx[1], t.x_kv.sizes);
  check_gradients(check, gradients, steps, p);
  p.copies_x = linear::copies_x(t.x, Pass::backward);
  p.copies_x_kv = p.cross && linear::copies_x(t.x_kv, Pass::backward);
  const ProjectionFacts& out = p.projections.out;
  p.copies_dy = linear::copies_dy({.wants_dweight = out.wants_dweight, .wants_dbias = out.wants_dbias}, t.dy);
  if (t.saved.data == nullptr)
    check.refuse("saved", "backward reads saved state", "null", "what layer_forward wrote",
                 "give the forward call memory of saved_bytes(describe(..))");
  check.check_rest(p, options, t.saved);
  return p;
}

}  // namespace fovea::layers
