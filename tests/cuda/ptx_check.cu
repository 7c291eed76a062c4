// Every function of src/cuda/ptx on the device against a scalar model: bit for bit wherever the numbers are integers.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <random>
#include <vector>

#include "core/float16.h"
#include "cuda/ptx/arithmetic.cuh"
#include "cuda/ptx/cp_async.cuh"
#include "cuda/ptx/ldmatrix.cuh"
#include "cuda/ptx/mma.cuh"
#include "cuda/ptx/special_registers.cuh"
#include "cuda/runtime/check.h"
#include "cuda/runtime/launch.h"
#include "on_device.h"
#include "ptx_checks.h"
#include "verification/row_sums.h"

namespace fovea::cuda {
namespace {

constexpr int kRounds = 200;

template <class Element>
constexpr DType kType = std::is_same_v<Element, __half> ? DType::fp16 : DType::bf16;

std::uint16_t bits_of(DType type, float value) {
  std::uint16_t bits = 0;
  core::store_from_float(&bits, type, 0, value);
  return bits;
}

float value_of(DType type, std::uint16_t bits) { return core::load_as_float(&bits, type, 0); }

std::vector<std::uint16_t> integers(DType type, int count, int reach, std::mt19937& random) {
  std::vector<std::uint16_t> values(static_cast<std::size_t>(count));
  std::uniform_int_distribution<int> draw(-reach, reach);
  for (auto& value : values) value = bits_of(type, static_cast<float>(draw(random)));
  return values;
}

// a [16, 16], b [8, 16] (its transpose), c [16, 8]: fragments as ptx/mma.cuh says.
template <class Element>
__global__ void multiply(const std::uint32_t* a, const std::uint32_t* b, float* c) {
  const int g = static_cast<int>(threadIdx.x) / 4, t = static_cast<int>(threadIdx.x) % 4;
  const std::uint32_t ra[4] = {a[g * 8 + t], a[(g + 8) * 8 + t], a[g * 8 + t + 4], a[(g + 8) * 8 + t + 4]};
  float *const upper = c + g * 8 + 2 * t, *const lower = upper + 64;
  ptx::mma_m16n8k16<Element>(upper[0], upper[1], lower[0], lower[1], ra, b[g * 8 + t], b[g * 8 + t + 4]);
}

std::vector<std::uint32_t> words_of(const std::vector<std::uint16_t>& halves) {
  std::vector<std::uint32_t> words(halves.size() / 2);
  for (std::size_t i = 0; i < words.size(); ++i) words[i] = halves[2 * i] | std::uint32_t{halves[2 * i + 1]} << 16;
  return words;
}

template <class Element>
bool mma_is_exact() {
  constexpr DType type = kType<Element>;
  std::mt19937 random(1);
  for (int round = 0; round < kRounds; ++round) {
    const auto a = integers(type, 256, 16, random), b = integers(type, 128, 16, random);
    std::vector<float> c(128);
    for (float& value : c) value = static_cast<float>(static_cast<int>(random() % 4001) - 2000);
    const OnDevice<std::uint32_t> a_device(words_of(a)), b_device(words_of(b));
    const OnDevice<float> c_device(c);
    multiply<Element><<<1, 32>>>(a_device.data(), b_device.data(), c_device.data());
    for (std::size_t i = 0; i < 16; ++i) {
      for (std::size_t j = 0; j < 8; ++j) {
        for (std::size_t k = 0; k < 16; ++k)
          c[i * 8 + j] += value_of(type, a[i * 16 + k]) * value_of(type, b[j * 16 + k]);
      }
    }
    if (c_device.read() != c) return false;
  }
  return true;
}

// Random numbers of `orders` binary orders, whose sums round.
std::vector<std::uint16_t> numbers(DType type, int count, int orders, std::mt19937& random) {
  std::vector<std::uint16_t> values(static_cast<std::size_t>(count));
  std::normal_distribution<float> draw;
  for (auto& value : values)
    value = bits_of(type, std::ldexp(draw(random), -static_cast<int>(random() % static_cast<unsigned>(orders))));
  return values;
}

// Verification simulates tensor cores (Rounding::tensor_cores): on Hopper bit for bit.
template <class Element>
bool mma_rounds_as_simulated() {
  int generation = 0;
  check(cudaDeviceGetAttribute(&generation, cudaDevAttrComputeCapabilityMajor, 0), "cudaDeviceGetAttribute");
  if (generation != 9) {
    std::printf("PTX tensor cores of compute capability %d.x are not compared with their simulation\n", generation);
    return true;
  }
  constexpr DType type = kType<Element>;
  std::mt19937 random(4);
  for (int round = 0; round < kRounds; ++round) {
    const auto a = numbers(type, 256, 1 + round % 12, random), b = numbers(type, 128, 1 + round % 7, random);
    std::vector<float> c(128), columns(128);
    for (float& value : c) value = std::ldexp(static_cast<float>(random()), -30 - round % 10);
    const OnDevice<std::uint32_t> a_device(words_of(a)), b_device(words_of(b));
    const OnDevice<float> c_device(c);
    multiply<Element><<<1, 32>>>(a_device.data(), b_device.data(), c_device.data());
    for (std::size_t k = 0; k < 16; ++k) {
      for (std::size_t j = 0; j < 8; ++j) columns[k * 8 + j] = value_of(type, b[j * 16 + k]);
    }
    for (std::size_t i = 0; i < 16; ++i) {
      verification::RowSums sums(8, verification::Rounding::tensor_cores);
      std::copy_n(&c[i * 8], 8, sums.finish().begin());
      for (std::size_t k = 0; k < 16; ++k) sums.add(value_of(type, a[i * 16 + k]), &columns[k * 8]);
      std::copy_n(sums.finish().begin(), 8, &c[i * 8]);
    }
    if (c_device.read() != c) return false;
  }
  return true;
}

// The rows of four matrices lie where `rows` says, in any order.
template <bool kTransposed>
__global__ void load_matrices(const uint4* memory, const int* rows, std::uint32_t* registers) {
  __shared__ uint4 shared[64];
  for (int i = static_cast<int>(threadIdx.x); i < 64; i += 32) shared[i] = memory[i];
  __syncwarp();
  std::uint32_t r[4];
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared + rows[threadIdx.x]));
  if constexpr (kTransposed) {
    ptx::ldmatrix_x4_trans(r, address);
  } else {
    ptx::ldmatrix_x4(r, address);
  }
  for (int i = 0; i < 4; ++i) registers[threadIdx.x * 4 + static_cast<unsigned>(i)] = r[i];
}

