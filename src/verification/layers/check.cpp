// The plain evaluation is measured in several variants, and on companions whose inputs are moved by up to an eighth.
// The largest error counts.
#include "verification/layers/check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "core/never_destroyed.h"
#include "core/random.h"
#include "layers/problem_line.h"
#include "verification/attention/evaluation.h"
#include "verification/layers/evaluation.h"

namespace fovea::verification {
namespace {

constexpr std::int64_t kMostElements = std::int64_t{1} << 23;
constexpr double kPlainFlops = 2e7;  // the plain evaluation of a small problem is repeated until it has cost this
constexpr std::int64_t kMaxRepeats = 64, kMaxCompanions = 16;
constexpr double kCompanionFlops = 4e8;  // larger problems have enough numbers of their own
// If an answer is beyond its bound: for repeating the problem, and as much again for companions.
constexpr double kFurtherFlops = 2e9;
constexpr std::int64_t kFurtherCompanions = 32;

// A result's rows are (batch, len), or the rows of a weight.
std::vector<RowIndex> compared_rows(const TensorSpec& result, std::uint64_t seed, bool& sampled) {
  const std::int64_t len = result.sizes[2], all = result.sizes[0] * len;
  const std::int64_t count = std::min(all, std::max<std::int64_t>(1, kMostElements / result.sizes[3]));
  sampled = sampled || count < all;
  std::vector<RowIndex> rows;
  for (std::int64_t n = 0; n < count; ++n) {
    const auto random = core::philox(seed, 8, static_cast<std::uint64_t>(n))[0];
    const std::int64_t first = n * all / count, part = (n + 1) * all / count - first;
    const std::int64_t row = first + static_cast<std::int64_t>(random) % part;
    rows.push_back({row / len, 0, row % len});
  }
  return rows;
}

// `rows` of a result; empty: all.
template <class Arithmetic>
auto sums_of(LayerValues<Arithmetic>& values, const std::string& name, const std::vector<std::int64_t>& rows)
    -> Matrix<typename Arithmetic::Number> {
  if (name == "y") return values.output(rows);
  if (name == "dx") return values.input_gradient(Activation::x, rows);
  if (name == "dx_kv") return values.input_gradient(Activation::x_kv, rows);
  for (const Part part : kParts) {
    if (name == "d" + name_of(part) + "_weight") return values.weight_gradient(part, rows);
    if (name == "d" + name_of(part) + "_bias") return values.bias_gradient(part);
  }
  for (const NormPart part : kNormParts) {
    if (name == "d" + name_of(part)) return values.norm_gradient(part);
  }
  return {};
}

class LayerErrors {
 public:
  LayerErrors(const LayerProblem& problem, std::vector<TensorSpec> results, std::shared_ptr<const LayerInputs> inputs,
              std::uint64_t seed, bool poisoned, const LayerEvaluator& evaluator)
      : problem_(problem), results_(results), inputs_(std::move(inputs)), poisoned_(poisoned), evaluator_(evaluator) {
    for (const TensorSpec& one : results_) {
      ExpectedTensor& tensor = blank_.tensors.emplace_back();
      tensor.name = one.name;
      tensor.bound.factor = problem.pass == Pass::forward ? 2 : 3;
      tensor.bound.stored = one.dtype;
      tensor.bound.poisoned = poisoned;
      tensor.reference.rows = compared_rows(one, seed, blank_.sampled);
      tensor.reference.columns = one.sizes[3];
    }
  }

  // Equal for problems that have the same expectation.
  std::size_t digest(std::uint64_t seed) const {
    std::string text = layers::line_of(problem_) + " " + std::to_string(seed);
    const auto add = [&text](const auto& values) {
      const auto* const bytes = reinterpret_cast<const char*>(values.data());
      text += " " + std::to_string(digest_of({bytes, values.size() * sizeof(values[0])}));
    };
    for (const auto* const one : {&inputs_->x, &inputs_->x_kv, &inputs_->dy}) add(one->values);
    for (const Part part : kParts) {
      for (const auto* const some : {&inputs_->weight, &inputs_->bias, &inputs_->dweight, &inputs_->dbias})
        add(at(*some, part).values);
    }
    for (const NormPart part : kNormParts) add(at(inputs_->norm, part).values), add(at(inputs_->dnorm, part).values);
    for (const TensorSpec& one : results_) text += " " + one.name + std::to_string(static_cast<int>(one.dtype));
    return std::hash<std::string>{}(text);
  }

