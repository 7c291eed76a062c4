// Which bits of cpuid each instruction set asks for. The detection is compiled once more, over a processor that has
// every bit but one.
#include <gtest/gtest.h>

#include "cpu/isa.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/environment.h"
#include "core/never_destroyed.h"

namespace fovea::detection_of_given_bits {

using namespace cpu;

std::string given_passed_over(Isa isa, std::string_view word);
void check_cap(std::string_view word);

struct Bit {
  unsigned leaf, subleaf;
  int in;  // 0: eax, 1: ebx, 2: ecx, 3: edx
  int number;
};

constexpr Bit kNone{.leaf = ~0u, .subleaf = 0, .in = 0, .number = 0};
Bit hidden = kNone;

int given_cpuid(unsigned leaf, unsigned subleaf, unsigned* eax, unsigned* ebx, unsigned* ecx, unsigned* edx) {
  *eax = *ebx = *ecx = *edx = ~0u;
  if (leaf == hidden.leaf && subleaf == hidden.subleaf)
    *std::array{eax, ebx, ecx, edx}[hidden.in] &= ~(1u << hidden.number);
  return 1;
}

}  // namespace fovea::detection_of_given_bits

#define __get_cpuid_count given_cpuid
#define cpu detection_of_given_bits
#define passed_over given_passed_over  // which a call with an Isa would find in both namespaces
#include "cpu/isa.cpp"
#undef passed_over
#undef cpu
#undef __get_cpuid_count

namespace fovea::detection_of_given_bits {
namespace {

// Expects that the answer of `missing` changes without each of the register's bits that are needed, and no other.
void expect_needs(std::string (*missing)(), unsigned leaf, unsigned subleaf, int in, const std::set<int>& needed) {
  hidden = kNone;
  const std::string with_all = missing();
  for (int number = 0; number < 32; ++number) {
    hidden = {leaf, subleaf, in, number};
    EXPECT_EQ(missing() != with_all, needed.contains(number))
        << "leaf " << leaf << ", register " << in << ", bit " << number << ": " << missing();
  }
}

// Numbers as in Intel's manual, volume 2, CPUID. 27 of leaf 1: xgetbv may be used.
TEST(IsaBits, EachIsAskedFor) {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(1, &eax, &ebx, &ecx, &edx) == 0 || (ecx >> 27 & 1) == 0) GTEST_SKIP() << "no xgetbv";
  hidden = kNone;
  if (!missing_avx2().empty()) GTEST_SKIP() << missing_avx2();
  expect_needs(missing_avx2, 1, 0, 2, {12, 27, 29});
  expect_needs(missing_avx2, 7, 0, 1, {5});
  expect_needs(missing_avx512, 7, 0, 1, {5, 16, 17, 30, 31});
  hidden = kNone;
  if (!missing_avx512().empty()) GTEST_SKIP() << missing_avx512();
  expect_needs(missing_avx512_bf16, 7, 1, 0, {5});
  expect_needs(missing_amx, 7, 0, 3, {22, 24});
}

}  // namespace
}  // namespace fovea::detection_of_given_bits
#endif
