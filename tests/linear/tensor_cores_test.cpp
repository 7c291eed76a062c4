// The rule for products on a GPU allows the roundings of its tensor cores. No GPU is needed: the sums are simulated.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "linear/reference.h"
#include "linear_tensors.h"
#include "verification/row_sums.h"

namespace fovea::linear {
namespace {

using verification::expect_linear_backward;
using verification::Expectation;

void make_positive(TestTensor& tensor) {
  tensor.for_each([&](std::int64_t index) { tensor.set(index, std::fabs(tensor.at(index))); });
}

// Sums of positive terms: tensor cores round each toward zero, so that errors add up. First the terms of even number,
// then the others, an order that the rule itself does not evaluate.
void sum_on_tensor_cores(const SumsOfProducts& sums, TestTensor& result) {
  for (std::int64_t row = 0; row < sums.rows; ++row) {
    std::vector<float> terms(static_cast<std::size_t>(sums.terms * sums.columns));
    verification::RowSums on_tensor_cores(sums.columns, verification::Rounding::tensor_cores);
    for (std::int64_t n = 0; n < sums.terms; ++n) {
      const std::int64_t even = (sums.terms + 1) / 2, t = n < even ? 2 * n : 2 * (n - even) + 1;
      float* const of_columns = terms.data() + t * sums.columns;
      for (std::int64_t column = 0; column < sums.columns; ++column) of_columns[column] = sums.b(column, t);
      on_tensor_cores.add(sums.a(row, t), of_columns);
    }
    const std::vector<float>& found = on_tensor_cores.finish();
    for (std::int64_t column = 0; column < sums.columns; ++column)
      result.set(row * sums.columns + column, found[static_cast<std::size_t>(column)]);
  }
}

TEST(TensorCores, SumsAreAllowedOnAGpuOnly) {
  TestTensor x({1, 1, 2000, 12}, DType::bf16, Order::dense, 1), weight({1, 1, 10, 12}, DType::bf16, Order::dense, 2),
      dy({1, 1, 2000, 10}, DType::bf16, Order::dense, 3), dweight({1, 1, 10, 12}, DType::fp32, Order::dense, 0);
  make_positive(x), make_positive(dy);
  LinearBackwardTensors t{.x = x.view, .weight = weight.view, .dy = dy.view};
  t.dweight = dweight.view;
  sum_on_tensor_cores(sums_of_dweight(t), dweight);
  EXPECT_EQ(fault_of(expect_linear_backward(t, {}, 1, DeviceKind::cuda), {{"dweight", t.dweight}}), "");
  EXPECT_NE(fault_of(expect_linear_backward(t, {}, 1, DeviceKind::cpu), {{"dweight", t.dweight}}), "");
}

TEST(TensorCores, BoundsOfBiasGradientsAndOfFp32StayTheSame) {
  const auto bounds_of = [](DType dtype, DeviceKind device) {
    const TestTensor x({1, 1, 500, 6}, dtype, Order::dense, 1), weight({1, 1, 5, 6}, dtype, Order::dense, 2),
        dy({1, 1, 500, 5}, dtype, Order::dense, 3), dweight({1, 1, 5, 6}, DType::fp32, Order::dense, 0),
        dbias({1, 1, 1, 5}, DType::fp32, Order::dense, 0);
    LinearBackwardTensors t{.x = x.view, .weight = weight.view, .dy = dy.view};
    t.dweight = dweight.view, t.dbias = dbias.view;
    std::vector<double> errors;
    for (const auto& one : expect_linear_backward(t, {}, 1, device).tensors) errors.push_back(one.bound.plain.rel_l2);
    return errors;
  };
  const std::vector<double> on_gpu = bounds_of(DType::bf16, DeviceKind::cuda),
                            on_cpu = bounds_of(DType::bf16, DeviceKind::cpu);
  ASSERT_EQ(on_gpu.size(), 2u);
  EXPECT_GT(on_gpu[0], on_cpu[0]);  // of dweight
  EXPECT_EQ(on_gpu[1], on_cpu[1]);  // of dbias
  EXPECT_EQ(bounds_of(DType::fp32, DeviceKind::cuda), bounds_of(DType::fp32, DeviceKind::cpu));
}

}  // namespace
}  // namespace fovea::linear
