// The instruction sets that the engine is compiled for, and which of them this machine supports.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cpu/kernels/kernels.h"

namespace fovea::cpu {

enum class Isa : std::uint8_t { scalar, avx2, avx512, avx512_bf16, amx };  // each includes the earlier ones

std::string_view name_of(Isa isa);
std::optional<Isa> isa_of(std::string_view name);

// Why this machine cannot run it; empty if it can. The processor may lack instructions, the system may not save the
// registers, or the library may be built for another processor.
std::string missing(Isa isa);

// Why the automatic choice skips it although it runs when named; empty if it does not. Either FOVEA_CPU_ISA names a
// lower instruction set, or it is unset and this processor's bf16 dot product is not faster. An unknown word hides
// nothing here, since the list is made while the library is loaded: calls refuse it.
std::string passed_over(Isa isa);
std::string passed_over(Isa isa, std::string_view word);  // with this value of the variable

// Throws Error(invalid_argument) if FOVEA_CPU_ISA holds an unknown word.
void check_cap();
void check_cap(std::string_view word);

// Why the system does not permit this process to use AMX's tile registers; empty if it does. The first call asks for
// the permission, which all threads then have. The system refuses it, for example, if a thread's alternate signal stack
// is too small for the registers. Only for machines that do not miss Isa::amx.
std::string tile_registers_refusal();

// The kernels compiled for it; null in a build for another processor.
const Kernels* kernels_of(Isa isa);

}  // namespace fovea::cpu
