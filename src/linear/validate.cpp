// Order: single tensors, agreement between tensors, options, then outputs against inputs.
#include "linear/validate.h"

#include <algorithm>
#include <span>
#include <string>

#include "core/check.h"
#include "core/names.h"
#include "core/tensor_list.h"
#include "linear/matrix_view.h"
#include "linear/problem_line.h"

namespace fovea::linear {
namespace {

using core::TensorArg;
using core::to_string;

// Whether a problem line can say it: sizes that can be written, a type that has a name.
std::string line_if_any(const LinearProblem& p) {
  const bool said = std::min({p.batch, p.len, p.heads_in, p.dim_in, p.heads_out, p.dim_out}) >= 0 && sizes_fit(p) &&
                    core::is_known(p.dtype) && core::is_known(p.device.kind);
  return said ? line_of(p) : "";
}

class Checks : public core::TensorList<6> {
 public:
  using TensorList::TensorList;

  // Inputs have the type of the problem, results that or fp32.
  void check_types(DType dtype) {
    for (const TensorArg& one : tensors()) {
      if (!one.is_output) check_dtype(one, dtype);
      if (one.is_output && one.view.dtype != dtype && one.view.dtype != DType::fp32)
        refuse(one.name, "element type of a result", std::string(core::name_of(one.view.dtype)),
               dtype == DType::fp32 ? "fp32" : core::join({core::name_of(dtype), "fp32"}, " or "),
               "results are stored in the type of the inputs or in fp32");
    }
  }

