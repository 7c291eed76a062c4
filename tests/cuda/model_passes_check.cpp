// Every pass of the model on the device, beside products and attention: against its formula in double precision, with
// the CPU engine as the plain evaluation; the same bits again.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/float16.h"
#include "core/random.h"
#include "pass_checks.h"

namespace fovea::cuda {
namespace {

constexpr float kEpsilon = 1e-5f;

Values random_values(std::int64_t count, std::uint64_t seed, float scale = 1.0f) {
  Values all;
  for (std::int64_t i = 0; i < count; ++i)
    all.push_back(scale * core::approximate_normal(core::philox(seed, 3, static_cast<std::uint64_t>(i))));
  return all;
}

// Numbers that the type can hold.
Values random_values(std::int64_t count, std::uint64_t seed, float scale, Element element) {
  Values all = random_values(count, seed, scale);
  for (float& one : all) one = element == Element::fp32 ? one : core::bf16_to_float(core::float_to_bf16(one));
  return all;
}

std::vector<std::int32_t> random_tokens(std::int64_t count, std::int64_t vocabulary, std::uint64_t seed) {
  std::vector<std::int32_t> all;
  for (std::int64_t i = 0; i < count; ++i)
    all.push_back(static_cast<std::int32_t>(core::philox(seed, 4, static_cast<std::uint64_t>(i))[0] %
                                            static_cast<std::uint32_t>(vocabulary)));
  return all;
}

std::string words(const char* pass, std::int64_t rows, std::int64_t columns, Element element = Element::fp32) {
  return std::string(pass) + " " + std::to_string(rows) + "x" + std::to_string(columns) +
         (element == Element::fp32 ? "" : " bf16");
}

DType dtype_of(Element element) { return element == Element::fp32 ? DType::fp32 : DType::bf16; }

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

void check_swiglu(PassChecks& checks, std::int64_t rows, std::int64_t columns, Element element) {
  const Values gate_up = random_values(2 * rows * columns, 1, 3.0f, element),
               dout = random_values(rows * columns, 2, 1.0f, element);
  Exact out, dgate_up(gate_up.size());
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t c = 0; c < columns; ++c) {
      const auto at = static_cast<std::size_t>(2 * r * columns + c), up_at = at + static_cast<std::size_t>(columns);
      const double gate = gate_up[at], up = gate_up[up_at], s = sigmoid(gate);
      const double d = dout[static_cast<std::size_t>(r * columns + c)];
      out.push_back(gate * s * up);
      dgate_up[at] = d * up * s * (1 + gate * (1 - s));
      dgate_up[up_at] = d * gate * s;
    }
  }
  checks.check(words("swiglu", rows, columns, element), 2, {out}, [&](Arrays& a) {
    float* const to = a.room(rows * columns);
    a.work().swiglu({a.put(gate_up, element), to, rows, columns, element}, {});
    return Results{{"out", columns, a.get(to, rows * columns, element), dtype_of(element)}};
  });
  checks.check(words("swiglu backward", rows, columns, element), 3, {dgate_up, out}, [&](Arrays& a) {
    void *const both = a.put(gate_up, element), *const hidden = a.put(dout, element);
    a.work().swiglu_backward({both, hidden, both, rows, columns, element, hidden}, {});
    return Results{{"dgate_up", 2 * columns, a.get(both, 2 * rows * columns, element), dtype_of(element)},
                   {"out", columns, a.get(hidden, rows * columns, element), dtype_of(element)}};
  });
}

struct ExactNorm {
  Exact sum, y, dx, dweight;
};