  Expectation expectation() const {
    Expectation expected = blank_;
    std::vector<RowValues> reference = exact(inputs_);
    for (std::size_t n = 0; n < reference.size(); ++n) expected.tensors[n].reference = std::move(reference[n]);
    for (ExpectedTensor& one : expected.tensors) allow_overflow(one.reference, one.bound);
    raise_on_problem(expected, 0, repeats());
    if (cost() <= kCompanionFlops) raise_on_companions(expected, 0, std::min(repeats(), kMaxCompanions), false);
    if (poisoned_) allow_poisoned(expected);
    return expected;
  }

  void measure_more(Expectation& expected) const {
    const auto affordable = static_cast<std::int64_t>(kFurtherFlops / cost());
    raise_on_problem(expected, repeats(), std::clamp<std::int64_t>(affordable, 2, kMaxRepeats));
    if (cost() > kCompanionFlops) return;
    const std::int64_t companions = std::min(affordable, kFurtherCompanions);
    raise_on_companions(expected, kMaxCompanions, companions / 2, false);
    raise_on_companions(expected, kMaxCompanions + companions / 2, companions / 2, true);
  }

 private:
  double cost() const { return std::max(flops(problem_), 1.0); }
  std::int64_t repeats() const {
    if (cost() > kCompanionFlops) return 1;
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(kPlainFlops / cost()), 2, kMaxRepeats);
  }

  bool holds_non_finite(std::int64_t batch) const {
    const auto in_rows = [batch](const Matrix<float>& m, std::int64_t len) {
      const float* const first = m.values.data() + batch * len * m.columns;
      return m.rows > 0 &&
             !std::all_of(first, first + len * m.columns, [](float value) { return std::isfinite(value); });
    };
    return in_rows(inputs_->x, problem_.len_q) || in_rows(inputs_->dy, problem_.len_q) ||
           in_rows(inputs_->x_kv, problem_.len_k);
  }

  void allow_poisoned(Expectation& expected) const {
    std::vector<bool> struck;
    for (std::int64_t batch = 0; batch < problem_.batch; ++batch) struck.push_back(holds_non_finite(batch));
    for (ExpectedTensor& one : expected.tensors) {
      const bool of_rows = one.name == "y" || one.name == "dx" || one.name == "dx_kv";
      for (std::size_t n = 0; n < one.reference.rows.size(); ++n) {
        if (!of_rows || struck[static_cast<std::size_t>(one.reference.rows[n].batch)]) one.bound.may_poison[n] = true;
      }
    }
  }

  void raise_on_problem(Expectation& expected, std::int64_t first, std::int64_t count) const {
    std::vector<RowValues> reference;
    for (const ExpectedTensor& one : expected.tensors) reference.push_back(one.reference);
    for (std::int64_t n = first; n < first + count; ++n) raise(expected, inputs_, reference, n);
  }

  void raise_on_companions(Expectation& expected, std::int64_t first, std::int64_t count, bool by_value) const {
    for (std::int64_t n = first; n < first + count; ++n) {
      const auto companion =
          std::make_shared<const LayerInputs>(moved(problem_, *inputs_, static_cast<std::uint64_t>(n), by_value));
      raise(expected, companion, exact(companion), n);
    }
  }

