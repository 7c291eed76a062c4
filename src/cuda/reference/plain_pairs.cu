// Softmax and its gradient as a plain evaluation rounds them, step by step as verification's PlainHead. exp and log are
// those of double precision, rounded to fp32.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <numbers>

#include "cuda/reference/band.cuh"
#include "cuda/reference/reduce.cuh"

namespace fovea::cuda::reference {
namespace {

constexpr int kThreads = kReducedThreads;
constexpr std::int64_t kMostCtas = 1 << 20;  // they take rows in turn

// What the functions below read, besides the pairs themselves.
struct Rows {
  DeviceMatrix<float> scores;
  TermOrder order;         // of the keys
  float factor, unit;      // of scores, and of exponents: the scale in that unit
  const float* given_lse;  // null: sums are computed
  float *sum, *lse;        // null: not written
};

__device__ float stored(const PlainPairs& p, float value) {
  if (p.form.fused || p.stored == DType::fp32) return value;
  return p.stored == DType::bf16 ? __bfloat162float(__float2bfloat16_rn(value)) : __half2float(__float2half_rn(value));
}

__device__ float exponential(const PlainForm& form, float score, float factor, float largest) {
  const float exponent = form.fused ? __fmaf_rn(score, factor, -largest) : __fsub_rn(__fmul_rn(score, factor), largest);
  const double wide = exponent;
  return static_cast<float>(form.base_2 ? exp2(wide) : exp(wide));
}

__device__ float lse_of(const PlainForm& form, float largest, float sum) {
  const double wide = sum;
  if (!form.base_2) return __fadd_rn(largest, static_cast<float>(log(wide)));
  return __fmul_rn(__fadd_rn(largest, static_cast<float>(log2(wide))), std::numbers::ln2_v<float>);
}

// The threads divide the keys; one thread sums, in the form's order.
__global__ void softmax(PlainPairs p, Rows rows) {
  __shared__ float row_sum;
  for (std::int64_t i = blockIdx.x; i < rows.scores.rows; i += gridDim.x) {
    float* const row = rows.scores.data + i * rows.scores.row;
    const IndexRange seen = seen_by(i, p.band, rows.scores.columns);
    const bool is_given = rows.given_lse != nullptr;
    float largest = is_given ? __fmul_rn(rows.given_lse[i], rows.unit) : -HUGE_VALF;
    for (std::int64_t j = seen.begin + threadIdx.x; j < seen.end && !is_given; j += kThreads)
      largest = larger(largest, __fmul_rn(row[j], rows.factor));
    largest = reduce(largest, larger<float>);
    for (std::int64_t j = seen.begin + threadIdx.x; j < seen.end; j += kThreads)
      row[j] = exponential(p.form, row[j], rows.factor, largest);
    __syncthreads();
    if (threadIdx.x == 0) {
      float sum = 0;
      for (std::int64_t n = 0; n < seen.size() && !is_given; ++n) sum += row[rows.order.at(n, seen)];
      row_sum = is_given || seen.size() == 0 ? 1.0f : sum;
      if (rows.sum != nullptr) rows.sum[i] = row_sum;
      if (rows.lse != nullptr) rows.lse[i] = seen.size() == 0 ? -HUGE_VALF : lse_of(p.form, largest, sum);
    }
    __syncthreads();
    const float divisor = p.form.divided_last ? 1.0f : row_sum;
    for (std::int64_t j = seen.begin + threadIdx.x; j < seen.end; j += kThreads)
      row[j] = stored(p, __fdiv_rn(row[j], divisor));
    __syncthreads();  // the next row's sum overwrites this one's
  }
}

// Backwards: in the order of dout v, dP - delta would cancel exactly in rows that see one key.
__global__ void row_delta(PlainPairs p, DeviceMatrix<float> out, DeviceMatrix<float> dout, TermOrder order,
                          float* delta) {
  const IndexRange all{0, out.columns};
  const std::int64_t step = std::int64_t{gridDim.x} * kThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x; i < out.rows; i += step) {
    float sum = 0;
    for (std::int64_t n = out.columns - 1; n >= 0; --n) {
      const std::int64_t c = order.at(n, all);
      const float a = dout.data[i * dout.row + c * dout.column], b = out.data[i * out.row + c * out.column];
      sum = p.form.fused_delta ? __fmaf_rn(a, b, sum) : __fadd_rn(sum, __fmul_rn(a, b));
    }
    delta[i] = sum;
  }
}

__global__ void score_gradients(PlainPairs p, DeviceMatrix<float> probabilities, const float* delta,
                                DeviceMatrix<float> dp) {
  const float first = p.form.scaled_first ? p.scale : 1.0f, last = p.form.fused ? p.scale : 1.0f;
  for (std::int64_t i = blockIdx.x; i < dp.rows; i += gridDim.x) {
    const IndexRange seen = seen_by(i, p.band, dp.columns);
    for (std::int64_t j = seen.begin + threadIdx.x; j < seen.end; j += kThreads) {
      float& pair = dp.data[i * dp.row + j];
      const float ds = __fmul_rn(probabilities.data[i * probabilities.row + j], __fsub_rn(pair, delta[i]));
      pair = __fmul_rn(stored(p, __fmul_rn(ds, first)), last);
    }
  }
}

unsigned ctas_for(std::int64_t rows) { return static_cast<unsigned>(std::min(rows, kMostCtas)); }

void launch_softmax(const PlainPairs& pairs, const DeviceMatrix<float>& scores, const float* given_lse, float* sum,
                    float* lse) {
  if (scores.rows == 0) return;
  const float unit = pairs.form.base_2 ? std::numbers::log2e_v<float> : 1.0f;
  const Rows rows{scores, order_of(pairs.form, scores.columns), pairs.scale * unit, unit, given_lse, sum, lse};
  softmax<<<ctas_for(scores.rows), kThreads>>>(pairs, rows);
  check(cudaGetLastError(), "the plain softmax");
}

}  // namespace

void write_softmax(const PlainPairs& pairs, const DeviceMatrix<float>& scores, float* sum, float* lse) {
  launch_softmax(pairs, scores, nullptr, sum, lse);
}

void write_softmax_of_lse(const PlainPairs& pairs, const DeviceMatrix<float>& scores, const float* lse) {
  launch_softmax(pairs, scores, lse, nullptr, nullptr);
}

void write_delta(const PlainPairs& pairs, const DeviceMatrix<float>& out, const DeviceMatrix<float>& dout,
                 float* delta) {
  if (out.rows == 0) return;
  row_delta<<<ctas_for((out.rows + kThreads - 1) / kThreads), kThreads>>>(pairs, out, dout,
                                                                          order_of(pairs.form, out.columns), delta);
  check(cudaGetLastError(), "the plain delta");
}

void write_score_gradients(const PlainPairs& pairs, const DeviceMatrix<float>& probabilities, const float* delta,
                           const DeviceMatrix<float>& dp) {
  if (dp.rows == 0) return;
  score_gradients<<<ctas_for(dp.rows), kThreads>>>(pairs, probabilities, delta, dp);
  check(cudaGetLastError(), "the plain dS");
}

}  // namespace fovea::cuda::reference