ExactNorm expected_norm(const Values& x, const Values& branch, const Values& weight, const Values& dy,
                        const Values& before, std::int64_t columns) {
  ExactNorm e;
  e.dweight.assign(weight.size(), 0);
  if (!before.empty()) e.dweight.assign(weight.begin(), weight.end());  // what it is added to
  const auto rows = static_cast<std::int64_t>(x.size()) / columns;
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto at = [&](std::int64_t c) { return static_cast<std::size_t>(r * columns + c); };
    double squares = 0, products = 0;
    for (std::int64_t c = 0; c < columns; ++c) {
      e.sum.push_back(static_cast<double>(x[at(c)]) + (branch.empty() ? 0 : static_cast<double>(branch[at(c)])));
      squares += e.sum.back() * e.sum.back();
      products += static_cast<double>(dy[at(c)]) * weight[static_cast<std::size_t>(c)] * e.sum.back();
    }
    const double inverse = 1 / std::sqrt(squares / static_cast<double>(columns) + kEpsilon);
    for (std::int64_t c = 0; c < columns; ++c) {
      const double value = e.sum[at(c)], w = weight[static_cast<std::size_t>(c)], g = dy[at(c)];
      e.y.push_back(value * inverse * w);
      e.dx.push_back(inverse * (g * w - value * inverse * inverse * products / static_cast<double>(columns)) +
                     (before.empty() ? 0 : static_cast<double>(before[at(c)])));
      e.dweight[static_cast<std::size_t>(c)] += g * value * inverse;
    }
  }
  return e;
}

// Backward reads the x that forward read, so its reference has no branch.
void check_norm(PassChecks& checks, std::int64_t rows, std::int64_t columns, bool adds, Element element) {
  const std::int64_t count = rows * columns;
  const Values x = random_values(count, 5), branch = adds ? random_values(count, 6, 1.0f, element) : Values{},
               dy = random_values(count, 7, 1.0f, element), weight = random_values(columns, 8),
               before = adds ? random_values(count, 9) : Values{};
  const ExactNorm forward = expected_norm(x, branch, weight, dy, {}, columns),
                  backward = expected_norm(x, {}, weight, dy, before, columns);
  const auto run_forward = [&](Arrays& a) {
    float *const sum = a.room(count), *const y = a.room(count);
    a.work().rms_norm({.x = a.put(x),
                       .branch = adds ? a.put(branch, element) : nullptr,
                       .sum = adds ? sum : nullptr,
                       .weight = a.put(weight),
                       .y = y,
                       .inverse = a.room(rows),
                       .rows = rows,
                       .columns = columns,
                       .epsilon = kEpsilon,
                       .element = element},
                      {});
    Results results{{"y", columns, a.get(y, count, element), dtype_of(element)}};
    if (adds) results.push_back({"sum", columns, a.get(sum, count)});
    return results;
  };
  checks.check(words(adds ? "norm of a sum" : "norm", rows, columns, element), 2, {forward.y, forward.sum},
               run_forward);
  checks.check(
      words(adds ? "added norm backward" : "norm backward", rows, columns, element), 3,
      {backward.dx, backward.dweight, backward.dx}, [&](Arrays& a) {
        float *const inverse = a.room(rows), *const dx = adds ? a.put(before) : a.room(count),
                     *const dweight = a.put(weight), *const from = a.put(x), *const w = a.put(weight);
        auto* const rounded = a.room<std::uint16_t>(count);
        a.work().rms_norm({from, nullptr, nullptr, w, a.room(count), inverse, rows, columns, kEpsilon, element}, {});
        const std::int64_t partials = std::max(model::partial_count(DeviceKind::cpu, rows, columns),
                                               model::partial_count(DeviceKind::cuda, rows, columns));
        a.work().rms_norm_backward({.x = from,
                                    .weight = w,
                                    .inverse = inverse,
                                    .dy = a.put(dy, element),
                                    .dx = dx,
                                    .accumulate = adds,
                                    .dweight = dweight,
                                    .rows = rows,
                                    .columns = columns,
                                    .epsilon = kEpsilon,
                                    .element = element,
                                    .rounded = rounded,
                                    .accumulate_dweight = adds},
                                   a.room(partials), {});
        return Results{{"dx", columns, a.get(dx, count)},
                       {"dweight", columns, a.get(dweight, columns)},
                       {"dx, rounded", columns, a.get(rounded, count, Element::bf16), DType::bf16}};
      });
}

