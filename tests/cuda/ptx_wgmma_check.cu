// src/cuda/ptx/wgmma.cuh on the device against a scalar model, bit for bit: every operand form, shape and swizzle.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <random>
#include <vector>

#include "cuda/attention/any/parameters.h"
#include "cuda/ptx/wgmma.cuh"
#include "cuda/runtime/launch.h"
#include "ptx_checks.h"

namespace fovea::cuda {
namespace {

constexpr int kRows = 64, kDepth = 32;  // of the left operand: two products of 16
constexpr int kGroup = 8;               // rows that are swizzled together

// Rows of `columns` numbers to shared memory, swizzled, every eight followed by as many bytes that nobody may read.
template <class Element>
__device__ void put(std::byte* shared, const float* from, int rows, int columns) {
  const int row_bytes = columns * 2, chunks = row_bytes / 16;
  for (int i = static_cast<int>(threadIdx.x); i < rows * columns; i += static_cast<int>(blockDim.x)) {
    const int row = i / columns, column = i % columns;
    const int place = (column / 8) ^ (chunks == 8 ? row % 8 : row / 2 % 4);
    const int offset = row / kGroup * 2 * kGroup * row_bytes + row % kGroup * row_bytes + place * 16 + column % 8 * 2;
    *reinterpret_cast<Element*>(shared + offset) = Element(from[i]);
  }
}

// c [64, kColumns] = a b^T with a [64, kWide], b [kColumns, kWide]; kWide columns of 16 bits are one swizzled row.
template <class Element, int kColumns, int kWide>
__global__ void multiply_transposed(const float* a, const float* b, float* c) {
  __shared__ __align__(1024) std::byte shared_a[2 * kRows * kWide * 2];
  __shared__ __align__(1024) std::byte shared_b[2 * kColumns * kWide * 2];
  if constexpr (ptx::kHasWgmma) {
    put<Element>(shared_a, a, kRows, kWide);
    put<Element>(shared_b, b, kColumns, kWide);
    ptx::fence_proxy_async();
    __syncthreads();
    const auto descriptor = [](const std::byte* shared) {
      return ptx::matrix_descriptor<kWide * 2>(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared)),
                                               2 * kGroup * kWide * 2);
    };
    float sum[2][kColumns / 4];
    for (auto& row : sum)
      for (float& value : row) value = 1e30f;  // the first product must not add to it
    ptx::wgmma_fence_operand(sum);
    ptx::wgmma_fence();
    ptx::wgmma_transposed<Element, false>(sum, descriptor(shared_a), descriptor(shared_b));
#pragma unroll
    for (std::uint64_t k = 1; k < kWide / 16; ++k)
      ptx::wgmma_transposed<Element, true>(sum, descriptor(shared_a) + 2 * k, descriptor(shared_b) + 2 * k);
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    ptx::wgmma_fence_operand(sum);
    const int lane = static_cast<int>(threadIdx.x) % 32, row = static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4;
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < kColumns / 4; ++j) c[(row + 8 * i) * kColumns + j / 2 * 8 + lane % 4 * 2 + j % 2] = sum[i][j];
  }
}

// c [64, kAll] += a b in its columns from kFirst, with a [64, 32] in registers, b [32, kColumns].
template <class Element, int kColumns, int kFirst>
__global__ void multiply(const float* a, const float* b, float* c) {
  constexpr int kAll = kFirst / 16 * 64 + kColumns;
  __shared__ __align__(1024) std::byte shared[2 * kDepth * kColumns * 2];
  if constexpr (ptx::kHasWgmma) {
    put<Element>(shared, b, kDepth, kColumns);
    ptx::fence_proxy_async();
    __syncthreads();
    const int lane = static_cast<int>(threadIdx.x) % 32, row = static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4;
    float sum[2][kAll / 4];
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < kAll / 4; ++j) sum[i][j] = c[(row + 8 * i) * kAll + j / 2 * 8 + lane % 4 * 2 + j % 2];
    std::uint32_t left[kDepth / 16][4];
    for (int k = 0; k < kDepth / 16; ++k) {
      for (int i = 0; i < 4; ++i) {
        const float* pair = a + (row + i % 2 * 8) * kDepth + 16 * k + i / 2 * 8 + lane % 4 * 2;
        const Element halves[2] = {Element(pair[0]), Element(pair[1])};
        memcpy(&left[k][i], halves, 4);
      }
    }
    const std::uint32_t stride = 2 * kGroup * kColumns * 2;
    const std::uint64_t right =
        ptx::matrix_descriptor<kColumns * 2>(static_cast<std::uint32_t>(__cvta_generic_to_shared(shared)), stride);
    ptx::wgmma_fence_operand(sum);
    ptx::wgmma_fence();
#pragma unroll
    for (int k = 0; k < kDepth / 16; ++k) {
      if constexpr (kColumns == 32) {
        ptx::wgmma_n32<Element>(sum, left[k], right + (2 * stride >> 4) * k);
      } else {
        ptx::wgmma_n64<Element, kFirst>(sum, left[k], right + (2 * stride >> 4) * k);
      }
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();
    ptx::wgmma_fence_operand(sum);
    for (int i = 0; i < 2; ++i)
      for (int j = 0; j < kAll / 4; ++j) c[(row + 8 * i) * kAll + j / 2 * 8 + lane % 4 * 2 + j % 2] = sum[i][j];
  }
}