  void check_rest(const LinearProblem& p, const LinearOptions& options) {
    TensorList::check_rest(p.device, options.threads, options.thread_pool, options.workspace);
    check_buffers(tensors(), {"workspace", options.workspace, true}, {"saved", {}, false});
  }
};

void check_accumulate(const Checks& check, std::string_view argument, bool accumulate, DType dtype) {
  if (accumulate && dtype != DType::fp32)
    check.refuse(argument, "gradients accumulate in fp32 only", std::string(core::name_of(dtype)), "fp32",
                 "give an fp32 gradient, which 16-bit inputs may have, or add it yourself");
}

void check_facts(const Checks& check, const LinearProblem& p) {
  check.check_element_types(p.dtype, p.result_dtype, p.parameter_dtype);
  check.check_known_device(p.device);
  if (p.pass == Pass::backward) {
    check_accumulate(check, "accumulate_dx", p.wants_dx && p.accumulate_dx, p.result_dtype);
    check_accumulate(check, "accumulate", (p.wants_dweight || p.wants_dbias) && p.accumulate, p.parameter_dtype);
  }
  if (!sizes_fit(p))
    check.refuse(
        "problem", "the product of the sizes overflows",
        "x " + to_string(Sizes{p.batch, p.heads_in, p.len, p.dim_in}) + ", y " +
            to_string(Sizes{p.batch, p.heads_out, p.len, p.dim_out}),
        "at most " + to_string(core::kMaxElements) + " elements and " + to_string(kMaxMultiplyAdds) + " multiply-adds",
        "sizes count elements, not bytes");
}

bool empty(const TensorView& t) { return core::element_count(t) == 0; }

}  // namespace

// Products take rows of any stride, but no overlapping rows, and only contiguous columns where they sum over them.
bool copies_x(const TensorView& x, Pass pass) {
  const MatrixView view(x);
  return !empty(x) && !((pass == Pass::forward ? view.columns_fold : view.rows_fold) && view.rows_do_not_overlap());
}

bool copies_dy(const LinearProblem& p, const TensorView& dy) {
  const MatrixView view(dy);
  const bool folds = (view.columns_fold || !p.wants_dx) && (view.rows_fold || !(p.wants_dweight || p.wants_dbias));
  return !empty(dy) && !(folds && view.rows_do_not_overlap());
}

void check_weight(const core::Validator& check, const TensorArg& weight, std::int64_t columns_out,
                  std::int64_t columns_in) {
  check.check_sizes(weight, {1, 1, columns_out, columns_in});
  if (columns_out > 1 && weight.has_elements() && weight.view.strides[2] < columns_in)
    check.refuse(weight.name, "rows that overlap", "strides " + to_string(weight.view.strides),
                 "strides[2] of " + to_string(columns_in) + " or more",
                 "copy the weight so that its rows do not overlap");
}

bool sizes_fit(const LinearProblem& p) {
  return core::product_within({p.batch, p.len, p.heads_in, p.dim_in}, core::kMaxElements) &&
         core::product_within({p.batch, p.len, p.heads_out, p.dim_out}, core::kMaxElements) &&
         core::product_within({p.heads_out, p.dim_out, p.heads_in, p.dim_in}, core::kMaxElements) &&
         core::product_within({p.batch, p.len, p.heads_in, p.dim_in, p.heads_out, p.dim_out}, kMaxMultiplyAdds);
}

LinearProblem validate(const LinearForwardTensors& t, const LinearOptions& options, std::string_view call) {
  Checks check(call);
  const TensorArg &x = check.add("x", t.x), &weight = check.add("weight", t.weight);
  const TensorArg* const bias = check.add_if_given("bias", t.bias);
  const TensorArg& y = check.add("y", t.y, true);
  check.check_each();
  LinearProblem p;
  check.line = [&p] { return line_if_any(p); };
  const Sizes &in = x.view.sizes, &out = y.view.sizes;
  p.batch = in[0], p.len = in[2], p.heads_in = in[1], p.dim_in = in[3], p.heads_out = out[1], p.dim_out = out[3];
  p.dtype = x.view.dtype;
  p.result_dtype = p.parameter_dtype = y.view.dtype;
  p.device = x.view.device;
  p.bias = bias != nullptr;
  check.check_sizes(y, {p.batch, p.heads_out, p.len, p.dim_out});
  check_weight(check, weight, p.columns_out(), p.columns_in());
  if (bias != nullptr) check.check_sizes(*bias, {1, 1, 1, p.columns_out()});
  check.check_types(p.dtype);
  p.copies_x = copies_x(x.view, Pass::forward);
  check_facts(check, p);
  check.check_rest(p, options);
  return p;
}

LinearProblem validate(const LinearBackwardTensors& t, const LinearOptions& options, std::string_view call) {
  Checks check(call);
  LinearProblem p{.pass = Pass::backward,
                  .heads_in = 1,
                  .dim_in = 0,
                  .wants_dx = bool(t.dx),
                  .wants_dweight = bool(t.dweight),
                  .wants_dbias = bool(t.dbias),
                  .accumulate = t.accumulate,
                  .accumulate_dx = t.accumulate_dx};
  const TensorArg& dy = check.add("dy", t.dy);
  const TensorArg* const x = p.wants_dweight ? &check.add("x", t.x) : check.add_if_given("x", t.x);
  const TensorArg* const weight = p.wants_dx ? &check.add("weight", t.weight) : check.add_if_given("weight", t.weight);
  const TensorArg* const dx = check.add_if_given("dx", t.dx, true);
  const TensorArg* const dweight = check.add_if_given("dweight", t.dweight, true);
  const TensorArg* const dbias = check.add_if_given("dbias", t.dbias, true);
  check.check_each();
  if (dx == nullptr && dweight == nullptr && dbias == nullptr && dy.has_elements())
    check.refuse("dx", "no gradient is asked for", "dx, dweight and dbias null", "at least one of them",
                 "give memory for the gradients that are wanted");
  const Sizes& out = dy.view.sizes;
  p.batch = out[0], p.len = out[2], p.heads_out = out[1], p.dim_out = out[3];
  if (const TensorArg* const inner = x != nullptr ? x : dx; inner != nullptr)
    p.heads_in = inner->view.sizes[1], p.dim_in = inner->view.sizes[3];
  else if (weight != nullptr)
    p.dim_in = weight->view.sizes[3];
  p.dtype = dy.view.dtype;
  check.line = [&p] { return line_if_any(p); };
  p.result_dtype = dx != nullptr ? dx->view.dtype : p.dtype;
  p.parameter_dtype = dweight != nullptr ? dweight->view.dtype : dbias != nullptr ? dbias->view.dtype : p.dtype;
  p.device = dy.view.device;
  for (const TensorArg* const one : {x, dx})
    if (one != nullptr) check.check_sizes(*one, {p.batch, p.heads_in, p.len, p.dim_in});
  if (weight != nullptr) check_weight(check, *weight, p.columns_out(), p.columns_in());
  if (dweight != nullptr) check.check_sizes(*dweight, {1, 1, p.columns_out(), p.columns_in()});
  if (dbias != nullptr) check.check_sizes(*dbias, {1, 1, 1, p.columns_out()});
  check.check_types(p.dtype);
  if (dbias != nullptr) check.check_dtype(*dbias, p.parameter_dtype);
  if (p.wants_dweight) p.copies_x = copies_x(x->view, Pass::backward);
  p.copies_dy = copies_dy(p, dy.view);
  check_facts(check, p);
  check.check_rest(p, options);
  return p;
}

void validate(const LinearProblem& p, std::string_view call) {
  Checks check(call);
  check.line = [&p] { return line_if_any(p); };
  for (const auto& [name, size] : {std::pair{"batch", p.batch},
                                   {"len", p.len},
                                   {"heads_in", p.heads_in},
                                   {"dim_in", p.dim_in},
                                   {"heads_out", p.heads_out},
                                   {"dim_out", p.dim_out}}) {
    if (size < 0) check.refuse(name, "negative size", to_string(size), "0 or more", "sizes count elements");
  }
  check_facts(check, p);
}

}  // namespace fovea::linear