  void raise(Expectation& expected, const std::shared_ptr<const LayerInputs>& inputs,
             const std::vector<RowValues>& reference, std::int64_t n) const {
    PlainVariant variant = plain_variant(n);
    const bool on_tensor_cores = may_use_tensor_cores(problem_.device.kind, problem_.dtype) && !variant.fused;
    for (const bool tensor_cores : {false, true}) {
      if (tensor_cores && !on_tensor_cores) continue;
      variant.tensor_cores = tensor_cores;
      LayerValues values(problem_, inputs, PlainArithmetic(problem_.dtype, variant, evaluator_));
      for (std::size_t r = 0; r < results_.size(); ++r) {
        RowValues plain = result(values, r);
        round_to(results_[r].dtype, plain);
        Bound& bound = expected.tensors[r].bound;
        bound.plain.raise_to(error_of(plain, reference[r]));
        if (inputs == inputs_) allow_what_overflows(plain, reference[r], bound);
      }
    }
  }

  // What lies between two steps may exceed the layer's type; then rows of finite results are infinite or NaN.
  static void allow_what_overflows(const RowValues& plain, const RowValues& reference, Bound& bound) {
    for (std::size_t n = 0; n < plain.values.size(); ++n) {
      if (!std::isfinite(plain.values[n]) && std::isfinite(reference.values[n]))
        bound.may_poison[n / static_cast<std::size_t>(plain.columns)] = true;
    }
  }

  std::vector<RowValues> exact(const std::shared_ptr<const LayerInputs>& inputs) const {
    LayerValues values(problem_, inputs, ExactArithmetic(evaluator_));
    std::vector<RowValues> all;
    for (std::size_t r = 0; r < results_.size(); ++r) all.push_back(result(values, r));
    return all;
  }

  // The compared rows of a result, before it is rounded to its type.
  template <class Arithmetic>
  RowValues result(LayerValues<Arithmetic>& values, std::size_t index) const {
    const RowValues& wanted = blank_.tensors[index].reference;
    const Sizes& sizes = results_[index].sizes;
    std::vector<std::int64_t> rows;
    for (const RowIndex& row : wanted.rows) rows.push_back(row.batch * sizes[2] + row.index);
    if (std::ssize(rows) == sizes[0] * sizes[2]) rows.clear();
    const auto sums = sums_of(values, results_[index].name, rows);
    RowValues result{wanted.rows, wanted.columns, std::vector<double>(sums.values.size())};
    for_each_block(sums.rows, 1, static_cast<double>(sums.values.size()), [&](std::int64_t row, std::int64_t) {
      std::copy_n(sums.row(row), sums.columns, result.values.begin() + row * sums.columns);
    });
    return result;
  }

  LayerProblem problem_;
  std::vector<TensorSpec> results_;
  std::shared_ptr<const LayerInputs> inputs_;
  Expectation blank_;  // names, rows and factors
  bool poisoned_;
  const LayerEvaluator& evaluator_;
};

// A bench asks for the passes of one problem in turn: fwd, bwd and e2e share expectations. The last of each is kept.
class ReferenceAnswers {
 public:
  Expectation find(Pass pass, std::size_t digest, const std::function<Expectation()>& make) {
    const std::lock_guard lock(mutex_);
    auto& [known, expected] = last_[static_cast<std::size_t>(pass)];
    if (!expected || known != digest) expected = nullptr, expected = std::make_unique<Expectation>(make());
    known = digest;
    return *expected;
  }

 private:
  std::mutex mutex_;
  std::array<std::pair<std::size_t, std::unique_ptr<Expectation>>, 2> last_;
};

}  // namespace

Expectation expect_layer(const LayerProblem& problem, const std::vector<TensorSpec>& results, const TensorSet& given,
                         std::uint64_t seed, bool poisoned, const LayerEvaluator& evaluator) {
  static auto& answers = core::never_destroyed<ReferenceAnswers>();
  const auto errors = std::make_shared<const LayerErrors>(
      problem, results, std::make_shared<const LayerInputs>(read_inputs(problem, given)), seed, poisoned, evaluator);
  return answers.find(problem.pass, errors->digest(seed), [&] {
    Expectation expected = errors->expectation();
    expected.measure_more = [errors](Expectation& again) { errors->measure_more(again); };
    return expected;
  });
}

}  // namespace fovea::verification
