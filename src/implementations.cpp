// The list of attention's implementations, in the order in which a call tries them. The only file that includes all
// backends.
#include "attention/implementation.h"
#include "attention/reference/reference.h"
#include "core/never_destroyed.h"
#include "cpu/cpu.h"
#include "cuda/cuda.h"

namespace fovea::attention {

core::ImplementationList<Types>& Types::list() {
  static auto& all =
      core::never_destroyed<core::ImplementationList<Types>>(std::initializer_list<std::span<const Implementation>>{
          cuda::implementations(), cpu::implementations(), reference::implementations()});
  return all;
}

namespace {

[[maybe_unused]] const auto& made_at_load = Types::list();  // so that fork() cannot interrupt its construction

}  // namespace

}  // namespace fovea::attention
