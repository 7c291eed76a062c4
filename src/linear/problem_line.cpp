// Linear's keys: sizes, type, bias, memory order; and which combinations are no problem.
#include "linear/problem_line.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/names.h"
#include "core/never_destroyed.h"
#include "linear/validate.h"

namespace fovea::linear {
namespace {

using core::KeyKind;

bool has_gradients(const core::LineValues& values) { return values["pass"] != "fwd"; }

std::optional<core::LineFault> fault_of(const core::LineValues& values) {
  const std::int64_t n = values.count("n"), heads = values.count("h");
  if (heads < 1 || n % heads != 0)
    return core::LineFault{{"h", "n"},
                           "n must be a multiple of h",
                           "n=" + std::to_string(n) + " h=" + std::to_string(heads),
                           "n % h == 0, h of 1 or more",
                           "leave h out for one head"};
  if (sizes_fit(problem_of(values))) return std::nullopt;
  return core::LineFault{{"m", "n", "k"},
                         "the product of the sizes overflows",
                         core::line_of(values),
                         "at most " + core::to_string(kMaxMultiplyAdds) + " multiply-adds",
                         ""};
}

}  // namespace

const core::KeyTable& linear_keys() {
  static const auto& table = core::never_destroyed<core::KeyTable>(
      core::KeyTable{"linear",
                     {core::pass_key(),
                      core::Key{"b", KeyKind::count, "batch"}.printed({.noun = "batch"}),
                      {"m", KeyKind::count, "rows of a batch element"},
                      {"k", KeyKind::count, "columns of x"},
                      {"n", KeyKind::count, "columns of y", {}, "k"},
                      {"h", KeyKind::count, "heads that the columns of y are split into, a divisor of n"},
                      core::dtype_key(),
                      {"bias", KeyKind::word, "add a bias, and compute its gradient", {"no", "yes"}, "no"},
                      {"accumulate",
                       KeyKind::word,
                       "add gradients, which are then fp32, to what is there",
                       {"no", "yes"},
                       "no",
                       nullptr,
                       has_gradients},
                      {"layout", KeyKind::word, "order of the dimensions of y in memory", {"blhd", "bhld"}, "blhd"},
                      core::device_key()},
                     fault_of});
  return table;
}

LinearProblem problem_of(const core::LineValues& values) {
  LinearProblem p{.pass = values["pass"] == "bwd" ? Pass::backward : Pass::forward,
                  .batch = values.count("b"),
                  .len = values.count("m"),
                  .dim_in = values.count("k"),
                  .heads_out = values.count("h"),
                  .dim_out = values.count("n") / std::max<std::int64_t>(1, values.count("h")),
                  .dtype = *core::dtype_of(values["dtype"]),
                  .bias = values["bias"] == "yes"};
  p.result_dtype = p.parameter_dtype = p.dtype;
  p.wants_dbias = p.bias;
  if (p.pass == Pass::backward && values["accumulate"] == "yes") {
    p.accumulate = p.accumulate_dx = true;
    p.result_dtype = p.parameter_dtype = DType::fp32;
  }
  p.device.kind = *core::device_kind_of(values["device"]);
  return p;
}

std::string line_of(const LinearProblem& p) {
  core::LineValues values(linear_keys());
  values.set("pass", std::string(p.pass == Pass::backward ? "bwd" : "fwd"));
  for (const auto& [key, size] :
       {std::pair{"b", p.batch}, {"m", p.len}, {"k", p.columns_in()}, {"n", p.columns_out()}, {"h", p.heads_out}})
    values.set(key, size);
  values.set("dtype", std::string(core::name_of(p.dtype)));
  values.set("bias", std::string(p.bias || (p.pass == Pass::backward && p.wants_dbias) ? "yes" : "no"));
  if (p.pass == Pass::backward) values.set("accumulate", std::string(p.accumulate || p.accumulate_dx ? "yes" : "no"));
  values.set("layout", std::string("blhd"));
  values.set("device", std::string(core::name_of(p.device.kind)));
  return core::line_of(values);
}

}  // namespace fovea::linear
