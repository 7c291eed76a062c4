// Sums over the pairs that a mask shows: one thread block per row of the results, one thread per column.
#include <cuda_runtime_api.h>

#include <algorithm>

#include "cuda/reference/band.cuh"

namespace fovea::cuda::reference {
namespace {

constexpr int kThreads = 128;
constexpr std::int64_t kMostCtas = 1 << 20;  // they take rows in turn

template <class Number>
struct SeenSums {
  DeviceMatrix<Number> pairs;
  Band band;
  DeviceMatrix<Number> b, results;
  TermOrder order;
  bool starts_from_results;
  Number factor;
  const Number* divisors;
};

__device__ double scaled_and_added(double result, double sum, double factor) { return result + sum * factor; }
__device__ float scaled_and_added(float result, float sum, float factor) {
  return __fadd_rn(result, __fmul_rn(sum, factor));
}

template <class Sum>
__global__ void seen_sums(SeenSums<typename Sum::Number> p) {
  using Number = typename Sum::Number;
  for (std::int64_t i = blockIdx.x; i < p.results.rows; i += gridDim.x) {
    const IndexRange seen = seen_by(i, p.band, p.pairs.columns);
    const Number* const pairs = p.pairs.data + i * p.pairs.row;
    for (std::int64_t c = threadIdx.x; c < p.results.columns; c += kThreads) {
      Number& result = p.results.data[i * p.results.row + c * p.results.column];
      Sum sum;
      if (p.starts_from_results) sum.value = result;
      for (std::int64_t first = 0; first < seen.size(); first += kTermsAtOnce) {
        const auto for_each_term = [&](const auto& work) {
          for (std::int64_t n = first; n < first + kTermsAtOnce && n < seen.size(); ++n) {
            const std::int64_t term = p.order.at(n, seen);
            work(pairs[term * p.pairs.column], p.b.data[term * p.b.row + c * p.b.column]);
          }
        };
        if constexpr (Sum::kAligns) {
          for_each_term([&sum](auto x, auto y) { sum.see(x, y); });
          sum.align();
        }
        for_each_term([&sum](auto x, auto y) { sum.add(x, y); });
        sum.round();
      }
      const Number value = p.starts_from_results ? sum.value : scaled_and_added(result, sum.value, p.factor);
      result = p.divisors == nullptr ? value : value / p.divisors[i];
    }
  }
}

template <class Sum>
void launch(const SeenSums<typename Sum::Number>& p) {
  if (p.results.rows == 0 || p.results.columns == 0) return;
  seen_sums<Sum><<<static_cast<unsigned>(std::min(p.results.rows, kMostCtas)), kThreads>>>(p);
  check(cudaGetLastError(), "the reference's sums over pairs");
}

}  // namespace

Band band_of(const AttentionProblem& p) {
  const std::int64_t all = p.len_q + p.len_k;  // a bound that hides nothing
  const bool bottom_right = p.mask.alignment == Mask::Alignment::bottom_right;
  return {bottom_right ? p.len_k - p.len_q : 0, std::min(p.mask.left, all), std::min(p.mask.right, all)};
}

void add_seen_sums(const DeviceMatrix<double>& pairs, const Band& band, const DeviceMatrix<double>& b,
                   const DeviceMatrix<double>& results) {
  launch<ExactSum>({pairs, band, b, results, {}, false, 1, nullptr});
}

void add_seen_sums(const DeviceMatrix<float>& pairs, const Band& band, const DeviceMatrix<float>& b,
                   const DeviceMatrix<float>& results, const PlainForm& form, float factor, const float* divisors) {
  const SeenSums<float> sums{pairs, band, b, results, order_of(form, pairs.columns), form.fused, factor, divisors};
  with_sum_of(form, [&sums](auto sum) { launch<decltype(sum)>(sums); });
}

}  // namespace fovea::cuda::reference