template <bool kTransposed>
bool ldmatrix_is_exact() {
  std::mt19937 random(2);
  std::vector<std::uint16_t> memory(512);  // 64 rows of 8
  std::iota(memory.begin(), memory.end(), std::uint16_t{1000});
  std::vector<uint4> chunks(64);
  std::copy(memory.begin(), memory.end(), reinterpret_cast<std::uint16_t*>(chunks.data()));
  const OnDevice<uint4> memory_device(chunks);
  for (int round = 0; round < kRounds; ++round) {
    std::vector<int> rows(64);
    std::iota(rows.begin(), rows.end(), 0);
    std::shuffle(rows.begin(), rows.end(), random);
    const OnDevice<int> rows_device(rows);
    const OnDevice<std::uint32_t> registers(std::vector<std::uint32_t>(128));
    load_matrices<kTransposed><<<1, 32>>>(memory_device.data(), rows_device.data(), registers.data());
    const auto got = registers.read();
    for (std::size_t lane = 0; lane < 32; ++lane) {
      for (std::size_t i = 0; i < 4; ++i) {
        const auto element = [&](std::size_t row, std::size_t column) {
          return std::uint32_t{memory[static_cast<std::size_t>(rows[8 * i + row]) * 8 + column]};
        };
        const std::size_t first = 2 * (lane % 4), across = lane / 4;
        const std::uint32_t wanted = kTransposed ? element(first, across) | element(first + 1, across) << 16
                                                 : element(across, first) | element(across, first + 1) << 16;
        if (got[lane * 4 + i] != wanted) return false;
      }
    }
  }
  return true;
}

constexpr std::uint8_t kUntouched = 0xab;

// Thread n copies n bytes of its kChunk; the last thread's chunk stays as it was.
template <int kChunk>
__global__ void copy_parts(const std::uint8_t* from, std::uint8_t* to) {
  __shared__ __align__(16) std::uint8_t shared[(kChunk + 2) * kChunk];
  const int n = static_cast<int>(threadIdx.x);
  for (int i = 0; i < kChunk; ++i) shared[n * kChunk + i] = kUntouched;
  __syncthreads();
  const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(shared + n * kChunk));
  if (n <= kChunk) {
    if constexpr (kChunk == 16) {
      ptx::cp_async_16(address, from + n * kChunk, n);
    } else {
      ptx::cp_async_4(address, from + n * kChunk, n);
    }
  }
  ptx::cp_async_commit();
  ptx::cp_async_wait<0>();
  __syncthreads();
  for (int i = 0; i < kChunk; ++i) to[n * kChunk + i] = shared[n * kChunk + i];
}

