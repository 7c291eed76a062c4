// A program that is carried to other machines links no matrix library.
#include "baselines/products.h"
#include "core/check.h"

namespace fovea::baselines {

std::string products_unavailable() { return "built without oneDNN and OpenBLAS, to be carried to other machines"; }

void multiply(const Product&) {
  core::fail({.status = Status::unsupported, .problem = "no matrix product", .got = products_unavailable()});
}

}  // namespace fovea::baselines
