// The list of libraries, and the engine's own product as its last entry.
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

std::vector<HostLibrary>& list() {
  static auto& all = core::never_destroyed<std::vector<HostLibrary>>(1, HostLibrary{"cpu.own",
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

const std::vector<HostLibrary>& host_libraries() { return list(); }

void register_host_libraries(std::span<const HostLibrary> libraries) {
  list().insert(list().begin(), libraries.begin(), libraries.end());
}

}  // namespace fovea::linear
