// Products by cuBLASLt and one copy. Random numbers: products of zeros draw less power and run faster.
#include "cuda/measure/device_ceilings.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <span>
#include <vector>

#include "core/float16.h"
#include "core/never_destroyed.h"
#include "core/random.h"
#include "cuda/measure/device_memory.h"
#include "cuda/measure/stream_timer.h"
#include "cuda/runtime/check.h"
#include "cuda/runtime/device_info.h"
#include "linear/cuda/matrix_library.h"

namespace fovea::cuda {
namespace {

struct Sizes {
  std::int64_t m, n, k;
};
// The fastest counts. The last has the largest matrices.
constexpr Sizes kSizes16Bit[] = {{8192, 8192, 8192}};
constexpr Sizes kSizesFp32[] = {{4096, 4096, 4096}, {8192, 8192, 4096}};
constexpr std::int64_t kRandomElements = std::int64_t{1} << 20;
constexpr std::int64_t kProductWorkspace = std::int64_t{32} << 20;  // what PyTorch gives the library
constexpr std::int64_t kCopyBytes = std::int64_t{1} << 30;
constexpr int kCopies = 8;

// Standard normal numbers: one block, repeated.
DeviceMemory random_matrix(DType dtype, std::int64_t elements, std::uint64_t seed) {
  std::vector<float> block(static_cast<std::size_t>(kRandomElements));
  for (std::int64_t i = 0; i < kRandomElements; ++i) {
    const float value = core::approximate_normal(core::philox(seed, 0, static_cast<std::uint64_t>(i)));
    core::store_from_float(block.data(), dtype, i, value);
  }
  DeviceMemory memory(elements * size_of(dtype));
  for (std::int64_t at = 0; at < elements; at += kRandomElements) {
    check(cudaMemcpy(memory.data() + at * size_of(dtype), block.data(),
                     static_cast<std::size_t>(std::min(kRandomElements, elements - at) * size_of(dtype)),
                     cudaMemcpyHostToDevice),
          "cudaMemcpy");
  }
  return memory;
}

struct Operands {
  DType dtype = DType::fp32;
  DeviceMemory a, b, c, workspace;
};

double seconds_of(StreamTimer& timer, const std::function<void()>& enqueue, int runs) {
  double sum = 0;
  for (const double s : timer.sample(enqueue, runs, 1).seconds) sum += s;
  return sum / runs;
}

Operands operands_of(DType dtype, const Sizes& largest) {
  const auto [m, n, k] = largest;
  return {dtype, random_matrix(dtype, m * k, 1), random_matrix(dtype, k * n, 2), DeviceMemory(m * n * size_of(dtype)),
          DeviceMemory(kProductWorkspace)};
}

// Flops per second of one product, run for about `seconds`.
double rate_of(StreamTimer& timer, const Operands& operands, const Sizes& sizes, double seconds) {
  const auto [m, n, k] = sizes;
  const auto matrix = [&](const DeviceMemory& memory, std::int64_t columns) {
    return linear::MatrixBatch{memory.data(), operands.dtype, columns, 0};
  };
  const linear::BatchedProduct product{
      .m = m, .n = n, .k = k, .a = matrix(operands.a, k), .b = matrix(operands.b, n), .c = matrix(operands.c, n)};
  const Buffer workspace{operands.workspace.data(), operands.workspace.bytes()};
  const auto enqueue = [&] { multiply(product, timer.stream(), workspace); };
  const double once = seconds_of(timer, enqueue, 1);
  const int runs = std::clamp(static_cast<int>(seconds / once), 1, 50);
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) /
         seconds_of(timer, enqueue, runs);
}

}  // namespace

double product_flops(DType dtype, double seconds) {
  if (!unavailable().empty() || !missing_matrix_library().empty()) return 0;
  // Kept between calls, since every cell asks before and after itself. Only operands of the last type are kept.
  static auto& operands = core::never_destroyed<Operands>();
  static auto& timer = core::never_destroyed<StreamTimer>(Timing::hot);
  const auto all = dtype == DType::fp32 ? std::span<const Sizes>(kSizesFp32) : std::span<const Sizes>(kSizes16Bit);
  if (operands.a.data() == nullptr || operands.dtype != dtype) {
    operands = {};
    operands = operands_of(dtype, all.back());
  }
  double best = 0;
  for (const Sizes& sizes : all)
    best = std::max(best, rate_of(timer, operands, sizes, seconds / static_cast<double>(all.size())));
  return best;
}

double copy_bandwidth() {
  if (!unavailable().empty()) return 0;
  const std::int64_t bytes = std::min(kCopyBytes, free_device_bytes() / 8);
  const DeviceMemory from(bytes), to(bytes);
  StreamTimer timer(Timing::cold);
  const auto copy = [&] {
    check(cudaMemcpyAsync(to.data(), from.data(), static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice,
                          static_cast<cudaStream_t>(timer.stream())),
          "cudaMemcpyAsync");
  };
  return 2.0 * static_cast<double>(bytes) / seconds_of(timer, copy, kCopies);
}

}  // namespace fovea::cuda
