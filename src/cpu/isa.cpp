// Asks cpuid for the processor's instructions and xgetbv for the registers that the operating system saves. Linux saves
// AMX's tile registers only for processes that have asked for it.
#include "cpu/isa.h"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <vector>

#include "core/check.h"
#include "core/environment.h"
#include "core/never_destroyed.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace fovea::cpu {
namespace {

constexpr std::array<std::string_view, 5> kNames{"scalar", "avx2", "avx512", "avx512_bf16", "amx"};

#if defined(__x86_64__)

struct Registers {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
};

Registers cpuid(unsigned leaf, unsigned subleaf) {
  Registers r;
  if (__get_cpuid_count(leaf, subleaf, &r.eax, &r.ebx, &r.ecx, &r.edx) == 0) return {};
  return r;
}

// The register states that the system saves at a context switch (XCR0); 0 without xgetbv.
std::uint64_t saved_states() {
  constexpr unsigned kXgetbvUsable = 1u << 27;
  if ((cpuid(1, 0).ecx & kXgetbvUsable) == 0) return 0;
  unsigned low = 0, high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return (std::uint64_t{high} << 32) | low;
}

std::string missing_avx2() {
  constexpr unsigned kFma = 1u << 12, kF16c = 1u << 29, kAvx2 = 1u << 5;
  constexpr std::uint64_t kYmm = 0x6;
  if ((cpuid(7, 0).ebx & kAvx2) == 0) return "the processor lacks AVX2";
  if ((cpuid(1, 0).ecx & kFma) == 0) return "the processor lacks FMA";
  if ((cpuid(1, 0).ecx & kF16c) == 0) return "the processor lacks F16C";
  if ((saved_states() & kYmm) != kYmm) return "the operating system does not save AVX registers";
  return {};
}

std::string missing_avx512() {
  if (std::string reason = missing_avx2(); !reason.empty()) return reason;
  constexpr unsigned kF = 1u << 16, kDq = 1u << 17, kBw = 1u << 30, kVl = 1u << 31, kAll = kF | kDq | kBw | kVl;
  constexpr std::uint64_t kZmm = 0xe6;
  if ((cpuid(7, 0).ebx & kAll) != kAll) return "the processor lacks AVX-512 F, DQ, BW or VL";
  if ((saved_states() & kZmm) != kZmm) return "the operating system does not save AVX-512 registers";
  return {};
}

std::string missing_avx512_bf16() {
  if (std::string reason = missing_avx512(); !reason.empty()) return reason;
  constexpr unsigned kBf16 = 1u << 5;
  if ((cpuid(7, 1).eax & kBf16) == 0) return "the processor lacks AVX512_BF16";
  return {};
}

// Requests of arch_prctl (asm/prctl.h of Linux 5.16), and the number of the register state of tile data.
constexpr int kGetSupported = 0x1021, kRequestPermission = 0x1023, kTileData = 18;

std::string missing_amx() {
  if (std::string reason = missing_avx512_bf16(); !reason.empty()) return reason;
  constexpr unsigned kBf16 = 1u << 22, kTile = 1u << 24, kAll = kBf16 | kTile;
  constexpr std::uint64_t kStates = std::uint64_t{3} << 17;  // tile configuration and tile data
  if ((cpuid(7, 0).edx & kAll) != kAll) return "the processor lacks AMX-TILE or AMX-BF16";
  if ((saved_states() & kStates) != kStates) return "the operating system does not save AMX's tile registers";
  return {};
}

std::string ask_for_tile_registers() {
  std::uint64_t supported = 0;
  if (syscall(SYS_arch_prctl, kGetSupported, &supported) != 0 || (supported >> kTileData & 1) == 0)
    return "the operating system has no permission for AMX's tile registers to give";
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0)
    return std::string("the operating system refuses AMX's tile registers: ") + std::strerror(errno);
  return {};
}

// The bf16 dot product runs at twice the rate of fp32 multiply-adds on AMD's processors, at half of it on Intel's.
bool fast_bf16_dot() {
  constexpr unsigned kAuth = 0x68747541;  // of "AuthenticAMD"
  return cpuid(0, 0).ebx == kAuth;
}

#else

bool fast_bf16_dot() { return false; }

#endif

}  // namespace

std::string_view name_of(Isa isa) { return kNames[static_cast<std::size_t>(isa)]; }

std::optional<Isa> isa_of(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<Isa>(i);
  }
  return std::nullopt;
}

std::string passed_over(Isa isa) { return passed_over(isa, core::environment("FOVEA_CPU_ISA")); }

std::string passed_over(Isa isa, std::string_view word) {
  if (word.empty())
    return isa == Isa::avx512_bf16 && !fast_bf16_dot()
               ? "this processor's bf16 dot product is slower than its fp32 multiply-add"
               : "";
  const auto limit = isa_of(word);
  return !limit || isa <= *limit ? "" : "FOVEA_CPU_ISA=" + std::string(word);
}

void check_cap() { check_cap(core::environment("FOVEA_CPU_ISA")); }

void check_cap(std::string_view word) {
  if (word.empty() || isa_of(word)) return;
  core::fail({.status = Status::invalid_argument,
              .argument = "FOVEA_CPU_ISA",
              .problem = "unknown instruction set in the environment",
              .got = std::string(word),
              .wanted = core::join({kNames[0], kNames[1], kNames[2], kNames[3], kNames[4]}),
              .hint = "unset it for the best that the machine has"});
}

#if defined(__x86_64__)

std::string missing(Isa isa) {
  static const auto& reasons = core::never_destroyed<std::vector<std::string>>(
      std::initializer_list<std::string>{"", missing_avx2(), missing_avx512(), missing_avx512_bf16(), missing_amx()});
  return reasons[static_cast<std::size_t>(isa)];
}

std::string tile_registers_refusal() {
  static const auto& refusal = core::never_destroyed<std::string>(ask_for_tile_registers());
  return refusal;
}

const Kernels* kernels_of(Isa isa) {
  static constexpr std::array<const Kernels*, 5> tables{&kScalarKernels, &kAvx2Kernels, &kAvx512Kernels,
                                                        &kAvx512Bf16Kernels, &kAmxKernels};
  return tables[static_cast<std::size_t>(isa)];
}

#else

std::string missing(Isa isa) { return isa == Isa::scalar ? "" : "this build is for a processor without it"; }

std::string tile_registers_refusal() { return missing(Isa::amx); }

const Kernels* kernels_of(Isa isa) { return isa == Isa::scalar ? &kScalarKernels : nullptr; }

#endif

}  // namespace fovea::cpu
