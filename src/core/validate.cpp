// The contract's refusals. Order: single tensors, agreement between tensors, options, then outputs against inputs.
#include "core/validate.h"

#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/names.h"
#include "core/problem_line.h"

namespace fovea::core {
namespace {

constexpr std::int64_t kMaxElements = std::int64_t{1} << 60;  // times 4 bytes still fits 64 bits
constexpr std::int64_t kMaxDim = 4096;

struct Named {
  std::string_view name;
  TensorView view;
  bool is_output;
};

class Validator {
 public:
  explicit Validator(std::string_view call) : call_(call) {}

  [[noreturn]] void refuse(std::string_view argument, std::string problem, std::string got, std::string wanted,
                           std::string hint = {}) const {
    fail({Status::invalid_argument, std::string(call_), std::string(argument), std::move(problem), std::move(got),
          std::move(wanted), std::move(hint), line});
  }

  void check_tensor(const Named& t) const;
  void check_sizes(const Named& t, const Sizes& wanted) const;
  void check_dtype(const Named& t, DType wanted) const;
  void check_device(const Named& t, Device wanted) const;
  void check_overlap(const std::vector<Named>& tensors) const;

  std::string line;  // set as soon as the problem is known

 private:
  std::string_view call_;
};

bool multiply(std::int64_t a, std::int64_t b, std::int64_t& product) { return !__builtin_mul_overflow(a, b, &product); }

std::int64_t element_count(const TensorView& view) {
  std::int64_t count = 1;
  for (const auto size : view.sizes) count *= size;
  return count;
}

// Elements from the first to one past the last that the view touches; -1 if that overflows.
std::int64_t extent(const TensorView& view) {
  std::int64_t last = 0;
  for (int i = 0; i < 4; ++i) {
    std::int64_t step = 0;
    if (view.sizes[i] > 1 &&
        (!multiply(view.sizes[i] - 1, view.strides[i], step) || __builtin_add_overflow(last, step, &last)))
      return -1;
  }
  return last < kMaxElements ? last + 1 : -1;
}

void Validator::check_tensor(const Named& t) const {
  const TensorView& v = t.view;
  if (name_of(v.dtype) == "unknown") {
    refuse(t.name, "unknown element type", std::to_string(static_cast<int>(v.dtype)), join({"fp32", "bf16", "fp16"}));
  }
  if (name_of(v.device.kind) == "unknown") {
    refuse(t.name, "unknown device", std::to_string(static_cast<int>(v.device.kind)), join({"cpu", "cuda"}));
  }
  std::int64_t count = 1;
  for (const auto size : v.sizes) {
    if (size < 0) refuse(t.name, "negative size", to_string(v.sizes), "sizes of 0 or more");
    if (!multiply(count, size > 0 ? size : 1, count) || count > kMaxElements) {
      refuse(t.name, "the product of the sizes overflows", to_string(v.sizes),
             "at most " + to_string(kMaxElements) + " elements");
    }
  }
  if (element_count(v) == 0) return;  // strides and pointer of an empty tensor mean nothing
  if (v.data == nullptr)
    refuse(t.name, "null pointer", "null, sizes " + to_string(v.sizes),
           "memory for " + to_string(element_count(v)) + " elements");
  if (reinterpret_cast<std::uintptr_t>(v.data) % static_cast<std::uintptr_t>(size_of(v.dtype)) != 0) {
    refuse(t.name, "pointer not aligned to its elements",
           "address ending in " + to_string(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(v.data) % 16)),
           "a multiple of " + to_string(size_of(v.dtype)) + " bytes");
  }
  for (int i = 0; i < 4; ++i) {
    if (v.sizes[i] > 1 && v.strides[i] < 0)
      refuse(t.name, "negative stride", "strides " + to_string(v.strides), "strides of 0 or more");
  }
  if (v.sizes[3] > 1 && v.strides[3] != 1) {
    refuse(t.name, "the last dimension must be contiguous",
           "sizes " + to_string(v.sizes) + " strides " + to_string(v.strides), "strides[3] == 1",
           "copy the tensor so that its last dimension is contiguous");
  }
  const std::int64_t elements = extent(v);
  if (elements < 0)
    refuse(t.name, "the strides reach past the address space", "strides " + to_string(v.strides),
           "an extent below " + to_string(kMaxElements) + " elements");
  if (v.buffer_bytes >= 0 && elements * size_of(v.dtype) > v.buffer_bytes) {
    refuse(t.name, "the strides reach past the buffer", to_string(v.buffer_bytes) + " bytes",
           "at least " + to_string(elements * size_of(v.dtype)) + " bytes");
  }
  if (!t.is_output) return;
  // Two indices of an output must not share an element: sorted by stride, each must step over all smaller ones.
  std::array<int, 4> order{0, 1, 2, 3};
  for (int i = 0; i < 4; ++i) {
    for (int j = i + 1; j < 4; ++j) {
      if (v.strides[order[j]] < v.strides[order[i]]) std::swap(order[i], order[j]);
    }
  }
  std::int64_t span = 1;
  for (const int i : order) {
    if (v.sizes[i] <= 1) continue;
    if (v.strides[i] < span) {
      refuse(t.name, v.strides[i] == 0 ? "stride 0 on an output" : "an output that overlaps itself",
             "sizes " + to_string(v.sizes) + " strides " + to_string(v.strides), "a different element for every index");
    }
    span += (v.sizes[i] - 1) * v.strides[i];
  }
}

void Validator::check_sizes(const Named& t, const Sizes& wanted) const {
  if (t.view.sizes != wanted)
    refuse(t.name, "sizes do not agree with the other tensors", to_string(t.view.sizes), to_string(wanted));
}

void Validator::check_dtype(const Named& t, DType wanted) const {
  if (t.view.dtype != wanted)
    refuse(t.name, "element type does not agree", std::string(name_of(t.view.dtype)), std::string(name_of(wanted)));
}

std::string device_text(Device device) {
  return std::string(name_of(device.kind)) + ":" + std::to_string(device.index);
}

void Validator::check_device(const Named& t, Device wanted) const {
  if (t.view.device != wanted)
    refuse(t.name, "tensors are on different devices", device_text(t.view.device), "q's device " + device_text(wanted));
}

// Whether two views may touch the same byte. Exact for tensors that interleave in one allocation, as packed q k v do:
// equal strides and offsets that keep them apart within the smallest row.
bool may_overlap(const TensorView& a, const TensorView& b) {
  const auto first_a = reinterpret_cast<std::uintptr_t>(a.data), first_b = reinterpret_cast<std::uintptr_t>(b.data);
  const auto end_a = first_a + static_cast<std::uintptr_t>(extent(a) * size_of(a.dtype));
  const auto end_b = first_b + static_cast<std::uintptr_t>(extent(b) * size_of(b.dtype));
  if (end_a <= first_b || end_b <= first_a) return false;
  if (size_of(a.dtype) != size_of(b.dtype)) return true;
  // Per dimension of a common stride, split the offset between the two into an index step; what remains must step over
  // the other's extent in the dimensions left.
  const bool b_later = first_b >= first_a;
  const TensorView& low = b_later ? a : b;
  const TensorView& high = b_later ? b : a;
  const auto offset = static_cast<std::int64_t>(b_later ? first_b - first_a : first_a - first_b) / size_of(a.dtype);
  for (int i = 0; i < 3; ++i) {
    const std::int64_t stride = low.strides[i];
    if (stride <= 0 || high.strides[i] != stride || low.sizes[i] <= 1 || high.sizes[i] <= 1) continue;
    std::int64_t inner_low = 1, inner_high = 1;
    bool nested = true;
    for (int j = 0; j < 4; ++j) {
      if (j == i) continue;
      if (low.sizes[j] > 1) (low.strides[j] < stride ? inner_low += (low.sizes[j] - 1) * low.strides[j] : inner_low);
      if (high.sizes[j] > 1)
        (high.strides[j] < stride ? inner_high += (high.sizes[j] - 1) * high.strides[j] : inner_high);
      nested = nested && (low.strides[j] < stride || low.strides[j] % stride == 0) &&
               (high.strides[j] < stride || high.strides[j] % stride == 0);
    }
    const std::int64_t within = offset % stride;
    if (nested && within >= inner_low && within + inner_high <= stride) return false;
  }
  return true;
}

void Validator::check_overlap(const std::vector<Named>& tensors) const {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (!tensors[i].is_output || element_count(tensors[i].view) == 0) continue;
    for (std::size_t j = 0; j < tensors.size(); ++j) {
      if (i == j || (tensors[j].is_output && j < i) || element_count(tensors[j].view) == 0) continue;
      if (may_overlap(tensors[i].view, tensors[j].view)) {
        refuse(tensors[i].name, "an output that shares memory with `" + std::string(tensors[j].name) + "`",
               "overlapping buffers", "memory of its own");
      }
    }
  }
}

