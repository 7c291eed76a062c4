// oneDNN and OpenBLAS, which programs link and the library does not: each product on the calling thread alone.
#pragma once

#include <span>
#include <string>

#include "linear/host_library.h"

namespace fovea::linear::blas {

std::string unavailable();  // empty, or why this build has none

// What register_host_libraries takes; empty where there are none.
std::span<const HostLibrary> libraries();

// Adds cpu.bare_matmul, cpu.bare_sgemm and cpu.bare_openblas to Linear's list, after the libraries are registered: the
// libraries' own calls for whole products, with their own threads, for programs that measure. They run only when named.
void register_bare_calls();

// One call of OpenBLAS with threads of its own. Must not run beside other calls of OpenBLAS.
void multiply_by_openblas(const BatchedProduct& product, int threads);

// One product with a result in fp32, without a bias, of matrices of any two types, by whichever library is faster on
// this machine: for programs that compare speed. Which one that is, and so the bits, may differ from run to run.
void multiply_fastest(const BatchedProduct& product);

// Largest size or stride that the libraries take.
inline constexpr std::int64_t kLargestSize = 0x7fffffff;

}  // namespace fovea::linear::blas
