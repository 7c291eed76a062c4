// Registers the emulated kernels as implementations that run when named.
#include "engine.h"

#include <array>
#include <iterator>

#include "cpu/backward.h"
#include "cpu/forward.h"
#include "cpu/isa.h"
#include "emulated.h"

namespace fovea::cpu {
namespace {

constexpr const Kernels* kEmulated[] = {&kEmulatedAvx512Kernels, &kEmulatedAvx512Bf16Kernels, &kEmulatedAmxKernels};

core::Prepared prepare(const AttentionProblem& p, int variant) {
  const Kernels& kernels = *kEmulated[variant];
  if (kernels.bf16_dot && p.dtype != DType::bf16) return {.refusal = "takes bf16 only"};
  if (p.pass == Pass::forward) return {.plan = plan_forward(kernels, p)};
  return {.plan = std::make_shared<BackwardPlan>(kernels, p)};
}

attention::Implementation emulated(std::string_view name, int variant) {
  return {.name = name,
          .variant = variant,
          .automatic = false,
          .unavailable = [](int) { return std::string(); },
          .prepare = prepare,
          .forward = run_forward,
          .backward = run_backward};
}

std::span<const attention::Implementation> registered() {
  static const std::array more{emulated("emulated.avx512", 0), emulated("emulated.avx512_bf16", 1),
                               emulated("emulated.amx", 2)};
  static const bool once = (attention::register_implementations(more), true);
  (void)once;
  return more;
}

}  // namespace

void register_emulated() { registered(); }

std::vector<std::string> available(const AttentionProblem& problem) {
  std::vector<std::string> names = of_this_machine(problem);
  add_takers(names, registered(), problem);
  return names;
}

std::vector<const Kernels*> all_kernels() {
  std::vector<const Kernels*> all(std::begin(kEmulated), std::end(kEmulated));
  for (const Isa isa : {Isa::scalar, Isa::avx2, Isa::avx512, Isa::avx512_bf16, Isa::amx})
    if (missing(isa).empty()) all.push_back(kernels_of(isa));
  return all;
}

}  // namespace fovea::cpu