void check_heads(const Validator& check, std::int64_t heads_q, std::int64_t heads_kv) {
  if (heads_q > 0 && heads_kv == 0)
    check.refuse("k", "no key heads for the query heads", "heads_q " + to_string(heads_q) + ", heads_kv 0",
                 "heads_kv of 1 or more");
  if (heads_kv > 0 && heads_q % heads_kv != 0) {
    check.refuse("k", "heads_q must be a multiple of heads_kv",
                 "heads_q " + to_string(heads_q) + ", heads_kv " + to_string(heads_kv), "heads_q % heads_kv == 0");
  }
}

void check_facts(Validator& check, const AttentionProblem& p) {
  check_heads(check, p.heads_q, p.heads_kv);
  for (const auto& [name, dim] : {std::pair{"q", p.dim_qk}, {"v", p.dim_v}}) {
    if (dim < 1 || dim > kMaxDim)
      check.refuse(name, "head dimension out of range", to_string(dim), "1 to " + to_string(kMaxDim));
  }
  if (name_of(p.mask) == "unknown") {
    check.refuse("mask", "unknown mask", std::to_string(static_cast<int>(p.mask)),
                 join({"none", "causal", "causal_top_left", "causal_bottom_right"}));
  }
  if (p.mask == Mask::causal && p.len_q != p.len_k) {
    check.refuse("mask", "`causal` does not say how unequal lengths are aligned",
                 "len_q " + to_string(p.len_q) + ", len_k " + to_string(p.len_k),
                 "len_q == len_k, or causal_top_left or causal_bottom_right",
                 "bottom_right lets the last query see every key");
  }
  if (!std::isfinite(p.scale))
    check.refuse("scale", "the scale must be finite", std::to_string(p.scale), "any finite number",
                 "leave it out for 1/sqrt(dim_qk)");
  if (p.accumulate && p.result_dtype != DType::fp32) {
    check.refuse("accumulate", "gradients accumulate in fp32 only", std::string(name_of(p.result_dtype)),
                 "fp32 dq, dk and dv");
  }
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
  if (options.threads < 0)
    check.refuse("threads", "negative thread count", std::to_string(options.threads),
                 "0 for the default, or 1 and more");
  if (options.lender != nullptr && (options.lender->run == nullptr || options.lender->threads < 1)) {
    check.refuse("lender", "a lender without threads or without a function",
                 std::to_string(options.lender->threads) + " threads", "1 or more threads and a run function");
  }
  for (const auto& [name, buffer] : {std::pair{"workspace", options.workspace}, {"saved", saved}}) {
    if (buffer.bytes < 0 || (buffer.data == nullptr && buffer.bytes != 0)) {
      check.refuse(name, "null or negative buffer",
                   to_string(buffer.bytes) + " bytes at " + (buffer.data ? "an address" : "null"),
                   "a buffer, or {} for none");
    }
    if (reinterpret_cast<std::uintptr_t>(buffer.data) % 64 != 0) {
      check.refuse(name, "buffer not aligned",
                   "address ending in " +
                       to_string(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(buffer.data) % 64)),
                   "a multiple of 64 bytes");
    }
  }
}

