// The contract's refusals. Order: single tensors, agreement between tensors, options, then outputs against inputs.
#include "attention/validate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "attention/mask.h"
#include "attention/problem_line.h"
#include "core/check.h"
#include "core/names.h"
#include "core/tensor_checks.h"

namespace fovea::core {
namespace {

// Whether a problem line can express it: no negative size, no unknown enumerator, a finite scale.
bool has_line(const AttentionProblem& p) {
  return std::min({p.batch, p.heads_q, p.heads_kv, p.len_q, p.len_k, p.dim_qk, p.dim_v}) >= 0 && is_known(p.dtype) &&
         has_words(p.mask) && is_known(p.device.kind) && std::isfinite(p.scale);
}

void check_heads(const Validator& check, std::int64_t heads_q, std::int64_t heads_kv) {
  if (heads_q > 0 && heads_kv == 0)
    check.refuse("k", "no key heads for the query heads", "heads_q " + to_string(heads_q) + ", heads_kv 0",
                 "heads_kv of 1 or more", "give k and v a head, or q none");
  if (heads_kv > 0 && heads_q % heads_kv != 0) {
    check.refuse("k", "heads_q must be a multiple of heads_kv",
                 "heads_q " + to_string(heads_q) + ", heads_kv " + to_string(heads_kv), "heads_q % heads_kv == 0",
                 "every key head serves the same number of query heads: sizes[1] of q, k and v");
  }
}

void check_facts(Validator& check, const AttentionProblem& p) {
  check_heads(check, p.heads_q, p.heads_kv);
  for (const auto& [name, dim] : {std::pair{"q", p.dim_qk}, {"v", p.dim_v}}) {
    if (dim < 1 || dim > kMaxDim)
      check.refuse(name, "head dimension out of range", to_string(dim), "1 to " + to_string(kMaxDim),
                   dim < 1 ? "sizes are (batch, heads, length, dim)" : "split it over several heads");
  }
  if (const auto fault = fault_of(p.mask, p.len_q, p.len_k, kArgumentLengths))
    check.refuse(fault->argument, fault->problem, fault->got, fault->wanted, fault->hint);
  if (p.device.index < 0 || (p.device.kind == DeviceKind::cpu && p.device.index != 0)) {
    check.refuse("device", "no such device", std::string(name_of(p.device.kind)) + ":" + to_string(p.device.index),
                 p.device.kind == DeviceKind::cpu ? "cpu:0" : "an index of 0 or more",
                 "the memory of all processors is cpu:0");
  }
  if (!std::isfinite(p.scale))
    check.refuse("scale", "the scale must be finite", std::to_string(p.scale), "any finite number",
                 "leave it out for 1/sqrt(dim_qk)");
  if (p.accumulate && p.result_dtype != DType::fp32) {
    check.refuse("accumulate", "gradients accumulate in fp32 only", std::string(name_of(p.result_dtype)),
                 "fp32 dq, dk and dv", "give fp32 gradients, which 16-bit inputs may have, or add them yourself");
  }
}

bool are_unaligned(std::initializer_list<const TensorArg*> inputs) {
  return std::any_of(inputs.begin(), inputs.end(), [](const TensorArg* one) { return is_unaligned(one->view); });
}

AttentionProblem facts_of(const TensorView& q, const TensorView& k, const TensorView& v,
                          const AttentionOptions& options) {
  AttentionProblem p;
  p.batch = q.sizes[0];
  p.heads_q = q.sizes[1];
  p.heads_kv = k.sizes[1];
  p.len_q = q.sizes[2];
  p.len_k = k.sizes[2];
  p.dim_qk = q.sizes[3];
  p.dim_v = v.sizes[3];
  p.dtype = q.dtype;
  p.mask = options.mask;
  p.scale = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(q.sizes[3] > 0 ? q.sizes[3] : 1)));
  p.device = q.device;
  p.reproducible = options.reproducible;
  return p;
}

void check_options(const Validator& check, const AttentionOptions& options, const Buffer& saved) {
  check.check_threads(options.threads, options.thread_pool);
  check.check_buffer("workspace", options.workspace, kOwnPool);
  check.check_buffer("saved", saved, "leave it {}: backward then recomputes what it needs");
}

void check_given(const Validator& check, std::span<const TensorArg> tensors) {
  for (const auto& t : tensors) check.check_given(t);
}

void check_all(const Validator& check, std::span<TensorArg> tensors) {
  for (auto& t : tensors) check.check_tensor(t);
}