template <int kChunk>
bool cp_async_fills_with_zeros() {
  std::vector<std::uint8_t> bytes((kChunk + 2) * kChunk);
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(i % 251 + 1);
  const OnDevice<std::uint8_t> from(bytes), to(bytes);
  copy_parts<kChunk><<<1, kChunk + 2>>>(from.data(), to.data());
  const auto got = to.read();
  bool same = true;
  for (std::size_t n = 0; n < kChunk + 2; ++n) {
    for (std::size_t i = 0; i < kChunk; ++i) {
      const std::uint8_t wanted = n == kChunk + 1 ? kUntouched : i < n ? bytes[n * kChunk + i] : 0;
      same = same && got[n * kChunk + i] == wanted;
    }
  }
  return same;
}

// Groups arrive in the order in which they were closed: after wait<kPending>, all but the newest kPending are there.
template <int kPending>
__global__ void copy_groups(const uint4* from, uint4* to) {
  __shared__ uint4 shared[4][32];
  for (int group = 0; group < 4; ++group) {
    const auto address = static_cast<std::uint32_t>(__cvta_generic_to_shared(&shared[group][threadIdx.x]));
    ptx::cp_async_16(address, from + group * 32 + static_cast<int>(threadIdx.x), 16);
    ptx::cp_async_commit();
  }
  ptx::cp_async_wait<kPending>();
  for (int group = 0; group < 4 - kPending; ++group)
    to[group * 32 + static_cast<int>(threadIdx.x)] = shared[group][threadIdx.x];
  ptx::cp_async_wait<0>();
}

template <int kPending>
bool cp_async_waits() {
  std::vector<uint4> chunks(128);
  for (unsigned i = 0; i < 128; ++i) chunks[i] = make_uint4(4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3);
  const OnDevice<uint4> from(chunks), to(std::vector<uint4>(128));
  copy_groups<kPending><<<1, 32>>>(from.data(), to.data());
  const auto got = to.read();
  for (std::size_t i = 0; i < 32 * (4 - kPending); ++i) {
    if (got[i].x != chunks[i].x || got[i].w != chunks[i].w) return false;
  }
  return true;
}

__global__ void raise_two(const float* x, float* y, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) y[i] = ptx::exp2_approx(x[i]);
}

std::vector<float> powers_of_two(const std::vector<float>& x) {
  const OnDevice<float> from(x), to(x);
  const auto count = static_cast<int>(x.size());
  raise_two<<<(count + 255) / 256, 256>>>(from.data(), to.data(), count);
  return to.read();
}

bool exp2_is_exact_on_integers() {
  std::vector<float> x;
  for (int n = -160; n <= 140; ++n) x.push_back(static_cast<float>(n));
  const auto y = powers_of_two(x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float wanted = x[i] < -126 ? 0.0f : std::exp2(x[i]);  // subnormal results become zero
    if (y[i] != wanted) return false;
  }
  const auto limits = powers_of_two({-INFINITY, INFINITY, NAN, -0.0f, 1e-40f});
  return limits[0] == 0 && limits[1] == INFINITY && std::isnan(limits[2]) && limits[3] == 1 && limits[4] == 1;
}

bool exp2_is_close() {
  std::mt19937 random(3);
  std::uniform_real_distribution<float> draw(-126, 127);
  std::vector<float> x(1 << 20);
  for (float& value : x) value = draw(random);
  const auto y = powers_of_two(x);
  double worst = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double wanted = std::exp2(static_cast<double>(x[i]));
    worst = std::max(worst, std::abs(static_cast<double>(y[i]) - wanted) / wanted);
  }
  std::printf("exp2_approx: largest relative error 2^%.2f\n", std::log2(worst));
  return worst <= 0x1p-22;
}

template <class Element>
__global__ void pack_pairs(const float* x, std::uint32_t* pairs, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) pairs[i] = ptx::pack<Element>(x[2 * i], x[2 * i + 1]);
}

