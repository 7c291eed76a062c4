// Softmax and its gradient in double precision: one thread block per row, whose threads divide its keys.
#include <cuda_runtime_api.h>

#include <algorithm>

#include "cuda/reference/band.cuh"
#include "cuda/reference/reduce.cuh"

namespace fovea::cuda::reference {
namespace {

constexpr int kThreads = kReducedThreads;
constexpr std::int64_t kMostCtas = 1 << 20;  // they take rows in turn

__global__ void softmax(DeviceMatrix<double> scores, Band band, double scale) {
  for (std::int64_t i = blockIdx.x; i < scores.rows; i += gridDim.x) {
    double* const row = scores.data + i * scores.row;
    const IndexRange seen = seen_by(i, band, scores.columns);
    double largest = -HUGE_VAL, sum = 0;
    int is_nan = 0;
    for (std::int64_t j = seen.begin + threadIdx.x; j < seen.end; j += kThreads) {
      row[j] *= scale;
      largest = larger(largest, row[j]);
      is_nan |= isnan(row[j]);
    }
    is_nan = __syncthreads_or(is_nan);
    largest = reduce(largest, larger<double>);
    for (std::int64_t j = seen.begin + threadIdx.x; j < seen.end && largest != -HUGE_VAL; j += kThreads) {
      row[j] = exp(row[j] - largest);
      sum += row[j];
    }
    sum = reduce(sum, sum_of<double>);
    for (std::int64_t j = seen.begin + threadIdx.x; j < seen.end; j += kThreads)
      row[j] = is_nan ? nan("") : sum > 0 ? row[j] / sum : 0;
  }
}

__global__ void score_gradients(DeviceMatrix<double> probabilities, DeviceMatrix<double> dp, Band band, double scale) {
  for (std::int64_t i = blockIdx.x; i < dp.rows; i += gridDim.x) {
    const double* const p = probabilities.data + i * probabilities.row;
    double* const row = dp.data + i * dp.row;
    const IndexRange seen = seen_by(i, band, dp.columns);
    double delta = 0;
    for (std::int64_t j = seen.begin + threadIdx.x; j < seen.end; j += kThreads) delta += p[j] * row[j];
    delta = reduce(delta, sum_of<double>);
    for (std::int64_t j = seen.begin + threadIdx.x; j < seen.end; j += kThreads)
      row[j] = scale * (p[j] * (row[j] - delta));
  }
}

unsigned ctas_for(std::int64_t rows) { return static_cast<unsigned>(std::min(rows, kMostCtas)); }

}  // namespace

void write_softmax(const DeviceMatrix<double>& scores, const Band& band, double scale) {
  if (scores.rows == 0) return;
  softmax<<<ctas_for(scores.rows), kThreads>>>(scores, band, scale);
  check(cudaGetLastError(), "the reference's softmax");
}

void write_score_gradients(const DeviceMatrix<double>& probabilities, const DeviceMatrix<double>& dp, const Band& band,
                           double scale) {
  if (dp.rows == 0) return;
  score_gradients<<<ctas_for(dp.rows), kThreads>>>(probabilities, dp, band, scale);
  check(cudaGetLastError(), "the reference's dS");
}

}  // namespace fovea::cuda::reference
