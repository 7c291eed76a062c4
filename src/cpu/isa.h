// The instruction sets that the engine is compiled for, and which of them this processor and system grant.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cpu/kernels/kernels.h"

namespace fovea::cpu {

enum class Isa : std::uint8_t { scalar, avx2, avx512, avx512_bf16 };  // each grants those before it

std::string_view name_of(Isa isa);
std::optional<Isa> isa_of(std::string_view name);

// Why this machine cannot run it: an instruction that the processor lacks, registers that the system does not save, or
// a build for another processor. Empty if it can.
std::string missing(Isa isa);

// Why the automatic choice passes over it, though it runs when named; empty if it does not. Either FOVEA_CPU_ISA names
// a lesser one (scalar, avx2, avx512, avx512_bf16), or, where it names none, the bf16 dot product gains nothing on this
// processor. Throws Error if the variable holds another word.
std::string passed_over(Isa isa);
std::string passed_over(Isa isa, std::string_view word);  // of the variable

// The kernels compiled for it; null in a build for another processor.
const Kernels* kernels_of(Isa isa);

}  // namespace fovea::cpu