void check_all(const Validator& check, const std::vector<Named>& tensors) {
  for (const auto& t : tensors) check.check_tensor(t);
}

void check_results(const Validator& check, const std::vector<Named>& results, AttentionProblem& p) {
  for (const auto& t : results) {
    if (t.view.dtype != p.dtype && t.view.dtype != DType::fp32) {
      check.refuse(t.name, "element type of a result", std::string(name_of(t.view.dtype)),
                   p.dtype == DType::fp32 ? "fp32" : join({name_of(p.dtype), "fp32"}, " or "));
    }
    if (t.view.dtype != results.front().view.dtype) check.check_dtype(t, results.front().view.dtype);
    p.result_dtype = t.view.dtype;
  }
}

}  // namespace

AttentionProblem validate(const ForwardTensors& t, const AttentionOptions& options, std::string_view call) {
  Validator check(call);
  std::vector<Named> all{{"q", t.q, false}, {"k", t.k, false}, {"v", t.v, false}, {"out", t.out, true}};
  if (t.lse) all.push_back({"lse", t.lse, true});
  check_all(check, all);
  AttentionProblem p = facts_of(t.q, t.k, t.v, options);
  p.saved_state = t.saved.data != nullptr;
  check.line = line_of(p);
  check.check_sizes({"k", t.k, false}, {p.batch, p.heads_kv, p.len_k, p.dim_qk});
  check.check_sizes({"v", t.v, false}, {p.batch, p.heads_kv, p.len_k, p.dim_v});
  check_facts(check, p);
  check.check_sizes({"out", t.out, true}, {p.batch, p.heads_q, p.len_q, p.dim_v});
  check.check_dtype({"k", t.k, false}, p.dtype);
  check.check_dtype({"v", t.v, false}, p.dtype);
  check_results(check, {{"out", t.out, true}}, p);
  if (t.lse) {
    check.check_sizes({"lse", t.lse, true}, {p.batch, p.heads_q, p.len_q, 1});
    check.check_dtype({"lse", t.lse, true}, DType::fp32);
  }
  for (const auto& named : all) check.check_device(named, p.device);
  check_options(check, options, t.saved);
  check.check_overlap(all);
  validate(p, call);
  return p;
}

