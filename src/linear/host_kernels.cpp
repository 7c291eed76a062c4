// Which compilation of the engine's kernels this machine runs, asked once.
#include "linear/host_kernels.h"

namespace fovea::linear {
namespace {

const cpu::Kernels& best(bool bf16_dot) {
  using cpu::Isa;
  for (const Isa isa : {Isa::avx512_bf16, Isa::avx512, Isa::avx2}) {
    if (!cpu::missing(isa).empty() || !cpu::passed_over(isa).empty()) continue;
    if (bf16_dot || !cpu::kernels_of(isa)->bf16_dot) return *cpu::kernels_of(isa);
  }
  return *cpu::kernels_of(Isa::scalar);
}

}  // namespace

const cpu::Kernels& host_kernels(DType operands) {
  static const cpu::Kernels& of_bf16 = best(true);
  static const cpu::Kernels& of_all = best(false);
  return operands == DType::bf16 ? of_bf16 : of_all;
}

}  // namespace fovea::linear
