// The plain evaluation on the problem and on companions, every time against its own reference.
#include "verification/attention/plain_errors.h"

#include <algorithm>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>

#include "attention/reference/head.h"
#include "verification/attention/companion.h"
#include "verification/attention/score_sizes.h"

namespace fovea::verification {
namespace {

constexpr double kPlainFlops = 2e7;  // the plain evaluation of a small problem is repeated until it has cost this
constexpr std::int64_t kMaxRepeats = 64, kMaxCompanions = 16;
constexpr double kCompanionFlops = 4e8;  // larger problems have enough numbers of their own
// If an answer is beyond its bound: for repeating the problem, and as much again for companions of its own shape.
constexpr double kFurtherFlops = 2e9;
constexpr std::int64_t kFurtherCompanions = 32;
constexpr std::int64_t kForms = 4;     // consecutive repeats that have every form in one of its bases
constexpr std::int64_t kVariants = 8;  // consecutive repeats that have every form of the plain evaluation

// Of a companion, which has one key head and no mask.
double companion_flops(AttentionProblem problem) {
  problem.mask = Mask::none;
  return flops(problem) / std::max(static_cast<double>(problem.batch * problem.heads_kv), 1.0);
}

std::int64_t repeats(double flops_of_one) {
  return std::clamp(static_cast<std::int64_t>(kPlainFlops / std::max(flops_of_one, 1.0)), std::int64_t{1}, kMaxRepeats);
}

// The problem with as many keys as the row has that sees the fewest, but at least one.
AttentionProblem with_fewest_keys(AttentionProblem p) {
  std::int64_t fewest = p.len_k;
  for (std::int64_t i = 0; i < p.len_q && fewest > 1; ++i) {
    std::int64_t seen = 0;
    for (std::int64_t j = 0; j < p.len_k && seen < fewest; ++j) seen += reference::visible(p, i, j) ? 1 : 0;
    if (seen > 0) fewest = seen;
  }
  p.len_k = fewest;
  return p;
}

const RowValues& tensor_of(const ForwardValues& values, const std::string& name) {
  return name == "lse" ? values.lse : values.out;
}
const RowValues& tensor_of(const BackwardValues& values, const std::string& name) {
  return name == "dq" ? values.dq : name == "dk" ? values.dk : values.dv;
}

template <class Tensors>
class PlainErrors {
  static constexpr bool kBackward = std::is_same_v<Tensors, BackwardTensors>;
  using Values = std::conditional_t<kBackward, BackwardValues, ForwardValues>;

 public:
  // `lse`: the memory behind `tensors.lse`, if the caller does not keep it.
  PlainErrors(const AttentionProblem& problem, const Tensors& tensors, Sample sample, const Gradients& before = {},
              std::vector<float> lse = {})
      : problem_(problem), tensors_(tensors), sample_(std::move(sample)), before_(before), lse_(std::move(lse)) {}

  void measure(Expectation& expected) const { measure_problem(0, std::min(repeats_of_problem(), kForms), expected); }

  // Further repeats, and companions.
  void measure_rest(Expectation& expected) const {
    measure_problem(kForms, repeats_of_problem() - kForms, expected);
    const double of_one = companion_flops(problem_);
    if (!has_companions(of_one)) return;
    const std::int64_t moving = std::min(repeats(of_one), kMaxCompanions);
    measure_companions(problem_, {}, 0, moving, expected);
    if (kBackward) return measure_companions(problem_, {.scores = true}, moving, moving / 2, expected);
    const AttentionProblem shortest = with_fewest_keys(problem_);
    if (shortest.len_k < kLeastKeysOfCompanions)
      measure_companions(shortest, {.len_k = true}, moving, moving, expected);
  }