// c [2, 64, 64]: a b^T and b a^T as two wgmma groups; the first is read while the second may still be in flight.
__global__ void multiply_in_groups(const float* a, const float* b, float* c) {
  __shared__ __align__(1024) std::byte shared[2][2 * kRows * 128];
  if constexpr (ptx::kHasWgmma) {
    put<__half>(shared[0], a, kRows, 64);
    put<__half>(shared[1], b, kRows, 64);
    ptx::fence_proxy_async();
    __syncthreads();
    const auto descriptor = [](const std::byte* tile) {
      return ptx::matrix_descriptor<128>(static_cast<std::uint32_t>(__cvta_generic_to_shared(tile)), 2 * kGroup * 128);
    };
    float first[2][16], second[2][16];
    const auto begin = [&](float(&sum)[2][16], const std::byte* left, const std::byte* right) {
      ptx::wgmma_fence_operand(sum);
      ptx::wgmma_fence();
      ptx::wgmma_transposed<__half, false>(sum, descriptor(left), descriptor(right));
#pragma unroll
      for (std::uint64_t k = 1; k < 4; ++k)
        ptx::wgmma_transposed<__half, true>(sum, descriptor(left) + 2 * k, descriptor(right) + 2 * k);
      ptx::wgmma_commit();
    };
    const auto store = [c](const float(&sum)[2][16], int group) {
      const int lane = static_cast<int>(threadIdx.x) % 32, row = static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4;
      for (int i = 0; i < 2; ++i)
        for (int j = 0; j < 16; ++j)
          c[group * kRows * 64 + (row + 8 * i) * 64 + j / 2 * 8 + lane % 4 * 2 + j % 2] = sum[i][j];
    };
    begin(first, shared[0], shared[1]);
    begin(second, shared[1], shared[0]);
    ptx::wgmma_wait<1>();
    ptx::wgmma_fence_operand(first);
    store(first, 0);
    ptx::wgmma_wait<0>();
    ptx::wgmma_fence_operand(second);
    store(second, 1);
  }
}

std::vector<float> integers(int count, std::mt19937& random) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(static_cast<int>(random() % 33) - 16);
  return values;
}

__global__ void tell(int* has) { *has = ptx::kHasWgmma; }

bool has_wgmma() {
  const OnDevice<int> has(std::vector<int>(1));
  tell<<<1, 1>>>(has.data());
  return has.read().front() != 0;
}

// The host plans with what the probe tells.
bool probe_tells() {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  return threads_allowed(any::wgmma_probe(), device) == (has_wgmma() ? any::kWarpgroup : any::kWarp);
}

template <class Element, int kColumns, int kWide>
bool transposed_is_exact() {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    const auto a = integers(kRows * kWide, random), b = integers(kColumns * kWide, random);
    std::vector<float> wanted(kRows * kColumns);
    for (std::size_t i = 0; i < kRows; ++i) {
      for (std::size_t j = 0; j < kColumns; ++j) {
        for (std::size_t k = 0; k < kWide; ++k) wanted[i * kColumns + j] += a[i * kWide + k] * b[j * kWide + k];
      }
    }
    const OnDevice<float> a_device(a), b_device(b), c_device(std::vector<float>(wanted.size(), -1.0f));
    multiply_transposed<Element, kColumns, kWide><<<1, 128>>>(a_device.data(), b_device.data(), c_device.data());
    if (c_device.read() != wanted) return false;
  }
  return true;
}

