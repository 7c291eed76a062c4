// Registers the emulated kernels as implementations that run when named.
#include "engine.h"

#include <array>

#include "cpu/backward.h"
#include "cpu/forward.h"
#include "emulated.h"

namespace fovea::cpu {
namespace {

template <const Kernels& kernels>
core::Implementation emulated(std::string_view name) {
  return {.name = name,
          .automatic = false,
          .unavailable = [] { return std::string(); },
          .refusal =
              [](const AttentionProblem& p) {
                return std::string(kernels.bf16_dot && p.dtype != DType::bf16 ? "takes bf16 only" : "");
              },
          .plan =
              [](const AttentionProblem& p) {
                return p.pass == Pass::forward ? plan_forward(kernels, p) : plan_backward(kernels, p);
              },
          .tiles =
              [](const AttentionProblem& p) {
                return p.pass == Pass::forward ? forward_tiles(kernels, p) : backward_tiles(kernels, p);
              },
          .forward = [](const AttentionProblem& p, const ForwardTensors& t,
                        const core::RunContext& c) { run_forward(kernels, p, t, c); },
          .backward = [](const AttentionProblem& p, const BackwardTensors& t,
                         const core::RunContext& c) { run_backward(kernels, p, t, c); }};
}

std::span<const core::Implementation> registered() {
  static const std::array more{emulated<kEmulatedAvx512Kernels>("emulated.avx512"),
                               emulated<kEmulatedAvx512Bf16Kernels>("emulated.avx512_bf16")};
  static const bool once = (core::register_implementations(more), true);
  (void)once;
  return more;
}

}  // namespace

std::vector<std::string> available(const AttentionProblem& problem) {
  std::vector<std::string> names = of_this_machine(problem);
  add_takers(names, registered(), problem);
  return names;
}

}  // namespace fovea::cpu
