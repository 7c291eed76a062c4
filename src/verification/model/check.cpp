// The plain evaluation is measured in several variants, and on neighbours: models as hard as this one, whose numbers
// have other roundings. The largest error counts.
#include "verification/model/check.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "core/random.h"

namespace fovea::verification {
namespace {

constexpr double kMove = 0x1p-6;  // of a neighbour's weights, at most
// Floating-point operations of the plain evaluations of a small model, and of further ones if an answer is beyond its
// bound. A large model is evaluated once: it has enough numbers of its own.
constexpr double kPlainFlops = 4e7, kFurtherFlops = 8e8, kLargeFlops = 4e8;
constexpr std::int64_t kLeast = 4, kMost = 16, kMostFurther = 200;

double flops_of(const ModelInputs& in) {
  const auto rows = static_cast<double>(in.extent.rows());
  const auto pairs = rows * static_cast<double>(in.extent.length);
  return 6 * rows * static_cast<double>(in.map.count()) +
         12 * pairs * static_cast<double>(in.config.layers * in.config.width);
}

class ModelErrors {
 public:
  ModelErrors(std::shared_ptr<const ModelInputs> inputs, std::optional<ModelUpdate> update, Pass pass,
              std::vector<TensorSpec> results)
      : inputs_(std::move(inputs)), update_(std::move(update)), pass_(pass), results_(std::move(results)) {
    for (const model::Parameter& one : inputs_->map.all()) parameters_[one.name] = &one;
  }

  Expectation expectation() const {
    Expectation expected;
    auto exact = values_of<double>(*inputs_, ExactArithmetic());
    for (const TensorSpec& one : results_) {
      ExpectedTensor& tensor = expected.tensors.emplace_back();
      tensor.name = one.name;
      tensor.bound.factor = tensor.name == kLosses ? 2 : 3;
      tensor.bound.stored = one.dtype;
    }
    raise(expected, *inputs_, 0, exact);
    raise_on_neighbours(expected, 1, repeats(kPlainFlops, kLeast, kMost));
    for (std::size_t n = 0; n < results_.size(); ++n) {
      ExpectedTensor& tensor = expected.tensors[n];
      tensor.reference = std::move(exact[n]);
      allow_overflow(tensor.reference, tensor.bound);
    }
    return expected;
  }

  void measure_more(Expectation& expected) const {
    raise_on_neighbours(expected, kMost, kMost + repeats(kFurtherFlops, kLeast, kMostFurther));
  }

 private:
  std::int64_t repeats(double flops, std::int64_t least, std::int64_t most) const {
    const double each = std::max(flops_of(*inputs_), 1.0);
    return each > kLargeFlops ? 0 : std::clamp(static_cast<std::int64_t>(flops / each), least, most);
  }

  ModelInputs neighbour(std::int64_t number) const {
    ModelInputs moved = *inputs_;
    for (std::size_t i = 0; i < moved.weights.size(); ++i) {
      const auto random = static_cast<double>(core::philox(static_cast<std::uint64_t>(number), 5, i)[0]);
      moved.weights[i] = static_cast<float>(moved.weights[i] * (1 + kMove * (random * 0x1p-31 - 1)));
    }
    return moved;
  }

  void raise_on_neighbours(Expectation& expected, std::int64_t begin, std::int64_t end) const {
    for (std::int64_t n = begin; n < end; ++n) {
      const ModelInputs moved = neighbour(n);
      raise(expected, moved, n, values_of<double>(moved, ExactArithmetic()));
    }
  }

  void raise(Expectation& expected, const ModelInputs& inputs, std::int64_t n,
             const std::vector<RowValues>& exact) const {
    PlainVariant variant = plain_variant(n);
    const bool on_tensor_cores = may_use_tensor_cores(inputs.device, inputs.config.dtype) && !variant.fused;
    for (const bool tensor_cores : {false, true}) {
      if (tensor_cores && !on_tensor_cores) continue;
      variant.tensor_cores = tensor_cores;
      const auto plain = values_of<float>(inputs, PlainArithmetic(inputs.config.dtype, variant));
      for (std::size_t r = 0; r < results_.size(); ++r)
        expected.tensors[r].bound.plain.raise_to(error_of(plain[r], exact[r]));
    }
  }

  // The results as rows of their tensors.
  template <class Number, class Arithmetic>
  std::vector<RowValues> values_of(const ModelInputs& inputs, const Arithmetic& arithmetic) const {
    const ModelAnswer<Number> answer = evaluate(inputs, pass_, arithmetic);
    std::vector<Number> weights;
    if (update_ && pass_ == Pass::backward) weights = updated(inputs, *update_, answer.gradients);
    std::vector<RowValues> all;
    for (const TensorSpec& one : results_) {
      RowValues& rows = all.emplace_back();
      rows.columns = one.sizes[3];
      for (std::int64_t row = 0; row < one.sizes[2]; ++row) rows.rows.push_back({0, 0, row});
      if (one.name == kLosses) {
        rows.values.assign(answer.losses.values.begin(), answer.losses.values.end());
        continue;
      }
      const bool is_gradient = one.name.starts_with(kGradientOf);
      const model::Parameter& parameter =
          *parameters_.at(one.name.substr((is_gradient ? kGradientOf : kUpdated).size()));
      const auto first = (is_gradient ? answer.gradients : weights).begin() + parameter.offset;
      rows.values.assign(first, first + parameter.count());
    }
    return all;
  }

  std::shared_ptr<const ModelInputs> inputs_;
  std::optional<ModelUpdate> update_;
  Pass pass_;
  std::vector<TensorSpec> results_;
  std::map<std::string, const model::Parameter*> parameters_;
};

}  // namespace

Expectation expect_model(const std::shared_ptr<const ModelInputs>& inputs, const std::optional<ModelUpdate>& update,
                         Pass pass, const std::vector<TensorSpec>& results) {
  const auto errors = std::make_shared<const ModelErrors>(inputs, update, pass, results);
  Expectation expected = errors->expectation();
  expected.measure_more = [errors](Expectation& again) { errors->measure_more(again); };
  return expected;
}

}  // namespace fovea::verification
