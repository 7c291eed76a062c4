// Attention's members of Operation: tensors, cost, reference, implementations, plan and call.
#include "verification/attention/operation.h"

#include <algorithm>
#include <numeric>

#include "attention/implementation.h"
#include "attention/problem_line.h"
#include "attention/scale.h"
#include "core/float16.h"
#include "core/never_destroyed.h"
#include "fovea/attention.h"
#include "verification/attention/case.h"
#include "verification/attention/cases.h"
#include "verification/attention/check.h"
#include "verification/attention/families.h"
#include "verification/attention/foreign_call.h"
#include "verification/attention/support_matrix.h"

namespace fovea::verification {
namespace {

std::function<ReferenceEvaluator(DeviceKind)>& evaluator_source() {
  static std::function<ReferenceEvaluator(DeviceKind)> source;
  return source;
}

ReferenceEvaluator evaluator_on(DeviceKind device) {
  return evaluator_source() == nullptr ? ReferenceEvaluator{} : evaluator_source()(device);
}

// Whether describe() finds the case's inputs unaligned: HostTensor places strided ones between whole elements only, and
// broadcasts over the batch or the heads. Rows whose sizes are no multiples of 16 bytes follow one another without gap.
bool is_unaligned(const Case& c, const AttentionProblem& p) {
  if (p.device.kind != DeviceKind::cuda || p.dtype == DType::fp32) return false;
  if (c.place() == "strided" || (p.dim_qk | p.dim_v) % 8 != 0) return true;
  return c.place() == "broadcast" && (c.seed() % 2 == 0 ? p.batch : p.heads_q) > 1;
}

// The problem of one pass of a case, with the case's variation applied.
AttentionProblem problem_of(const Case& c, Pass pass) {
  AttentionProblem p = core::attention_problem(c.values);
  p.pass = pass;
  if (c.varies("fp32_results")) p.result_dtype = DType::fp32;
  p.unaligned = is_unaligned(c, p);
  if (pass == Pass::forward) return p;
  p.accumulate = c.varies("accumulate");
  p.saved_state = c.varies("own_state");
  p.wants_dq = !c.varies("no_dq");
  p.wants_dk = !c.varies("no_dk");
  p.wants_dv = !c.varies("no_dv");
  return p;
}

Sizes strides_of(const Sizes& s, bool heads_inside) {
  return heads_inside ? Sizes{s[2] * s[1] * s[3], s[3], s[1] * s[3], 1} : dense_strides(s);
}

ForwardTensors forward_tensors(const TensorSet& set) {
  return {.q = set["q"], .k = set["k"], .v = set["v"], .out = set["out"], .lse = set["lse"]};
}

BackwardTensors backward_tensors(const Case& c, const TensorSet& set) {
  BackwardTensors t{.q = set["q"], .k = set["k"], .v = set["v"], .out = set["out"], .lse = set["lse"]};
  t.dout = set["dout"];
  t.delta = set["delta"];
  if (t.delta) t.out = {};
  t.dq = set["dq"], t.dk = set["dk"], t.dv = set["dv"];
  t.accumulate = c.varies("accumulate");
  return t;
}

float* element(const MutableTensorView& view, const RowIndex& row) {
  return static_cast<float*>(view.data) + row.batch * view.strides[0] + row.head * view.strides[1] +
         row.index * view.strides[2];
}

// Writes delta = rowsum(dout * out).
void write_delta(const AttentionProblem& p, const TensorSet& tensors) {
  const std::vector<RowIndex> rows = every_query(p);
  const RowValues out = read_rows(tensors["out"], rows), dout = read_rows(tensors["dout"], rows);
  const auto columns = static_cast<std::size_t>(out.columns);
  for (std::size_t n = 0; n < rows.size(); ++n) {
    double sum = 0;
    for (std::size_t at = n * columns; at < (n + 1) * columns; ++at) sum += out.values[at] * dout.values[at];
    *element(tensors["delta"], rows[n]) = static_cast<float>(sum);
  }
}

void write_rows(const RowValues& rows, const MutableTensorView& view) {
  for (std::size_t n = 0; n < rows.rows.size(); ++n) {
    const auto& [b, h, i] = rows.rows[n];
    const std::int64_t at = b * view.strides[0] + h * view.strides[1] + i * view.strides[2];
    for (std::int64_t c = 0; c < rows.columns; ++c)
      core::store_from_float(view.data, view.dtype, at + c,
                             static_cast<float>(rows.values[n * static_cast<std::size_t>(rows.columns) + c]));
  }
}

const attention::Implementation& implementation_of(const ImplementationFacts& facts) {
  const auto& all = attention::implementations();
  return *std::find_if(all.begin(), all.end(), [&facts](const attention::Implementation& one) {
    return one.name == facts.name && one.device == facts.device;
  });
}

class Attention final : public Operation {
 public:
  Attention() : Operation(core::attention_keys(), attention_families()) {}