void check_tokens(PassChecks& checks, std::int64_t rows, std::int64_t columns, std::int64_t vocabulary) {
  const std::vector<std::int32_t> tokens = random_tokens(rows, vocabulary, 10);
  const Values table = random_values(vocabulary * columns, 11), drows = random_values(rows * columns, 12);
  checks.check_equal(words("gather", rows, columns), [&](Arrays& a) {
    float* const to = a.room(rows * columns);
    a.work().gather({a.put(table), a.put(tokens), to, rows, columns}, {});
    return Results{{"rows", columns, a.get(to, rows * columns)}};
  });
  checks.check_equal(words("scatter", rows, columns), [&](Arrays& a) {
    float* const to = a.put(table);
    a.work().scatter({a.put(drows), a.put(tokens), to, rows, columns, 0, columns}, {});
    return Results{{"dtable", columns, a.get(to, vocabulary * columns)}};
  });
}

// Losses from what the pass keeps of each row, as the model computes them.
Values losses_of(const std::vector<cpu::RowLoss>& rows) {
  Values losses;
  for (const cpu::RowLoss& row : rows) losses.push_back(std::log(row.sum) + (row.maximum - row.logit));
  return losses;
}

// A gradient in bf16 fills the first half of each row.
Values gradients_of(const Values& memory, std::int64_t columns, Element element) {
  if (element == Element::fp32) return memory;
  Values all;
  for (std::size_t row = 0; row < memory.size(); row += static_cast<std::size_t>(columns)) {
    for (std::int64_t c = 0; c < columns; ++c) all.push_back(core::load_as_float(&memory[row], DType::bf16, c));
  }
  return all;
}

void check_loss(PassChecks& checks, std::int64_t rows, std::int64_t columns, Element element) {
  constexpr float kGradient = 0.25f;
  const Values logits = random_values(rows * columns, 13, 4.0f);
  const std::vector<std::int32_t> targets = random_tokens(rows, columns, 14);
  Exact losses, gradients;
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto at = [&](std::int64_t c) {
      return static_cast<double>(logits[static_cast<std::size_t>(r * columns + c)]);
    };
    const std::int64_t target = targets[static_cast<std::size_t>(r)];
    double sum = 0;
    for (std::int64_t c = 0; c < columns; ++c) sum += std::exp(at(c));
    losses.push_back(std::log(sum) - at(target));
    for (std::int64_t c = 0; c < columns; ++c)
      gradients.push_back(kGradient * (std::exp(at(c)) / sum - (c == target ? 1 : 0)));
  }
  const auto run = [&](Arrays& a, float gradient) {
    float* const to = a.put(logits);
    auto* const kept = a.room<cpu::RowLoss>(rows);
    a.work().cross_entropy({to, a.put(targets), kept, rows, columns, gradient, element}, {});
    const Values after = a.get(to, rows * columns);
    return Results{
        {"losses", rows, losses_of(a.get(kept, rows))},
        {"logits", columns, gradient == 0 ? after : gradients_of(after, columns, element), dtype_of(element)}};
  };
  checks.check(words("loss", rows, columns, element), 2, {losses, gradients},
               [&](Arrays& a) { return run(a, kGradient); });
  const Exact unchanged(logits.begin(), logits.end());
  checks.check(words("loss alone", rows, columns, element), 2, {losses, unchanged},
               [&](Arrays& a) { return run(a, 0); });
}

struct ExactUpdate {
  Exact weight, m, v;
  double norm = 0;
};

