// The engine's list of implementations: one per instruction set, from the same kernel sources.
#include "cpu/cpu.h"

#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "attention/scale.h"
#include "core/never_destroyed.h"
#include "cpu/backward.h"
#include "cpu/call.h"
#include "cpu/few_queries.h"
#include "cpu/forward.h"
#include "cpu/isa.h"
#include "cpu/plan_kinds.h"

namespace fovea::cpu {
namespace {

std::string unavailable(int isa) {
  std::string reason = missing(static_cast<Isa>(isa));
  if (reason.empty()) return reason;
  std::string others;
  for (const Isa one : {Isa::amx, Isa::avx512_bf16, Isa::avx512, Isa::avx2, Isa::scalar}) {
    const bool runs = missing(one).empty() && (one != Isa::amx || tile_registers_refusal().empty());
    if (runs) others += (others.empty() ? "cpu." : ", cpu.") + std::string(name_of(one));
  }
  return reason + "; this machine runs " + others;
}

// Whether the plan has products in tile registers. Forward of few queries has the loops of other targets.
bool uses_tile_registers(const Kernels& kernels, const AttentionProblem& problem) {
  const bool few = problem.pass == Pass::forward && FewQueriesPlan::takes(kernels, problem);
  return kernels.tile_registers && !few;
}

std::string leaves(const AttentionProblem& problem, int isa) {
  const Kernels* const kernels = kernels_of(static_cast<Isa>(isa));
  if (kernels == nullptr || uses_tile_registers(*kernels, problem)) return {};
  return "few query rows fill no tile register";
}

core::Prepared prepare(const AttentionProblem& problem, int isa) {
  check_cap();
  const Kernels* const kernels = kernels_of(static_cast<Isa>(isa));
  if (kernels == nullptr) return {.refusal = unavailable(isa)};
  if (problem.saved_state) return {.refusal = "saves no state: its backward recomputes the scores from lse"};
  if (kernels->bf16_dot && problem.dtype != DType::bf16) return {.refusal = "takes bf16 only"};
  if (std::string reason = attention::scale_refusal(problem.scale); !reason.empty())
    return {.refusal = std::move(reason)};
  if (uses_tile_registers(*kernels, problem) && missing(Isa::amx).empty()) {
    if (std::string reason = tile_registers_refusal(); !reason.empty()) return {.refusal = std::move(reason)};
  }
  // The sizes in a plan come from functions that are compiled for the instruction set.
  if (!missing(static_cast<Isa>(isa)).empty()) return {};
  if (problem.pass == Pass::forward) return {.plan = plan_forward(*kernels, problem)};
  return {.plan = std::make_shared<BackwardPlan>(*kernels, problem)};
}

attention::Implementation implementation(std::string_view name, Isa isa) {
  return {.name = name,
          .device = DeviceKind::cpu,
          .variant = static_cast<int>(isa),
          .automatic = passed_over(isa).empty(),
          .named_because = passed_over(isa),
          .leaves = isa == Isa::amx ? leaves : nullptr,
          .plan_kinds = {kinds::kOfForward, kinds::kOfBackward},
          .unavailable = unavailable,
          .prepare = prepare,
          .forward = run_forward,
          .backward = run_backward};
}

}  // namespace

std::span<const attention::Implementation> implementations() {
  static const auto& all =
      core::never_destroyed<std::vector<attention::Implementation>>(std::initializer_list<attention::Implementation>{
          implementation("cpu.amx", Isa::amx), implementation("cpu.avx512_bf16", Isa::avx512_bf16),
          implementation("cpu.avx512", Isa::avx512), implementation("cpu.avx2", Isa::avx2),
          implementation("cpu.scalar", Isa::scalar)});
  return all;
}

}  // namespace fovea::cpu
