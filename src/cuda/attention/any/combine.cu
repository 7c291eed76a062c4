// Split-KV combine, and the same for gradients. Partials are summed in a fixed order, so every run gives the same bits.
#include "cuda/attention/any/parameters.h"
#include "cuda/attention/any/work_tile.cuh"
#include "cuda/device/sequence.cuh"
#include "cuda/device/softmax.cuh"
#include "cuda/device/store.cuh"
#include "cuda/ptx/grid_dependency.cuh"

namespace fovea::cuda::any {
namespace {

constexpr int kVector = 4;            // columns per thread, as in threads_of_row()
constexpr int kSplitsAtOnce = 4;      // splits that a thread of combine_gradients has in flight
static_assert(kMaxSplits <= 2 * 32);  // a lane of combine_forward holds the states of two splits at most

__device__ __forceinline__ void read_partial(float (&values)[kVector], const float* row, int column, int dim) {
  if (dim % kVector == 0) {
    *reinterpret_cast<float4*>(values) = *reinterpret_cast<const float4*>(row + column);
  } else {
#pragma unroll
    for (int i = 0; i < kVector; ++i) values[i] = column + i < dim ? row[column + i] : 0.0f;
  }
}

// One warp per row. Each lane computes the rescale factors of one or two splits. Then the warp's lanes form
// `groups` groups; group g sums splits g, g + groups, ...
template <class Element>
__global__ void __launch_bounds__(kCombineThreads) combine_forward(const __grid_constant__ CombineForwardParameters p) {
  ptx::griddepcontrol_wait();
  const Shape& s = p.shape;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const std::int64_t rows = static_cast<std::int64_t>(s.batch) * s.heads_q * s.len_q;
  const std::int64_t row = (static_cast<std::int64_t>(blockIdx.x) * kCombineThreads + threadIdx.x) / 32;
  if (row >= rows) return;
  const std::int64_t query = row % s.len_q, sequence = row / s.len_q;
  const int splits = splits_of_query(s, p.split, static_cast<int>(query));
  PartialState states[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int split = lane + 32 * i;
    states[i] = split < splits ? p.partial_state[split * rows + row] : PartialState{-kInfinity, 0.0f};
  }
  const float maximum = lanes_max<32>(fmaxf(states[0].maximum, states[1].maximum));
  const float row_max = finite_max(maximum);
  float factors[2], sum = 0.0f;
  unsigned written[2];  // bit masks: 0 for a split that saw no score above -inf, and wrote no partial
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    written[i] = __ballot_sync(0xffffffffu, states[i].sum != 0.0f);
    factors[i] = AccurateExp::scaled(states[i].maximum - row_max, s);
    sum = fmaf(factors[i], states[i].sum, sum);
  }
  const FinalRow done = finalize_row(maximum, lanes_sum<32>(sum), s, static_cast<int>(query));
  const auto offset = [&](const TensorRef& t) {
    return row_offset(t, sequence / s.heads_q, sequence % s.heads_q, query);
  };
  if (lane == 0 && p.lse.data != nullptr) static_cast<float*>(p.lse.data)[offset(p.lse)] = done.lse;
  const int width = threads_of_row(s.dim_v), group = lane / width, groups = 32 / width;
  for (int first = 0; first < s.dim_v; first += width * kVector) {
    const int column = first + lane % width * kVector;
    float result[kVector] = {};
#pragma unroll 4
    for (int i = 0; i < splits; i += groups) {
      const int split = i + group, half = i / 32;
      const float factor = __shfl_sync(0xffffffffu, half == 0 ? factors[0] : factors[1], split % 32);
      float values[kVector] = {};
      if (column < s.dim_v && ((half == 0 ? written[0] : written[1]) >> split % 32 & 1) != 0)
        read_partial(values, p.partial_out + (split * rows + row) * s.dim_v, column, s.dim_v);
#pragma unroll
      for (int j = 0; j < kVector; ++j) result[j] = fmaf(factor, values[j], result[j]);
    }
#pragma unroll
    for (int j = 0; j < kVector; ++j) {
      for (int step = width; step < 32; step *= 2) result[j] += __shfl_xor_sync(0xffffffffu, result[j], step);
      result[j] *= done.inverse_sum;
    }
    if (group == 0 && column < s.dim_v) store<Element, kVector>(p.out, offset(p.out), column, s.dim_v, false, result);
  }
}

// `threads` threads per row, which add the splits in order.
template <class Element>
__global__ void __launch_bounds__(kCombineThreads)
    combine_gradients(const __grid_constant__ CombineGradientsParameters p) {
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const unsigned cta = blockIdx.x;
  const int last = p.count - 1;
  const PartialGradient& gradient = p.gradients[cta >= p.gradients[last].first_cta ? last
                                                : cta >= p.gradients[1].first_cta  ? 1
                                                                                   : 0];
  const int threads = threads_of_row(gradient.dim), lane = static_cast<int>(threadIdx.x) % threads;
  const std::int64_t rows = static_cast<std::int64_t>(p.shape.batch) * gradient.heads * gradient.len;
  const std::int64_t thread = static_cast<std::int64_t>(cta - gradient.first_cta) * kCombineThreads + threadIdx.x;
  const std::int64_t row = thread / threads;
  if (row >= rows) return;
  const std::int64_t index = row % gradient.len, sequence = row / gradient.len;
  const std::int64_t offset = row_offset(gradient.result, sequence / gradient.heads, sequence % gradient.heads, index);
  const int splits = gradient.is_dkdv ? splits_of_key(p.shape, gradient.split, static_cast<int>(index))
                                      : splits_of_query(p.shape, gradient.split, static_cast<int>(index));
  for (int column = lane * kVector; column < gradient.dim; column += threads * kVector) {
    float result[kVector] = {};
    for (int first = 0; first < splits; first += kSplitsAtOnce) {
      float values[kSplitsAtOnce][kVector] = {};
#pragma unroll
      for (int i = 0; i < kSplitsAtOnce; ++i) {
        if (first + i < splits)
          read_partial(values[i], gradient.partial + ((first + i) * rows + row) * gradient.dim, column, gradient.dim);
      }
#pragma unroll
      for (int i = 0; i < kSplitsAtOnce; ++i) {
#pragma unroll
        for (int j = 0; j < kVector; ++j) result[j] += values[i][j];
      }
    }
    store<Element, kVector>(gradient.result, offset, column, gradient.dim, p.accumulate, result);
  }
}

}  // namespace

const void* combine_forward_function(ElementKind kind) {
  return by_kind(kind, reinterpret_cast<const void*>(&combine_forward<float>),
                 reinterpret_cast<const void*>(&combine_forward<__nv_bfloat16>),
                 reinterpret_cast<const void*>(&combine_forward<__half>));
}

const void* combine_gradients_function(ElementKind kind) {
  return by_kind(kind, reinterpret_cast<const void*>(&combine_gradients<float>),
                 reinterpret_cast<const void*>(&combine_gradients<__nv_bfloat16>),
                 reinterpret_cast<const void*>(&combine_gradients<__half>));
}

}  // namespace fovea::cuda::any
