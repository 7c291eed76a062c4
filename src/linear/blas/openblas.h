// OpenBLAS, loaded at its first product. While it is loaded it starts threads that wait for memory without end, so a
// process that never multiplies by it must not have it.
#pragma once

#include <cblas.h>

namespace fovea::linear::blas {

struct OpenBlas {
  decltype(&cblas_sgemm) sgemm = nullptr;
  decltype(&openblas_set_num_threads) set_num_threads = nullptr;
};

// Its calls run on one thread until set_num_threads. Throws Error (unsupported) if it cannot be loaded.
const OpenBlas& openblas_library();

}  // namespace fovea::linear::blas
