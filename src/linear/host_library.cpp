// The list of libraries, with the engine's own product as its first entry.
#include "linear/host_library.h"

#include "core/never_destroyed.h"
#include "linear/host_kernels.h"

namespace fovea::linear {
namespace {

cpu::ProductOperand operand(const MatrixBatch& m) { return {m.data, element_of(m.dtype), m.row_stride, m.transposed}; }

DType type_of(const BatchedProduct& p) { return p.a.dtype == p.b.dtype ? p.a.dtype : DType::fp32; }

std::int64_t own_scratch_bytes(const BatchedProduct& p) {
  return host_kernels(type_of(p)).product_scratch_bytes(p.m, p.n);
}

void multiply_own(const BatchedProduct& p, void* scratch) {
  host_kernels(type_of(p))
      .product({operand(p.a), operand(p.b), p.m, p.n, p.k, p.alpha, p.beta, static_cast<float*>(target_of(p.c)),
                p.c.row_stride, scratch});
}

std::string takes_all(DType) { return {}; }
TileSize largest_tile(DType) { return {512, 512}; }
bool rounds_nothing(const BatchedProduct&) { return false; }

std::deque<HostLibrary>& libraries() {
  static auto& all = core::never_destroyed<std::deque<HostLibrary>>(1, HostLibrary{"cpu.own",
                                                                                   "the engine's own kernels",
                                                                                   {},
                                                                                   takes_all,
                                                                                   largest_tile,
                                                                                   own_scratch_bytes,
                                                                                   rounds_nothing,
                                                                                   multiply_own});
  return all;
}

}  // namespace

const std::deque<HostLibrary>& host_libraries() { return libraries(); }

int add_host_library(const HostLibrary& library) {
  libraries().push_back(library);
  return static_cast<int>(libraries().size()) - 1;
}

}  // namespace fovea::linear