  // Every variant on the problem, and companions of its own shape, as many as kFurtherFlops allows.
  void measure_more(Expectation& expected) const {
    const double of_one = flops(problem_);
    const auto affordable = static_cast<std::int64_t>(kFurtherFlops / std::max(of_one, 1.0));
    measure_problem(repeats_of_problem(), std::clamp(affordable, kVariants, kMaxRepeats), expected);
    if (!has_companions(of_one)) return;
    const std::int64_t moving = std::min(affordable, kFurtherCompanions);
    measure_companions(problem_, {.shape = true}, 0, moving, expected);
    if (kBackward) measure_companions(problem_, {.scores = true, .shape = true}, moving, moving / 2, expected);
  }

 private:
  std::int64_t repeats_of_problem() const {
    return sample_.complete ? std::max<std::int64_t>(repeats(flops(problem_)), 2) : 1;
  }
  bool has_companions(double flops_of_one) const {
    return sample_.complete && flops_of_one > 0 && flops_of_one <= kCompanionFlops;
  }

  void measure_problem(std::int64_t first, std::int64_t count, Expectation& expected) const {
    for (std::int64_t n = first; n < first + count; ++n)
      raise_bounds(problem_, tensors_, sample_, n, nullptr, expected);
  }

  void measure_companions(const AttentionProblem& problem, Keeps keeps, std::int64_t first, std::int64_t count,
                          Expectation& expected) const {
    for (std::int64_t n = first; n < first + count; ++n) {
      const Companion companion(problem, tensors_, static_cast<std::uint64_t>(n), keeps);
      Sample all = sample_of(companion.problem(), 0);
      const auto& moved = [&companion]() -> const Tensors& {
        if constexpr (kBackward) {
          return companion.backward();
        } else {
          return companion.forward();
        }
      }();
      if constexpr (kBackward) all = known_to_backward(companion.problem(), moved, std::move(all));
      const Values reference = evaluate_reference(companion.problem(), moved, all);
      raise_bounds(companion.problem(), moved, all, n, &reference, expected);
    }
  }

  // A null `reference` means that of `expected`, for the problem itself.
  void raise_bounds(const AttentionProblem& problem, const Tensors& tensors, const Sample& sample, std::int64_t n,
                    const Values* reference, Expectation& expected) const {
    const auto raise = [&](const PlainVariant& variant) {
      const Values plain = [&] {
        if constexpr (kBackward) {
          return evaluate_plain(problem, tensors, sample, variant, reference == nullptr ? before_ : Gradients{});
        } else {
          return evaluate_plain(problem, tensors, sample, variant);
        }
      }();
      for (ExpectedTensor& tensor : expected.tensors) {
        const RowValues& wanted = reference != nullptr ? tensor_of(*reference, tensor.name) : tensor.reference;
        tensor.bound.plain.raise_to(error_of(tensor_of(plain, tensor.name), wanted));
      }
    };
    PlainVariant variant = plain_variant(n);
    raise(variant);
    variant.tensor_cores = may_use_tensor_cores(problem_.device.kind, problem_.dtype) && !variant.fused;
    if (variant.tensor_cores) raise(variant);
  }

  AttentionProblem problem_;
  Tensors tensors_;
  Sample sample_;
  Gradients before_;
  std::vector<float> lse_;
};

template <class Tensors>
void measure(std::shared_ptr<const PlainErrors<Tensors>> errors, Expectation& expected) {
  errors->measure(expected);
  expected.measure_rest = [errors](Expectation& again) { errors->measure_rest(again); };
  expected.measure_more = [errors = std::move(errors)](Expectation& again) { errors->measure_more(again); };
}

}  // namespace

void measure_plain(const AttentionProblem& problem, const ForwardTensors& inputs, const Sample& sample,
                   Expectation& expected) {
  measure(std::make_shared<const PlainErrors<ForwardTensors>>(problem, inputs, sample), expected);
}

void measure_plain(const AttentionProblem& problem, const BackwardTensors& inputs, const Sample& sample,
                   const Gradients& before, std::vector<float> lse, Expectation& expected) {
  measure(std::make_shared<const PlainErrors<BackwardTensors>>(problem, inputs, sample, before, std::move(lse)),
          expected);
}

}  // namespace fovea::verification
