// Linear's members of Operation: tensors, cost, reference, implementations, plan and call.
#include "verification/linear/operation.h"

#include <algorithm>

#include "core/never_destroyed.h"
#include "core/random.h"
#include "fovea/linear.h"
#include "linear/implementation.h"
#include "linear/problem_line.h"
#include "verification/linear/check.h"

namespace fovea::verification {
namespace {

LinearProblem problem_of(const Case& c, Pass pass) {
  LinearProblem p = linear::problem_of(c.with("pass", std::string(pass == Pass::forward ? "fwd" : "bwd")).values);
  if (c.varies("fp32_results")) p.result_dtype = p.parameter_dtype = DType::fp32;
  const bool dense = c.place() != "strided" && c.place() != "broadcast";
  p.copies_x = !dense;
  if (pass == Pass::forward) return p;
  p.wants_dx = !c.varies("no_dx");
  p.wants_dweight = !c.varies("no_dweight");
  p.wants_dbias = p.bias && !c.varies("no_dbias");
  p.copies_dy = !dense || (c["layout"] == "bhld" && p.heads_out > 1);
  return p;
}

LinearForwardTensors forward_tensors(const TensorSet& set) {
  return {.x = set["x"], .weight = set["weight"], .bias = set["bias"], .y = set["y"]};
}

LinearBackwardTensors backward_tensors(const Case& c, const TensorSet& set) {
  LinearBackwardTensors t{.x = set["x"], .weight = set["weight"], .dy = set["dy"]};
  t.dx = set["dx"], t.dweight = set["dweight"], t.dbias = set["dbias"];
  t.accumulate = t.accumulate_dx = c["accumulate"] == "yes";
  return t;
}

class Linear final : public Operation {
 public:
  Linear() : Operation(linear::linear_keys()) {}

