// The engine's list of implementations: one per instruction set, over the same kernels.
#include "cpu/cpu.h"

#include <initializer_list>
#include <vector>

#include "core/never_destroyed.h"
#include "cpu/backward.h"
#include "cpu/forward.h"
#include "cpu/isa.h"

namespace fovea::cpu {
namespace {

template <Isa isa>
std::string unavailable() {
  return missing(isa);
}

template <Isa isa>
std::string refusal(const AttentionProblem& problem) {
  if (problem.saved_state) return "saves no state: its backward recomputes the scores from lse";
  if (kernels_of(isa)->bf16_dot && problem.dtype != DType::bf16) return "takes bf16 only";
  return {};
}

template <Isa isa>
core::Plan plan(const AttentionProblem& problem) {
  return problem.pass == Pass::forward ? plan_forward(*kernels_of(isa), problem)
                                       : plan_backward(*kernels_of(isa), problem);
}

template <Isa isa>
std::string tiles(const AttentionProblem& problem) {
  return problem.pass == Pass::forward ? forward_tiles(*kernels_of(isa), problem)
                                       : backward_tiles(*kernels_of(isa), problem);
}

template <Isa isa>
void forward(const AttentionProblem& problem, const ForwardTensors& tensors, const core::RunContext& context) {
  run_forward(*kernels_of(isa), problem, tensors, context);
}

template <Isa isa>
void backward(const AttentionProblem& problem, const BackwardTensors& tensors, const core::RunContext& context) {
  run_backward(*kernels_of(isa), problem, tensors, context);
}

template <Isa isa>
core::Implementation implementation(std::string_view name) {
  return {.name = name,
          .device = DeviceKind::cpu,
          .automatic = passed_over(isa).empty(),
          .named_because = passed_over(isa),
          .unavailable = unavailable<isa>,
          .refusal = refusal<isa>,
          .plan = plan<isa>,
          .tiles = tiles<isa>,
          .forward = forward<isa>,
          .backward = backward<isa>};
}

}  // namespace

std::span<const core::Implementation> implementations() {
  static const auto& all = core::never_destroyed<std::vector<core::Implementation>>(std::initializer_list{
      implementation<Isa::avx512_bf16>("cpu.avx512_bf16"), implementation<Isa::avx512>("cpu.avx512"),
      implementation<Isa::avx2>("cpu.avx2"), implementation<Isa::scalar>("cpu.scalar")});
  return all;
}

}  // namespace fovea::cpu
