// Which compilation of the engine's kernels this machine runs, asked once.
#include "linear/host_kernels.h"

#include <atomic>

namespace fovea::linear {
namespace {

const cpu::Kernels& best(bool bf16_dot) {
  using cpu::Isa;
  cpu::check_cap();
  for (const Isa isa : {Isa::avx512_bf16, Isa::avx512, Isa::avx2}) {
    if (!cpu::missing(isa).empty() || !cpu::passed_over(isa).empty()) continue;
    if (bf16_dot || !cpu::kernels_of(isa)->bf16_dot) return *cpu::kernels_of(isa);
  }
  return *cpu::kernels_of(Isa::scalar);
}

}  // namespace

// Threads may look at once, and find the same. A static that one thread initialises would be locked in a forked child.
const cpu::Kernels& host_kernels(DType operands) {
  static constinit std::atomic<const cpu::Kernels*> of_bf16{nullptr}, of_all{nullptr};
  std::atomic<const cpu::Kernels*>& kept = operands == DType::bf16 ? of_bf16 : of_all;
  const cpu::Kernels* kernels = kept.load(std::memory_order_relaxed);
  if (kernels == nullptr) kept.store(kernels = &best(operands == DType::bf16), std::memory_order_relaxed);
  return *kernels;
}

}  // namespace fovea::linear
