// Tiny models by the rule of docs/numerics.md: their loss, every gradient, and the weights after three steps, against
// double precision. The plain evaluation is the CPU engine in fp32, and that of src/verification/model in bf16.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "expected_model.h"
#include "small_models.h"
#include "verification/comparer.h"
#include "verification/model/evaluation.h"

namespace fovea::model {

// The plain evaluation of a bf16 model.
verification::ModelAnswer<float> plain_answer(const ExpectedBatch& batch, const std::vector<float>& weights,
                                              const verification::PlainVariant& variant);
// The mean of the losses of all tokens.
double mean_of(const verification::Matrix<float>& losses);

// What a model has after some steps with batches of their own.
struct Outcome {
  double loss = 0, norm = 0;              // of the first step
  std::vector<double> losses;             // of the first step's tokens
  std::vector<float> gradients, weights;  // gradients of the first step, weights after the last one
};
Outcome outcome_on(Device device, const Config& config, const Extent& extent, const std::vector<float>& weights,
                   std::uint64_t seed, void* stream = nullptr);

// Rows of `columns` numbers.
template <class Number>
verification::RowValues rows_of(const std::vector<Number>& values, std::int64_t columns) {
  verification::RowValues rows{.rows = {}, .columns = columns, .values = {values.begin(), values.end()}};
  const auto count = static_cast<std::int64_t>(values.size()) / columns;
  for (std::int64_t row = 0; row < count; ++row) rows.rows.push_back({0, 0, row});
  return rows;
}
// The rows of one parameter.
template <class Number>
verification::RowValues part_of(const Parameter& one, const std::vector<Number>& all) {
  const auto first = all.begin() + one.offset;
  return rows_of(std::vector<Number>(first, first + one.count()), one.columns);
}

// The largest relative error that a plain evaluation may have: a reference that is wrong would allow any answer.
constexpr double most_plain(DType dtype) { return dtype == DType::fp32 ? 1e-5 : 0.1; }

// Empty, or the first thing wrong.
std::string fault_of(const verification::RowValues& got, const verification::RowValues& reference,
                     const verification::ErrorSize& plain, double factor, DType dtype = DType::fp32);

// Errors of few numbers are a matter of luck. So the largest plain error of several models counts, and of several
// neighbours of each. A neighbour is as hard a problem, and has other roundings: every weight is moved by up to 2^-8 of
// itself in bf16, and by up to 2^-16 in fp32.
class TinyModels {
 public:
  // Not 3: a row of its stream is almost 0. A norm makes its bf16 errors ten times those of the others.
  static constexpr std::array<std::uint64_t, 4> kSeeds{0, 1, 2, 4};
  explicit TinyModels(DType dtype);

  // What is compared, and what is wrong with it; empty if nothing is.
  struct Verdict {
    std::string what, fault;
  };
  std::vector<Verdict> judge(Device device, std::uint64_t seed);

 private:
  // The plain evaluation's errors, of the loss and of each parameter.
  struct PlainErrors {
    double loss = 0;
    std::vector<verification::ErrorSize> gradients, weights;
  };
  struct Expected {
    double loss = 0;
    std::vector<double> gradients, weights;
  };

  std::vector<float> neighbour(std::uint64_t seed, std::uint64_t number) const;
  Expected expected(const std::vector<float>& first, std::uint64_t seed) const;
  Outcome plain(const std::vector<float>& first, std::uint64_t seed, const verification::PlainVariant& variant) const;
  void measure(std::uint64_t seed, std::uint64_t begin, std::uint64_t end);
  std::vector<Verdict> verdicts(const Outcome& got, const Expected& expected) const;

  Config config_;
  ParameterMap map_;
  PlainErrors errors_;
};

}  // namespace fovea::model