  std::vector<TensorSpec> tensors(const Case& c) const override;
  Cost cost(const Case& c) const override;
  void run_reference(const Case&, const TensorSet&) const override {}  // backward reads nothing that forward writes
  Expectation expect(const Case& c, Pass pass, const TensorSet& given) const override;
  std::vector<ImplementationFacts> implementations() const override;
  CasePlan plan(const Case& c, std::string_view implementation) const override;
  Call prepare(const Case& c, const TensorSet& tensors, const CallSettings& settings) const override;
  std::vector<std::string> variation_of(const Case& c) const override;
  bool accumulates(const Case& c) const override { return c["accumulate"] == "yes"; }
  CellSupport support_of(const ImplementationFacts& implementation, const AxisCell& at) const override;
  std::string support_page() const override;
};

std::vector<TensorSpec> Linear::tensors(const Case& c) const {
  const LinearProblem p = problem_of(c, Pass::forward);
  const std::int64_t n = p.columns_out();
  const Sizes x{p.batch, 1, p.len, p.dim_in}, y{p.batch, p.heads_out, p.len, p.dim_out}, weight{1, 1, n, p.dim_in},
      bias{1, 1, 1, n};
  const Sizes rows{p.len * n, p.dim_out, n, 1};
  const Sizes y_strides = c["layout"] == "bhld" ? dense_strides(y) : rows;
  std::vector<TensorSpec> tensors;
  const auto add = [&](const char* name, Role role, DType dtype, const Sizes& sizes, const Sizes& strides) {
    if (!c.varies(std::string("no_") + name)) tensors.push_back({name, role, dtype, sizes, strides});
  };
  add("x", Role::input, p.dtype, x, dense_strides(x));
  add("weight", Role::parameter, p.dtype, weight, dense_strides(weight));
  if (p.bias) add("bias", Role::parameter, p.dtype, bias, dense_strides(bias));
  if (c.forwards()) add("y", Role::output, p.result_dtype, y, y_strides);
  if (!c.backwards()) return tensors;
  add("dy", Role::input, p.dtype, y, y_strides);
  const DType gradient = problem_of(c, Pass::backward).result_dtype;
  add("dx", Role::gradient, gradient, x, dense_strides(x));
  add("dweight", Role::gradient, gradient, weight, dense_strides(weight));
  if (p.bias) add("dbias", Role::gradient, gradient, bias, dense_strides(bias));
  return tensors;
}

Cost Linear::cost(const Case& c) const {
  Cost cost;
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    if (pass == Pass::forward ? !c.forwards() : !c.backwards()) continue;
    const LinearProblem p = problem_of(c, pass);
    cost.flops += flops(p);
    cost.bytes += bytes(p);
  }
  return cost;
}

Expectation Linear::expect(const Case& c, Pass pass, const TensorSet& given) const {
  const bool non_finite = c.data() == "nonfinite";
  // Of results that are overwritten only type and sizes matter; null would mean that they are not wanted.
  static std::byte unread;
  TensorSet all = given;
  for (const TensorSpec& one : tensors(c)) {
    if (!is_read(one.role) && given.find(one.name) == nullptr)
      all.add(one.name, {.data = &unread, .dtype = one.dtype, .sizes = one.sizes, .strides = one.strides});
  }
  if (pass == Pass::forward) return expect_linear_forward(forward_tensors(all), c.seed(), c.device(), non_finite);
  return expect_linear_backward(backward_tensors(c, all), accumulates(c) ? given : TensorSet{}, c.seed(), c.device(),
                                non_finite);
}

std::vector<ImplementationFacts> Linear::implementations() const {
  std::vector<ImplementationFacts> facts;
  for (const linear::Implementation& one : linear::Types::list())
    facts.push_back({std::string(one.name), one.device, one.automatic, one.reproducible, one.obstacle()});
  return facts;
}

CasePlan Linear::plan(const Case& c, std::string_view implementation) const {
  CasePlan plan;
  for (const Pass pass : {Pass::forward, Pass::backward}) {
    if (pass == Pass::forward ? !c.forwards() : !c.backwards()) continue;
    const Explanation one =
        explain(problem_of(c, pass), plan.implementation.empty() ? implementation : plan.implementation);
    plan.walk.clear();
    for (const auto& step : one.walk) plan.walk.push_back({step.name, step.accepted, step.reason});
    plan.implementation = one.chosen;
    (pass == Pass::forward ? plan.forward_tiles : plan.backward_tiles) = one.tiles;
    plan.workspace_bytes = std::max(plan.workspace_bytes, one.workspace_bytes);
    if (one.chosen.empty()) return plan;
  }
  return plan;
}

Call Linear::prepare(const Case& c, const TensorSet& tensors, const CallSettings& settings) const {
  struct Prepared {
    std::string implementation;
    LinearForwardTensors forward;
    LinearBackwardTensors backward;
    LinearOptions options;
  };
  const auto call = std::make_shared<Prepared>();
  call->implementation = settings.implementation;
  call->forward = forward_tensors(tensors);
  call->backward = backward_tensors(c, tensors);
  call->options = {.implementation = call->implementation,
                   .threads = settings.threads,
                   .stream = settings.stream,
                   .workspace = settings.workspace};
  Call ready{.forward = [] {}, .backward = [] {}};  // backward needs nothing of a forward
  if (c.forwards()) ready.forward = [call] { linear_forward(call->forward, call->options); };
  if (c.backwards()) ready.backward = [call] { linear_backward(call->backward, call->options); };
  return ready;
}

// Besides gradients that are left out: fp32 results.
std::vector<std::string> Linear::variation_of(const Case& c) const {
  std::vector<std::string> words = Operation::variation_of(c);
  if (c.dtype() != DType::fp32 && core::philox(c.seed(), 0xADD, 0)[0] % 3 == 0) words.push_back("fp32_results");
  return words;
}

CellSupport Linear::support_of(const ImplementationFacts& implementation, const AxisCell& at) const {
  // Sizes that every library's call takes: oneDNN's bf16 sums are of a multiple of 32 products.
  LinearProblem p{
      .pass = static_cast<Pass>(at[0]), .len = 64, .dim_in = 64, .dim_out = 64, .dtype = static_cast<DType>(at[1])};
  p.result_dtype = p.parameter_dtype = p.dtype;
  p.device.kind = implementation.device;
  const Explanation told = explain(p, implementation.name);
  // Library calls that are measured against multiply and do nothing else.
  if (!told.chosen.empty()) return {implementation.reproducible ? Support::yes : Support::partly, ""};
  return {Support::no, told.walk.empty() ? "" : told.walk.front().reason};
}

// The same on every machine, as attention's page: oneDNN's bf16 product, which needs AVX-512, counts as taken.
std::string Linear::support_page() const {
  std::string page =
      "\n# What each implementation of linear takes\n\n"
      "\"yes\" includes both passes, bias, accumulation, every size and fp32 results. Implementations on GPUs are not\n"
      "listed. `cpu.onednn` takes bf16 only on processors with AVX-512 BF16. In fp32 `cpu.own` runs from 32 rows on. "
      "For\n"
      "fewer rows `cpu.onednn` runs where there is AVX-512, `cpu.openblas` elsewhere; the others run only when "
      "named.\n\n"
      "| implementation |";
  const std::vector<std::string> types = axes().at(1).classes;
  for (const std::string& type : types) page += " " + type + " |";
  page += " bitwise equal for any number of threads |\n|---|";
  for (std::size_t n = 0; n <= types.size(); ++n) page += "---|";
  page += "\n";
  for (const ImplementationFacts& one : implementations()) {
    if (one.device != DeviceKind::cpu || !one.reproducible) continue;  // library calls to measure against are no offer
    page += "| `" + one.name + "` |";
    for (std::size_t type = 0; type < types.size(); ++type) {
      const auto taken = [&](std::size_t pass) { return support_of(one, {pass, type}).support == Support::yes; };
      const bool anywhere = one.name == "cpu.onednn" && types[type] == "bf16";
      page += anywhere || (taken(0) && taken(1)) ? " yes |" : taken(0) || taken(1) ? " partly |" : " no |";
    }
    page += one.reproducible ? " yes |\n" : " no |\n";
  }
  return page;
}

}  // namespace

const Operation& linear_operation() {
  static const auto& operation = core::never_destroyed<Linear>();
  return operation;
}

}  // namespace fovea::verification