void check_results(const Validator& check, std::span<const TensorArg> results, AttentionProblem& p) {
  for (const auto& t : results) {
    if (t.view.dtype != p.dtype && t.view.dtype != DType::fp32) {
      check.refuse(t.name, "element type of a result", std::string(name_of(t.view.dtype)),
                   p.dtype == DType::fp32 ? "fp32" : join({name_of(p.dtype), "fp32"}, " or "),
                   "results are stored in the type of q or in fp32");
    }
    if (t.view.dtype != results.front().view.dtype) check.check_dtype(t, results.front().view.dtype);
    p.result_dtype = t.view.dtype;
  }
}

void check_sizes_fit(const Validator& check, const AttentionProblem& p) {
  if (sizes_fit(p)) return;
  check.refuse("problem", "the product of the sizes overflows", line_of(p),
               "at most " + to_string(kMaxElements) + " elements and " + to_string(kMaxPairs) + " query-key pairs",
               "sizes count elements, not bytes");
}

// The tensors of one attention call, at most ten. An array: every call makes this list and must not allocate for it.
class TensorList {
 public:
  template <class Pointer>
  const TensorArg& add(std::string_view name, const BasicTensorView<Pointer>& view, bool is_output = false) {
    TensorArg& one = tensors_[count_++];
    one.name = name, one.view = view, one.is_output = is_output;
    return one;
  }
  std::span<TensorArg> all() { return {tensors_.data(), count_}; }

 private:
  std::array<TensorArg, 10> tensors_;
  std::size_t count_ = 0;
};

}  // namespace

bool is_unaligned(const TensorView& view) {
  constexpr std::int64_t kRowAlignment = 16, kStrideLimit = std::int64_t{1} << 40;
  if (view.device.kind != DeviceKind::cuda || view.dtype == DType::fp32 || element_count(view) == 0) return false;
  if (reinterpret_cast<std::uintptr_t>(view.data) % kRowAlignment != 0) return true;
  for (int i = 0; i < 3; ++i) {
    if (view.sizes[i] <= 1) continue;
    const std::int64_t stride = view.strides[i], size = size_of(view.dtype);
    if (stride == 0 || stride >= kStrideLimit / size || stride * size % kRowAlignment != 0) return true;
  }
  return false;
}

bool sizes_fit(const AttentionProblem& p) {
  return product_within({p.batch, p.heads_q, p.len_q, p.dim_qk}, kMaxElements) &&
         product_within({p.batch, p.heads_q, p.len_q, p.dim_v}, kMaxElements) &&
         product_within({p.batch, p.heads_kv, p.len_k, p.dim_qk}, kMaxElements) &&
         product_within({p.batch, p.heads_kv, p.len_k, p.dim_v}, kMaxElements) &&
         product_within({p.batch, p.heads_q, p.len_q, p.len_k}, kMaxPairs);
}

AttentionProblem validate(const ForwardTensors& t, const AttentionOptions& options, std::string_view call) {
  Validator check(call);
  TensorList tensors;
  const TensorArg &q = tensors.add("q", t.q), &k = tensors.add("k", t.k), &v = tensors.add("v", t.v);
  const TensorArg& out = tensors.add("out", t.out, true);
  const TensorArg* const lse = t.lse ? &tensors.add("lse", t.lse, true) : nullptr;
  AttentionProblem p = facts_of(q.view, k.view, v.view, options);
  p.saved_state = t.saved.data != nullptr;
  check.line = [&p] { return has_line(p) ? line_of(p) : ""; };
  check_given(check, tensors.all());
  check_all(check, tensors.all());
  check.check_sizes(k, {p.batch, p.heads_kv, p.len_k, p.dim_qk});
  check.check_sizes(v, {p.batch, p.heads_kv, p.len_k, p.dim_v});
  check_facts(check, p);
  check.check_sizes(out, {p.batch, p.heads_q, p.len_q, p.dim_v});
  check.check_dtype(k, p.dtype);
  check.check_dtype(v, p.dtype);
  check_results(check, {&out, 1}, p);
  if (lse != nullptr) {
    check.check_sizes(*lse, {p.batch, p.heads_q, p.len_q, 1});
    check.check_dtype(*lse, DType::fp32);
  }
  for (const TensorArg& one : tensors.all()) check.check_device(one, p.device);
  check_options(check, options, t.saved);
  check.check_overlap(tensors.all());
  check.check_buffers(tensors.all(), {"workspace", options.workspace, true}, {"saved", t.saved, true});
  check_sizes_fit(check, p);
  p.unaligned = are_unaligned({&q, &k, &v});
  return p;
}

