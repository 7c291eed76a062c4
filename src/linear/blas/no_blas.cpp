// Built instead of the other files where the libraries are missing, and for a program that is carried to other
// machines.
#include "core/check.h"
#include "linear/blas/blas.h"

namespace fovea::linear::blas {

std::string unavailable() { return "built without oneDNN and OpenBLAS"; }

std::span<const HostLibrary> libraries() { return {}; }

void register_bare_calls() {}

void multiply_fastest(const BatchedProduct&) {
  core::fail({.status = Status::unsupported, .problem = "no matrix product", .got = unavailable()});
}

}  // namespace fovea::linear::blas
