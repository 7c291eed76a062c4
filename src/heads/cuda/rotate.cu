// Rotates columns of rows where they lie. A thread block takes one position of some sequences, so it computes angles
// once. A thread reads 16 bytes at a time, several of them before it writes the first.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "cuda/ptx/grid_dependency.cuh"
#include "heads/cuda/angles.cuh"

namespace fovea::heads {
namespace {

constexpr int kAhead = 3;  // vectors that a thread reads before it writes

// Neighbouring columns: 16 bytes.
template <ElementKind kKind>
struct Vector {
  static constexpr int kColumns = kKind == ElementKind::fp32 ? 4 : 8;
  uint4 bits;

  __device__ __forceinline__ void to_floats(float (&values)[kColumns]) const {
    const unsigned words[4] = {bits.x, bits.y, bits.z, bits.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (kKind == ElementKind::fp32) {
        values[i] = __uint_as_float(words[i]);
      } else if constexpr (kKind == ElementKind::bf16) {
        values[2 * i] = __uint_as_float(words[i] << 16), values[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
      } else {
        const float2 two = __half22float2(reinterpret_cast<const __half2&>(words[i]));
        values[2 * i] = two.x, values[2 * i + 1] = two.y;
      }
    }
  }

  // Rounded to nearest even.
  __device__ __forceinline__ void from_floats(const float (&values)[kColumns]) {
    unsigned words[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (kKind == ElementKind::fp32) {
        words[i] = __float_as_uint(values[i]);
      } else if constexpr (kKind == ElementKind::bf16) {
        const __nv_bfloat162 two = __floats2bfloat162_rn(values[2 * i], values[2 * i + 1]);
        words[i] = reinterpret_cast<const unsigned&>(two);
      } else {
        const __half2 two = __floats2half2_rn(values[2 * i], values[2 * i + 1]);
        words[i] = reinterpret_cast<const unsigned&>(two);
      }
    }
    bits = make_uint4(words[0], words[1], words[2], words[3]);
  }
};

// Columns that a thread rotates at once: one vector of whole pairs, or with pairs in halves two vectors.
template <ElementKind kKind, bool kHalves>
struct Columns {
  using Row = Vector<kKind>;
  static constexpr int kPairs = kHalves ? Row::kColumns : Row::kColumns / 2;
  Row first, second;  // the second one only with pairs in halves

  __device__ __forceinline__ void read(const uint4* row, unsigned half) {
    first.bits = row[0];
    if constexpr (kHalves) second.bits = row[half];
  }
  __device__ __forceinline__ void write(uint4* row, unsigned half) const {
    row[0] = first.bits;
    if constexpr (kHalves) row[half] = second.bits;
  }
  __device__ __forceinline__ void rotate(const float2* angles, float direction) {
    float a[Row::kColumns], b[Row::kColumns];
    first.to_floats(a);
    if constexpr (kHalves) second.to_floats(b);
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      float &x = kHalves ? a[i] : a[2 * i], &y = kHalves ? b[i] : a[2 * i + 1];
      const float2 pair = rotated(make_float2(x, y), make_float2(angles[i].x, direction * angles[i].y));
      x = pair.x, y = pair.y;
    }
    first.from_floats(a);
    if constexpr (kHalves) second.from_floats(b);
  }
};

template <ElementKind kKind, bool kHalves>
__global__ void __launch_bounds__(kRotateThreads) rotate(const __grid_constant__ RotateParameters p) {
  extern __shared__ float2 angles[];
  using Item = Columns<kKind, kHalves>;
  constexpr int kVector = Vector<kKind>::kColumns;
  const std::int64_t position = blockIdx.x % p.len, first_batch = blockIdx.x / p.len * p.batches_each;
  const auto batches = static_cast<unsigned>(min(p.batches_each, p.batches - first_batch));
  const auto per_row = static_cast<unsigned>(p.rotation.pairs / Item::kPairs);
  const auto half = static_cast<unsigned>(p.rotation.pairs / kVector);
  const unsigned items = batches * p.heads * per_row;
  const std::int64_t first_element =
      first_batch * p.rows.batch_stride + position * p.rows.row_stride + p.rotation.first_column;
  const auto address_of = [&](unsigned item) {
    const unsigned row = item / per_row, batch = row / p.heads, head = row - batch * p.heads;
    return static_cast<uint4*>(p.rows.data) +
           (first_element + batch * p.rows.batch_stride + head * p.rows.head_stride) / kVector + (item - row * per_row);
  };
  cuda::ptx::griddepcontrol_wait();
  for (unsigned first = threadIdx.x; first - threadIdx.x < items; first += kAhead * kRotateThreads) {
    Item read[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const unsigned item = first + i * kRotateThreads;
      if (item < items) read[i].read(address_of(item), half);
    }
    if (first == threadIdx.x) {  // while the rows are on their way
      compute_angles(p.rotation, position, angles);
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const unsigned item = first + i * kRotateThreads;
      if (item >= items) continue;
      read[i].rotate(angles + item % per_row * Item::kPairs, p.direction);
      read[i].write(address_of(item), half);
    }
  }
}

template <ElementKind kKind>
const void* rotate_of(bool halves) {
  return halves ? reinterpret_cast<const void*>(&rotate<kKind, true>)
                : reinterpret_cast<const void*>(&rotate<kKind, false>);
}

}  // namespace

const void* rotate_kernel(ElementKind kind, bool halves) {
  if (kind == ElementKind::fp32) return rotate_of<ElementKind::fp32>(halves);
  return kind == ElementKind::bf16 ? rotate_of<ElementKind::bf16>(halves) : rotate_of<ElementKind::fp16>(halves);
}

}  // namespace fovea::heads