  std::vector<TensorSpec> tensors(const Case& c) const override;
  Cost cost(const Case& c) const override;
  void run_reference(const Case& c, const TensorSet& tensors) const override;
  Expectation expect(const Case& c, Pass pass, const TensorSet& given) const override;
  std::vector<ImplementationFacts> implementations() const override;
  CasePlan plan(const Case& c, std::string_view implementation) const override;
  Call prepare(const Case& c, const TensorSet& tensors, const CallSettings& settings) const override;
  Call prepare_foreign(const Case& c, const TensorSet& tensors, const CallSettings& settings) const override {
    return attention_foreign_call(attention_case(c), forward_tensors(tensors), backward_tensors(c, tensors), settings);
  }
  Case random_case(std::uint64_t seed, std::uint64_t n, const CaseLimits& limits) const override {
    return case_of(verification::random_case(seed, n, limits));
  }
  std::vector<std::string> variation_of(const Case& c) const override {
    return words_of(verification::variation_of(attention_case(c)));
  }
  std::vector<Axis> axes() const override { return case_axes(); }
  AxisCell cell_of(const Case& c, Pass pass) const override {
    const Cell cell = verification::cell_of(attention_case(c), pass);
    return {cell.dtype, cell.pass, cell.mask, cell.layout, cell.dim_class};
  }
  CellSupport support_of(const ImplementationFacts& implementation, const AxisCell& at) const override {
    return verification::support_of(implementation_of(implementation), {at[0], at[1], at[2], at[3], at[4]});
  }
  std::vector<PlanKind> plan_kinds(const ImplementationFacts& implementation) const override;
  std::vector<PlanKind> plan_kinds(const ImplementationFacts& implementation, const Case& c) const override;
  bool is_beyond_cells(const Case& c) const override {
    return !attention::scale_refusal(problem_of(c, Pass::forward).scale).empty();
  }
  std::string support_page() const override { return support_matrix_markdown(); }
};

std::vector<TensorSpec> Attention::tensors(const Case& c) const {
  const AttentionProblem p = problem_of(c, Pass::forward);
  const bool heads_inside = c["layout"] == "blhd";
  const Sizes q{p.batch, p.heads_q, p.len_q, p.dim_qk}, k{p.batch, p.heads_kv, p.len_k, p.dim_qk},
      v{p.batch, p.heads_kv, p.len_k, p.dim_v}, out{p.batch, p.heads_q, p.len_q, p.dim_v},
      row{p.batch, p.heads_q, p.len_q, 1};
  // Callers usually store lse and delta by heads; verification also tries the layout's own order.
  const Sizes row_strides = strides_of(row, heads_inside && c.place() != "contiguous");
  std::vector<TensorSpec> tensors;
  const auto add = [&](const char* name, Role role, DType dtype, const Sizes& sizes) {
    if (!c.varies(std::string("no_") + name))
      tensors.push_back({name, role, dtype, sizes, strides_of(sizes, heads_inside)});
  };
  const auto add_row = [&](const char* name, Role role) {
    tensors.push_back({name, role, DType::fp32, row, row_strides, true});
  };
  add("q", Role::input, p.dtype, q);
  add("k", Role::input, p.dtype, k);
  add("v", Role::input, p.dtype, v);
  add("out", Role::output, p.result_dtype, out);
  if (c.backwards() || !c.varies("no_lse")) add_row("lse", Role::output);
  if (!c.backwards()) return tensors;
  if (c.varies("outside_delta")) add_row("delta", Role::saved);
  add("dout", Role::input, p.dtype, out);
  add("dq", Role::gradient, p.result_dtype, q);
  add("dk", Role::gradient, p.result_dtype, k);
  add("dv", Role::gradient, p.result_dtype, v);
  return tensors;
}

Cost Attention::cost(const Case& c) const {
  const AttentionProblem p = core::attention_problem(c.values);
  Cost cost;
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    if (pass == Pass::forward ? !c.forwards() : !c.backwards()) continue;
    const AttentionProblem one = problem_of(c, pass);
    cost.flops += flops(one);
    cost.bytes += bytes(one);
  }
  cost.scratch_bytes = 3.0 * 4.0 * static_cast<double>(p.batch * p.heads_q) * static_cast<double>(p.len_q * p.len_k);
  return cost;
}

// Computes every row, so large problems use the device's evaluator, which is faster than the CPU.
void Attention::run_reference(const Case& c, const TensorSet& tensors) const {
  const AttentionProblem p = problem_of(c, Pass::forward);
  const ForwardTensors t = forward_tensors(tensors);
  const ReferenceEvaluator evaluator = evaluator_on(c.device());
  if (evaluator.forward && !sample_of(p, 0).complete) {
    const ForwardValues values = evaluator.forward(p, t, {.queries = every_query(p), .keys = {}, .complete = false});
    write_rows(values.out, t.out);
    if (t.lse) write_rows(values.lse, t.lse);
  } else {
    attention_forward(t, {.mask = p.mask, .scale = p.scale, .implementation = "reference"});
  }
  if (tensors["delta"]) write_delta(p, tensors);
}

Expectation Attention::expect(const Case& c, Pass pass, const TensorSet& given) const {
  const AttentionProblem p = problem_of(c, pass);
  const ReferenceEvaluator evaluator = evaluator_on(c.device());
  if (pass == Pass::forward) return expect_forward(p, forward_tensors(given), c.seed(), evaluator);
  Gradients before;
  if (p.accumulate) before = {given["dq"], given["dk"], given["dv"]};
  return expect_backward(p, backward_tensors(c, given), c.seed(), before, evaluator);
}

std::vector<ImplementationFacts> Attention::implementations() const {
  std::vector<ImplementationFacts> facts;
  for (const attention::Implementation& one : attention::implementations())
    facts.push_back({std::string(one.name), one.device, one.automatic, one.reproducible, one.obstacle()});
  return facts;
}

// Plans the case as a bench runs it: reproducible if the implementation is, backward from forward's saved state. Both
// passes run one implementation. If the one that the library chooses for forward has no backward, that is backward's.
CasePlan Attention::plan(const Case& c, std::string_view implementation) const {
  const bool reproducible = attention::promises_reproducibility(implementation);
  const auto explained = [&](Pass pass, bool saved, std::string_view name) {
    AttentionProblem p = problem_of(c, pass);
    p.reproducible = reproducible;
    p.saved_state = saved;
    return explain(p, name);
  };
  CasePlan plan;
  bool saves = false;
  const auto take = [&](const Explanation& one) {
    plan.walk.clear();
    for (const auto& step : one.walk)
      plan.walk.push_back({step.name, step.accepted, step.reason, step.predicted_seconds});
    plan.implementation = one.chosen;
    plan.workspace_bytes = std::max(plan.workspace_bytes, one.workspace_bytes);
    return !one.chosen.empty();
  };
  const Pass first = c.forwards() ? Pass::forward : Pass::backward;
  const Explanation chosen = explained(first, false, implementation);
  if (!take(chosen)) return plan;
  const std::vector<CasePlan::Step> walk = plan.walk;
  std::string name = plan.implementation;
  if (c.backwards() && name != implementation && explained(Pass::backward, false, name).chosen.empty())
    name = explained(Pass::backward, false, implementation).chosen;
  if (c.backwards() && !c.varies("stateless")) {
    plan.saved_bytes = explained(Pass::forward, false, name).saved_bytes;
    saves = plan.saved_bytes > 0;
  }
  plan.workspace_bytes = 0;
  std::vector<double> seconds;
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    if (pass == Pass::forward ? !c.forwards() : !c.backwards()) continue;
    const Explanation one = explained(pass, saves, name);
    if (!take(one)) return plan;
    (pass == Pass::forward ? plan.forward_tiles : plan.backward_tiles) = one.tiles;
    seconds.push_back(one.predicted_seconds);
    if (pass == Pass::forward && saves) plan.saved_bytes = one.saved_bytes;
  }
  const bool known = std::all_of(seconds.begin(), seconds.end(), [](double one) { return one > 0; });
  if (known) plan.seconds = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  plan.walk = walk;
  return plan;
}