void check_update(PassChecks& checks, Verdicts& verdicts, std::int64_t count, double largest_norm) {
  const Values weight = random_values(count, 15), m = random_values(count, 16, 0.1f), g = random_values(count, 17);
  Values v = random_values(count, 18);
  for (float& one : v) one *= one;
  const cpu::AdamWTask constants{.count = count,
                                 .rest1 = 0.125f,
                                 .rest2 = 0.0625f,
                                 .beta2 = 0.9375f,
                                 .step_size = 0.01f,
                                 .v_factor = 1.5f,
                                 .epsilon = 1e-6f,
                                 .decay = 0.99f};
  ExactUpdate e;
  for (const float one : g) e.norm += static_cast<double>(one) * one;
  e.norm = std::sqrt(e.norm);
  const double factor = e.norm > largest_norm ? largest_norm / e.norm : 1;
  for (std::size_t i = 0; i < g.size(); ++i) {
    const double scaled = factor * g[i];
    e.m.push_back(m[i] + 0.125 * (scaled - m[i]));
    e.v.push_back(0.9375 * v[i] + 0.0625 * scaled * scaled);
    e.weight.push_back(static_cast<double>(constants.decay) * weight[i] -
                       static_cast<double>(constants.step_size) * e.m.back() /
                           (std::sqrt(e.v.back()) * 1.5 + static_cast<double>(constants.epsilon)));
  }
  const std::string what = words("update", 1, count) + " norm at most " + std::to_string(largest_norm);
  model::Clipping found;
  const auto run = [&](Arrays& a, const Values& gradient) {
    cpu::AdamWTask task = constants;
    task.weight = a.put(weight), task.m = a.put(m), task.v = a.put(v);
    const float* const from = a.put(gradient);
    task.rounded = a.room<std::uint16_t>(count);
    a.work().round(task.rounded, task.weight, count, {});
    task.gradient = from;
    auto* const clipping = a.room<model::Clipping>(1);
    a.work().update({.gradients = {from, gradient.size()},
                     .largest_norm = largest_norm,
                     .tasks = {&task, 1},
                     .square_sums = a.room(model::square_sum_count(DeviceKind::cuda, count)),
                     .clipping = clipping},
                    {});
    found = a.get(clipping, 1)[0];
    return Results{{"weights", count, a.get(task.weight, count)},
                   {"m", count, a.get(task.m, count)},
                   {"v", count, a.get(task.v, count)},
                   {"rounded weights", count, a.get(task.rounded, count, Element::bf16), DType::bf16}};
  };
  checks.check(what, 2, {e.weight, e.m, e.v, e.weight}, [&](Arrays& a) { return run(a, g); });
  // 4096 squares: 16 in a thread, then 5 and 7 additions. The root halves the relative error of 28 roundings.
  verdicts.judge(what + " norm",
                 std::abs(found.norm - e.norm) <= 14 * 0x1p-24 * e.norm ? "" : std::to_string(found.norm));
  Values broken = g;
  broken.back() = NAN;
  checks.check_equal(what + " not finite", [&](Arrays& a) { return run(a, broken); });
  verdicts.judge(what + " not finite", std::isnan(found.norm) ? "" : "the norm is not NaN");
}

}  // namespace

void check_model_passes(Verdicts& verdicts) {
  PassChecks checks(verdicts);
  using Size = std::pair<std::int64_t, std::int64_t>;
  for (const Element element : {Element::fp32, Element::bf16}) {
    for (const auto& [rows, columns] : {Size{67, 12}, {5, 1025}, {130, 2050}, {2, 333}, {70, 3072}, {9, 5128}})
      check_swiglu(checks, rows, columns, element);
    for (const auto& [rows, columns] : {Size{67, 12},
                                        {64, 96},
                                        {5, 770},
                                        {1030, 129},
                                        {8200, 64},
                                        {2, 333},
                                        {2500, 768},
                                        {61, 1284},
                                        {9, 2560},
                                        {600, 4100},
                                        {3, 8192},
                                        {3, 8196}}) {
      check_norm(checks, rows, columns, false, element);
      check_norm(checks, rows, columns, true, element);
    }
    for (const auto& [rows, columns] :
         {Size{90, 11}, {33, 256}, {40, 257}, {50, 10'000}, {300, 777}, {5, 4096}, {3, 16'384}, {3, 16'388}})
      check_loss(checks, rows, columns, element);
  }
  check_tokens(checks, 700, 33, 9);
  check_tokens(checks, 513, 300, 10'000);
  check_tokens(checks, 3000, 7, 1);
  for (const std::int64_t count : {700, 4096, 100'001}) {
    check_update(checks, verdicts, count, 1.0);
    check_update(checks, verdicts, count, 1e9);
  }
}

}  // namespace fovea::cuda