AttentionProblem validate(const BackwardTensors& t, const AttentionOptions& options, std::string_view call) {
  Validator check(call);
  TensorList tensors;
  const TensorArg &q = tensors.add("q", t.q), &k = tensors.add("k", t.k), &v = tensors.add("v", t.v);
  const TensorArg &lse = tensors.add("lse", t.lse), &dout = tensors.add("dout", t.dout);
  const TensorArg* const out = t.out || !t.delta ? &tensors.add("out", t.out) : nullptr;
  const TensorArg* const delta = t.delta ? &tensors.add("delta", t.delta) : nullptr;
  const std::size_t inputs = tensors.all().size();
  const TensorArg* const dq = t.dq ? &tensors.add("dq", t.dq, true) : nullptr;
  const TensorArg* const dk = t.dk ? &tensors.add("dk", t.dk, true) : nullptr;
  const TensorArg* const dv = t.dv ? &tensors.add("dv", t.dv, true) : nullptr;
  const auto gradients = std::span<const TensorArg>(tensors.all()).subspan(inputs);
  AttentionProblem p = facts_of(q.view, k.view, v.view, options);
  p.pass = Pass::backward;
  p.saved_state = t.saved.data != nullptr;
  p.accumulate = t.accumulate;
  p.wants_dq = dq != nullptr;
  p.wants_dk = dk != nullptr;
  p.wants_dv = dv != nullptr;
  p.result_dtype = p.dtype;
  check.line = [&p] { return has_line(p) ? line_of(p) : ""; };
  check_given(check, tensors.all());
  check_all(check, tensors.all());
  if (gradients.empty() && (q.has_elements() || k.has_elements() || v.has_elements())) {
    check.refuse("dq", "no gradient is asked for", "dq, dk and dv null", "at least one of them",
                 "give memory for the gradients that are wanted");
  }
  const Sizes like_out{p.batch, p.heads_q, p.len_q, p.dim_v}, row{p.batch, p.heads_q, p.len_q, 1};
  check.check_sizes(k, {p.batch, p.heads_kv, p.len_k, p.dim_qk});
  check.check_sizes(v, {p.batch, p.heads_kv, p.len_k, p.dim_v});
  check_results(check, gradients, p);
  check_facts(check, p);
  for (const TensorArg& one : tensors.all()) {
    const bool is_row = &one == &lse || &one == delta, is_out = &one == out;
    if (is_row) check.check_sizes(one, row);
    if (is_out || &one == &dout) check.check_sizes(one, like_out);
    if (is_row) check.check_dtype(one, DType::fp32);
    if (is_out && one.view.dtype != DType::fp32) check.check_dtype(one, p.dtype);
    if (!is_row && !is_out && !one.is_output) check.check_dtype(one, p.dtype);
    check.check_device(one, p.device);
  }
  if (dq != nullptr) check.check_sizes(*dq, q.view.sizes);
  if (dk != nullptr) check.check_sizes(*dk, k.view.sizes);
  if (dv != nullptr) check.check_sizes(*dv, v.view.sizes);
  check_options(check, options, t.saved);
  check.check_overlap(tensors.all());
  check.check_buffers(tensors.all(), {"workspace", options.workspace, true}, {"saved", t.saved, false});
  check_sizes_fit(check, p);
  p.unaligned = are_unaligned({&q, &k, &v, &dout});
  return p;
}

void validate(const AttentionProblem& p, std::string_view call) {
  Validator check(call);
  check.line = [&p] { return has_line(p) ? line_of(p) : ""; };
  for (const auto& [name, size] : {std::pair{"batch", p.batch},
                                   {"heads_q", p.heads_q},
                                   {"heads_kv", p.heads_kv},
                                   {"len_q", p.len_q},
                                   {"len_k", p.len_k}}) {
    if (size < 0) check.refuse(name, "negative size", to_string(size), "0 or more", "sizes count elements");
  }
  check_sizes_fit(check, p);
  check_facts(check, p);
}

void validate(std::span<const PartialResult> partials, const MutableTensorView& out, const MutableTensorView& lse,
              std::string_view call) {
  const Validator check(call);
  if (partials.empty())
    check.refuse("partials", "nothing to merge", "0 partials", "1 or more",
                 "give the (out, lse) pairs of disjoint sets of keys");
  std::vector<TensorArg> all{{"out", out, true}, {"lse", lse, true}};
  for (const auto& partial : partials) {
    all.push_back({"partials.out", partial.out, false});
    all.push_back({"partials.lse", partial.lse, false});
  }
  check_all(check, all);
  const Sizes rows{out.sizes[0], out.sizes[1], out.sizes[2], 1};
  for (const auto& named : all) {
    check.check_sizes(named, named.name == "out" || named.name == "partials.out" ? out.sizes : rows);
    check.check_dtype(named, DType::fp32);
    check.check_device(named, Device{});
  }
  check.check_overlap(all);
}

}  // namespace fovea::core
