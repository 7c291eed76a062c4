// A program that is carried to other machines links no matrix library.
#include "core/check.h"
#include "linear/blas/blas.h"

namespace fovea::linear::blas {

std::string unavailable() { return "built without oneDNN and OpenBLAS, to be carried to other machines"; }

std::span<const HostLibrary> libraries() { return {}; }

void register_bare_calls() {}

void multiply_fastest(const BatchedProduct&) {
  core::fail({.status = Status::unsupported, .problem = "no matrix product", .got = unavailable()});
}

}  // namespace fovea::linear::blas
