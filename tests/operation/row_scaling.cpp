// Keys, tensors, reference and two implementations of row scaling.
#include "operation/row_scaling.h"

#include <cmath>
#include <string>

#include "core/float16.h"
#include "core/names.h"
#include "core/never_destroyed.h"

namespace fovea::tests {
namespace {

using namespace verification;

constexpr std::int64_t kForgottenFrom = 7;

const core::KeyTable& row_scaling_keys() {
  static const auto& table = core::never_destroyed<core::KeyTable>(
      core::KeyTable{"row_scaling",
                     {core::pass_key(),
                      {"rows", core::KeyKind::count, "rows"},
                      {"cols", core::KeyKind::count, "columns", {}, "rows"},
                      core::dtype_key(),
                      {"device", core::KeyKind::word, "where the tensors are", {"cpu"}, "cpu"}},
                     nullptr});
  return table;
}

float load(const TensorView& t, std::int64_t row, std::int64_t column) {
  return core::load_as_float(t.data, t.dtype, row * t.strides[2] + column);
}

void store(const MutableTensorView& t, std::int64_t row, std::int64_t column, float value) {
  core::store_from_float(t.data, t.dtype, row * t.strides[2] + column, value);
}

double rounded(DType dtype, double value) {
  float bits = 0;
  core::store_from_float(&bits, dtype, 0, static_cast<float>(value));
  return core::load_as_float(&bits, dtype, 0);
}

// One pass in the arithmetic of Number, on the first `columns` columns.
template <class Number, class Store>
void compute(Pass pass, const TensorSet& t, std::int64_t columns, Store result) {
  const TensorView x = t["x"], s = t["s"], dy = t["dy"];
  for (std::int64_t row = 0; row < x.sizes[2]; ++row) {
    const Number factor = load(s, row, 0);
    Number sum = 0;
    for (std::int64_t c = 0; c < columns; ++c) {
      if (pass == Pass::forward) {
        result("y", row, c, factor * static_cast<Number>(load(x, row, c)));
        continue;
      }
      const Number gradient = load(dy, row, c);
      result("dx", row, c, factor * gradient);
      sum += gradient * static_cast<Number>(load(x, row, c));
    }
    if (pass == Pass::backward) result("ds", row, 0, sum);
  }
}

void run(Pass pass, const TensorSet& t, std::int64_t columns) {
  compute<float>(pass, t, columns, [&t](const char* name, std::int64_t row, std::int64_t column, float value) {
    if (const MutableTensorView* const view = t.find(name)) store(*view, row, column, value);
  });
}

class RowScalingOperation final : public Operation {
 public:
  RowScalingOperation() : Operation(row_scaling_keys()) {}

  std::vector<TensorSpec> tensors(const Case& c) const override {
    const Sizes matrix{1, 1, c.count("rows"), c.count("cols")}, column{1, 1, c.count("rows"), 1};
    std::vector<TensorSpec> tensors;
    const auto add = [&](const char* name, Role role, const Sizes& sizes) {
      if (c.varies(std::string("no_") + name)) return;
      tensors.push_back(
          {.name = name, .role = role, .dtype = c.dtype(), .sizes = sizes, .strides = dense_strides(sizes)});
    };
    add("x", Role::input, matrix);
    add("s", Role::parameter, column);
    add("y", Role::output, matrix);
    if (!c.backwards()) return tensors;
    add("dy", Role::input, matrix);
    add("dx", Role::gradient, matrix);
    add("ds", Role::gradient, column);
    return tensors;
  }

  Cost cost(const Case& c) const override {
    const double elements = static_cast<double>(c.count("rows")) * static_cast<double>(c.count("cols"));
    const double bytes = elements * static_cast<double>(size_of(c.dtype()));
    return {.flops = (c.forwards() ? elements : 0) + (c.backwards() ? 3 * elements : 0),
            .bytes = (c.forwards() ? 2 * bytes : 0) + (c.backwards() ? 3 * bytes : 0)};
  }

  void run_reference(const Case& c, const TensorSet& tensors) const override {
    run(Pass::forward, tensors, c.count("cols"));
  }

  // The reference in double; what plain fp32 arithmetic and the rounding to the type lose bounds the error.
  Expectation expect(const Case& c, Pass pass, const TensorSet& given) const override {
    Expectation expected;
    std::vector<RowIndex> rows;
    for (std::int64_t row = 0; row < c.count("rows"); ++row) rows.push_back({0, 0, row});
    for (const TensorSpec& spec : tensors(c)) {
      if (spec.role != (pass == Pass::forward ? Role::output : Role::gradient)) continue;
      const std::size_t size = rows.size() * static_cast<std::size_t>(spec.sizes[3]);
      expected.tensors.push_back({spec.name, {rows, spec.sizes[3], std::vector<double>(size)}, {}});
      expected.tensors.back().bound.stored = spec.dtype;
    }
    std::vector<RowValues> plain;
    for (const ExpectedTensor& one : expected.tensors) plain.push_back(one.reference);
    const auto put = [&](bool is_plain) {
      return [&, is_plain](std::string_view name, std::int64_t row, std::int64_t column, double value) {
        for (std::size_t n = 0; n < plain.size(); ++n) {
          if (expected.tensors[n].name != name) continue;
          RowValues& values = is_plain ? plain[n] : expected.tensors[n].reference;
          const double stored = rounded(c.dtype(), value);  // what the type cannot hold is infinite in it
          values.values[static_cast<std::size_t>(row * values.columns + column)] =
              is_plain || std::isinf(stored) ? stored : value;
        }
      };
    };
    compute<double>(pass, given, c.count("cols"), put(false));
    compute<float>(pass, given, c.count("cols"), put(true));
    for (std::size_t n = 0; n < plain.size(); ++n) {
      Bound& bound = expected.tensors[n].bound;
      bound.plain = error_of(plain[n], expected.tensors[n].reference);
      bound.poisoned = c.data() == "nonfinite";
    }
    return expected;
  }

  std::vector<ImplementationFacts> implementations() const override {
    return {{.name = "rows.plain", .unavailable = ""}, {.name = "rows.short", .automatic = false, .unavailable = ""}};
  }

  CasePlan plan(const Case&, std::string_view name) const override {
    const bool chosen = name.empty() || name == "rows.plain";
    CasePlan plan;
    plan.walk = {{"rows.plain", chosen, chosen ? "" : "not asked for"},
                 {"rows.short", !chosen, chosen ? "runs when named" : ""}};
    plan.implementation = chosen ? "rows.plain" : "rows.short";
    plan.forward_tiles = "one row at a time";
    return plan;
  }

  Call prepare(const Case& c, const TensorSet& tensors, const CallSettings& settings) const override {
    std::int64_t columns = c.count("cols");
    if (settings.implementation == "rows.short" && columns >= kForgottenFrom) --columns;
    return {.forward = [tensors, columns] { run(Pass::forward, tensors, columns); },
            .backward = [tensors, columns] { run(Pass::backward, tensors, columns); }};
  }
};

}  // namespace

const Operation& row_scaling() {
  static const auto& operation = core::never_destroyed<RowScalingOperation>();
  return operation;
}

}  // namespace fovea::tests