AttentionProblem validate(const BackwardTensors& t, const AttentionOptions& options, std::string_view call) {
  Validator check(call);
  std::vector<Named> all{
      {"q", t.q, false}, {"k", t.k, false}, {"v", t.v, false}, {"lse", t.lse, false}, {"dout", t.dout, false}};
  if (t.out || !t.delta) all.push_back({"out", t.out, false});
  if (t.delta) all.push_back({"delta", t.delta, false});
  std::vector<Named> gradients;
  if (t.dq) gradients.push_back({"dq", t.dq, true});
  if (t.dk) gradients.push_back({"dk", t.dk, true});
  if (t.dv) gradients.push_back({"dv", t.dv, true});
  if (gradients.empty()) {
    const bool empty = element_count(t.q) == 0 && element_count(t.k) == 0 && element_count(t.v) == 0;
    if (!empty) check.refuse("dq", "no gradient is asked for", "dq, dk and dv null", "at least one of them");
  }
  all.insert(all.end(), gradients.begin(), gradients.end());
  check_all(check, all);
  AttentionProblem p = facts_of(t.q, t.k, t.v, options);
  p.pass = Pass::backward;
  p.saved_state = t.saved.data != nullptr;
  p.accumulate = t.accumulate;
  p.wants_dq = bool(t.dq);
  p.wants_dk = bool(t.dk);
  p.wants_dv = bool(t.dv);
  p.result_dtype = p.dtype;
  check.line = line_of(p);
  const Sizes out{p.batch, p.heads_q, p.len_q, p.dim_v}, row{p.batch, p.heads_q, p.len_q, 1};
  check.check_sizes({"k", t.k, false}, {p.batch, p.heads_kv, p.len_k, p.dim_qk});
  check.check_sizes({"v", t.v, false}, {p.batch, p.heads_kv, p.len_k, p.dim_v});
  check_results(check, gradients, p);
  check_facts(check, p);
  for (const auto& named : all) {
    const bool is_row = named.name == "lse" || named.name == "delta", is_out = named.name == "out";
    if (is_row) check.check_sizes(named, row);
    if (is_out || named.name == "dout") check.check_sizes(named, out);
    if (is_row) check.check_dtype(named, DType::fp32);
    if (is_out && named.view.dtype != DType::fp32) check.check_dtype(named, p.dtype);
    if (!is_row && !is_out && !named.is_output) check.check_dtype(named, p.dtype);
    check.check_device(named, p.device);
  }
  if (t.dq) check.check_sizes({"dq", t.dq, true}, t.q.sizes);
  if (t.dk) check.check_sizes({"dk", t.dk, true}, t.k.sizes);
  if (t.dv) check.check_sizes({"dv", t.dv, true}, t.v.sizes);
  check_options(check, options, t.saved);
  check.check_overlap(all);
  validate(p, call);
  return p;
}

void validate(const AttentionProblem& p, std::string_view call) {
  Validator check(call);
  const auto fits = [](std::initializer_list<std::int64_t> sizes) {
    std::int64_t count = 1;
    for (const auto size : sizes) {
      if (!multiply(count, size > 0 ? size : 1, count) || count > kMaxElements) return false;
    }
    return true;
  };
  for (const auto& [name, size] : {std::pair{"batch", p.batch},
                                   {"heads_q", p.heads_q},
                                   {"heads_kv", p.heads_kv},
                                   {"len_q", p.len_q},
                                   {"len_k", p.len_k}}) {
    if (size < 0) check.refuse(name, "negative size", to_string(size), "0 or more");
  }
  if (!fits({p.batch, p.heads_q, p.len_q, p.dim_qk}) || !fits({p.batch, p.heads_q, p.len_q, p.dim_v}) ||
      !fits({p.batch, p.heads_kv, p.len_k, p.dim_qk}) || !fits({p.batch, p.heads_kv, p.len_k, p.dim_v}) ||
      !fits({p.batch, p.heads_q, p.len_q, p.len_k})) {
    check.refuse("problem", "the product of the sizes overflows", line_of(p),
                 "at most " + to_string(kMaxElements) + " elements and query-key pairs");
  }
  check.line = line_of(p);
  check_facts(check, p);
}

}  // namespace fovea::core