std::vector<PlanKind> Attention::plan_kinds(const ImplementationFacts& facts) const {
  const attention::Implementation& implementation = implementation_of(facts);
  std::vector<PlanKind> kinds;
  const auto& [forward, backward] = implementation.plan_kinds;
  for (const std::string_view one : forward) kinds.push_back({Pass::forward, std::string(one)});
  for (const std::string_view one : backward) kinds.push_back({Pass::backward, std::string(one)});
  return kinds;
}

std::vector<PlanKind> Attention::plan_kinds(const ImplementationFacts& facts, const Case& c) const {
  const attention::Implementation& implementation = implementation_of(facts);
  std::vector<PlanKind> kinds;
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    if (pass == Pass::forward ? !c.forwards() : !c.backwards()) continue;
    const core::Prepared prepared = implementation.prepared(problem_of(c, pass));
    if (prepared.plan == nullptr) continue;
    for (const std::string_view one : prepared.plan->kinds) kinds.push_back({pass, std::string(one)});
  }
  return kinds;
}

Call Attention::prepare(const Case& c, const TensorSet& tensors, const CallSettings& settings) const {
  struct Prepared {
    std::string implementation;
    ForwardTensors forward;
    BackwardTensors backward;
    AttentionOptions options;
  };
  const auto call = std::make_shared<Prepared>();
  const AttentionProblem p = problem_of(c, Pass::forward);
  call->implementation = settings.implementation;
  call->forward = forward_tensors(tensors);
  call->backward = backward_tensors(c, tensors);
  call->forward.saved = call->backward.saved = settings.saved;
  call->options = {.mask = p.mask,
                   .scale = p.scale,
                   .implementation = call->implementation,
                   .threads = settings.threads,
                   .stream = settings.stream,
                   .workspace = settings.workspace,
                   .reproducible = attention::promises_reproducibility(call->implementation)};
  return {.forward = [call] { attention_forward(call->forward, call->options); },
          .backward = [call] { attention_backward(call->backward, call->options); }};
}

}  // namespace

const Operation& attention_operation() {
  static const auto& operation = core::never_destroyed<Attention>();
  return operation;
}

void evaluate_attention_by(std::function<ReferenceEvaluator(DeviceKind)> evaluator_on) {
  evaluator_source() = std::move(evaluator_on);
}

}  // namespace fovea::verification