template <class Element, int kColumns, int kFirst>
bool product_is_exact() {
  constexpr std::size_t kAll = kFirst / 16 * 64 + kColumns, kFirstColumn = kAll - kColumns;
  std::mt19937 random(4);
  for (int round = 0; round < 50; ++round) {
    const auto a = integers(kRows * kDepth, random), b = integers(kDepth * kColumns, random);
    auto c = integers(kRows * static_cast<int>(kAll), random);
    const OnDevice<float> a_device(a), b_device(b), c_device(c);
    for (std::size_t i = 0; i < kRows; ++i) {
      for (std::size_t j = 0; j < kColumns; ++j) {
        for (std::size_t k = 0; k < kDepth; ++k)
          c[i * kAll + kFirstColumn + j] += a[i * kDepth + k] * b[k * kColumns + j];
      }
    }
    multiply<Element, kColumns, kFirst><<<1, 128>>>(a_device.data(), b_device.data(), c_device.data());
    if (c_device.read() != c) return false;
  }
  return true;
}

bool groups_come_in_order() {
  std::mt19937 random(5);
  for (int round = 0; round < 50; ++round) {
    const auto a = integers(kRows * 64, random), b = integers(kRows * 64, random);
    std::vector<float> wanted(2 * kRows * 64);
    for (std::size_t i = 0; i < kRows; ++i) {
      for (std::size_t j = 0; j < kRows; ++j) {
        for (std::size_t k = 0; k < 64; ++k) wanted[i * 64 + j] += a[i * 64 + k] * b[j * 64 + k];
        wanted[kRows * 64 + j * 64 + i] = wanted[i * 64 + j];
      }
    }
    const OnDevice<float> a_device(a), b_device(b), c_device(std::vector<float>(wanted.size(), -1.0f));
    multiply_in_groups<<<1, 128>>>(a_device.data(), b_device.data(), c_device.data());
    if (c_device.read() != wanted) return false;
  }
  return true;
}

}  // namespace

std::span<const NamedCheck> wgmma_checks() {
  static constexpr NamedCheck kChecks[] = {
      {"wgmma_probe", probe_tells},
      {"wgmma_transposed m64n32, 128-byte rows, bf16", transposed_is_exact<__nv_bfloat16, 32, 64>},
      {"wgmma_transposed m64n32, 128-byte rows, fp16", transposed_is_exact<__half, 32, 64>},
      {"wgmma_transposed m64n32, 64-byte rows, bf16", transposed_is_exact<__nv_bfloat16, 32, 32>},
      {"wgmma_transposed m64n32, 64-byte rows, fp16", transposed_is_exact<__half, 32, 32>},
      {"wgmma_transposed m64n64, 128-byte rows, bf16", transposed_is_exact<__nv_bfloat16, 64, 64>},
      {"wgmma_transposed m64n64, 128-byte rows, fp16", transposed_is_exact<__half, 64, 64>},
      {"wgmma_transposed m64n64, 64-byte rows, bf16", transposed_is_exact<__nv_bfloat16, 64, 32>},
      {"wgmma_transposed m64n64, 64-byte rows, fp16", transposed_is_exact<__half, 64, 32>},
      {"wgmma_wait, of two groups", groups_come_in_order},
      {"wgmma_n32, bf16", product_is_exact<__nv_bfloat16, 32, 0>},
      {"wgmma_n32, fp16", product_is_exact<__half, 32, 0>},
      {"wgmma_n64, bf16", product_is_exact<__nv_bfloat16, 64, 0>},
      {"wgmma_n64, fp16", product_is_exact<__half, 64, 0>},
      {"wgmma_n64, columns from 64 on, bf16", product_is_exact<__nv_bfloat16, 64, 16>},
      {"wgmma_n64, columns from 64 on, fp16", product_is_exact<__half, 64, 16>}};
  if (has_wgmma()) return kChecks;
  std::printf("wgmma: not in this build's code for this device, its products are not checked\n");
  return std::span(kChecks).first(1);
}

}  // namespace fovea::cuda
