// One cuBLASLt product and one copy. Random numbers: products of zeros draw less power and run faster.
#include "cuda/measure/device_ceilings.h"

#include <cuda_runtime_api.h>

#include <algorithm>
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

constexpr int kRows16Bit = 8192, kRowsFp32 = 4096;  // of the square matrices
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

}  // namespace

double product_flops(DType dtype, double seconds) {
  if (!unavailable().empty() || !missing_matrix_library().empty()) return 0;
  // Kept between calls, since every cell asks before and after itself. Only operands of the last type are kept.
  static auto& operands = core::never_destroyed<Operands>();
  static auto& timer = core::never_destroyed<StreamTimer>(Timing::hot);
  const std::int64_t n = dtype == DType::fp32 ? kRowsFp32 : kRows16Bit;
  if (operands.a.data() == nullptr || operands.dtype != dtype) {
    operands = {};
    operands = {dtype, random_matrix(dtype, n * n, 1), random_matrix(dtype, n * n, 2),
                DeviceMemory(n * n * size_of(dtype)), DeviceMemory(kProductWorkspace)};
  }
  const auto matrix = [&](const DeviceMemory& memory) { return linear::MatrixBatch{memory.data(), dtype, n, 0}; };
  const linear::BatchedProduct square{
      .m = n, .n = n, .k = n, .a = matrix(operands.a), .b = matrix(operands.b), .c = matrix(operands.c)};
  const Buffer workspace{operands.workspace.data(), operands.workspace.bytes()};
  const auto product = [&] { multiply(square, timer.stream(), workspace); };
  const double once = seconds_of(timer, product, 1);
  const int runs = std::clamp(static_cast<int>(seconds / once), 1, 50);
  return 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) /
         seconds_of(timer, product, runs);
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