// Any bit pattern: halfway cases, overflow and subnormal numbers among them. A NaN may become any NaN.
template <class Element>
bool pack_rounds_to_even() {
  constexpr DType type = kType<Element>;
  std::mt19937 random(4);
  std::vector<float> x(1 << 20);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const std::uint32_t bits = random(), halfway = type == DType::bf16 ? 0xffff8000u : 0xfffff000u;
    x[i] = i % 2 == 0 ? std::bit_cast<float>(i % 4 == 0 ? bits : bits & halfway)
                      : value_of(type, static_cast<std::uint16_t>(bits));
    if (i % 8 == 2) x[i] = std::ldexp(x[i] / 0x1p96f, 60);  // into the range that fp16 has
  }
  const OnDevice<float> from(x);
  const OnDevice<std::uint32_t> to(std::vector<std::uint32_t>(x.size() / 2));
  const auto count = static_cast<int>(x.size() / 2);
  pack_pairs<Element><<<(count + 255) / 256, 256>>>(from.data(), to.data(), count);
  const auto pairs = to.read();
  for (std::size_t i = 0; i < x.size(); ++i) {
    const auto got = static_cast<std::uint16_t>(pairs[i / 2] >> (i % 2 * 16));
    const bool same = std::isnan(x[i]) ? std::isnan(value_of(type, got)) : got == bits_of(type, x[i]);
    if (!same) return false;
  }
  return true;
}

__global__ void write_block_indices(unsigned* indices) {
  if (threadIdx.x == 31) indices[blockIdx.x] = ptx::cta_index();
}

bool cta_index_is_the_cta() {
  std::vector<unsigned> wanted(1000);
  std::iota(wanted.begin(), wanted.end(), 0u);
  const OnDevice<unsigned> indices(std::vector<unsigned>(1000));
  write_block_indices<<<1000, 32>>>(indices.data());
  return indices.read() == wanted;
}

__global__ void write_thread_indices(unsigned* indices) {
  indices[blockIdx.x * blockDim.x + threadIdx.x] = ptx::thread_index();
}

bool thread_index_is_the_thread() {
  std::vector<unsigned> wanted(3 * 1024);
  for (std::size_t i = 0; i < wanted.size(); ++i) wanted[i] = static_cast<unsigned>(i % 1024);
  const OnDevice<unsigned> indices(std::vector<unsigned>(wanted.size()));
  write_thread_indices<<<3, 1024>>>(indices.data());
  return indices.read() == wanted;
}

constexpr NamedCheck kChecks[] = {{"mma_m16n8k16, bf16", mma_is_exact<__nv_bfloat16>},
                                  {"mma_m16n8k16, fp16", mma_is_exact<__half>},
                                  {"mma_m16n8k16, bf16, as simulated", mma_rounds_as_simulated<__nv_bfloat16>},
                                  {"mma_m16n8k16, fp16, as simulated", mma_rounds_as_simulated<__half>},
                                  {"ldmatrix_x4", ldmatrix_is_exact<false>},
                                  {"ldmatrix_x4_trans", ldmatrix_is_exact<true>},
                                  {"cp_async_16, 0 to 16 bytes", cp_async_fills_with_zeros<16>},
                                  {"cp_async_4, 0 to 4 bytes", cp_async_fills_with_zeros<4>},
                                  {"cp_async_wait<0>", cp_async_waits<0>},
                                  {"cp_async_wait<1>", cp_async_waits<1>},
                                  {"cp_async_wait<2>", cp_async_waits<2>},
                                  {"exp2_approx, integers and limits", exp2_is_exact_on_integers},
                                  {"exp2_approx, between", exp2_is_close},
                                  {"pack, bf16", pack_rounds_to_even<__nv_bfloat16>},
                                  {"pack, fp16", pack_rounds_to_even<__half>},
                                  {"cta_index", cta_index_is_the_cta},
                                  {"thread_index", thread_index_is_the_thread}};

}  // namespace

int check_ptx() {
  int passed = 0, failed = 0;
  for (const std::span<const NamedCheck> checks :
       {std::span<const NamedCheck>(kChecks), grid_checks(), wgmma_checks(), tma_checks()}) {
    for (const auto& [name, holds] : checks) {
      const bool ok = holds();
      if (!ok) std::printf("PTX %s: differs from its scalar model\n", name);
      ++(ok ? passed : failed);
    }
  }
  std::printf("ptx: %d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace fovea::cuda
