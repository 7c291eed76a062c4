// Instances of the kernels of cuda.any with other tiles than the library's.
#include "cuda/attention/any/backward_dkdv.cuh"
#include "cuda/attention/any/backward_dq.cuh"
#include "cuda/attention/any/forward.cuh"
#include "tile_variants.h"

namespace fovea::cuda::any {
namespace {

using Half = __nv_bfloat16;

// dim, 16-row tiles of a warp, warps, stream, stages, resident blocks, warps that share rows; if named, lane rows and
// whether four warps multiply together.
template <int... kNumbers>
struct Tile {
  static constexpr int kNamed = sizeof...(kNumbers);
  static constexpr int kList[9] = {kNumbers...};
  static constexpr TileShape kShape{.dim = kList[0],
                                    .row_tiles = kList[1],
                                    .warps = kList[2],
                                    .stream = kList[3],
                                    .stages = kList[4],
                                    .ctas_per_sm = kList[5],
                                    .split_warps = kList[6],
                                    .lane_rows = kNamed > 7 ? kList[7] : 4,
                                    .warpgroup = kList[8] != 0};
};

}  // namespace

std::vector<KernelInstance> variants(Kernel kernel, ElementKind kind) {
  if (kind == ElementKind::bf16 && kernel == Kernel::forward)
    return {forward_instance<Half, Tile<32, 2, 4, 64, 2, 2, 1>>(),
            forward_instance<Half, Tile<32, 1, 4, 128, 2, 2, 1>>(),
            forward_instance<Half, Tile<32, 1, 4, 64, 2, 3, 1, 4, 1>>(),
            forward_instance<Half, Tile<32, 1, 4, 64, 2, 2, 4>>(),
            forward_instance<Half, Tile<64, 2, 4, 128, 2, 2, 1>>(),
            forward_instance<Half, Tile<64, 1, 4, 128, 2, 2, 1>>(),
            forward_instance<Half, Tile<64, 1, 4, 64, 2, 3, 1, 4, 1>>(),
            forward_instance<Half, Tile<64, 1, 8, 32, 2, 1, 8>>(),
            forward_instance<Half, Tile<64, 1, 8, 128, 2, 1, 1>>(),
            forward_instance<Half, Tile<128, 2, 4, 48, 2, 2, 1>>(),
            forward_instance<Half, Tile<128, 1, 4, 64, 2, 2, 1>>(),
            forward_instance<Half, Tile<128, 1, 4, 64, 1, 3, 1, 4, 1>>(),
            forward_instance<Half, Tile<128, 1, 8, 16, 2, 1, 8>>(),
            forward_instance<Half, Tile<128, 1, 8, 64, 2, 1, 1>>()};
  if (kind == ElementKind::bf16 && kernel == Kernel::backward_dkdv)
    return {backward_dkdv_instance<Half, Tile<32, 2, 4, 64, 2, 2, 1>>(),
            backward_dkdv_instance<Half, Tile<32, 1, 4, 64, 2, 3, 1, 4, 1>>(),
            backward_dkdv_instance<Half, Tile<64, 2, 4, 32, 2, 2, 1>>(),
            backward_dkdv_instance<Half, Tile<64, 1, 4, 64, 2, 3, 1, 4, 1>>(),
            backward_dkdv_instance<Half, Tile<128, 1, 4, 64, 2, 2, 1>>(),
            backward_dkdv_instance<Half, Tile<128, 1, 4, 64, 2, 2, 1, 4, 1>>(),
            backward_dkdv_instance<Half, Tile<128, 1, 8, 64, 2, 1, 1>>()};
  if (kind == ElementKind::bf16)
    return {backward_dq_instance<Half, Tile<32, 2, 4, 64, 2, 2, 1>>(),
            backward_dq_instance<Half, Tile<32, 1, 4, 64, 2, 3, 1, 4, 1>>(),
            backward_dq_instance<Half, Tile<64, 2, 4, 48, 2, 2, 1>>(),
            backward_dq_instance<Half, Tile<64, 2, 4, 64, 2, 2, 1>>(),
            backward_dq_instance<Half, Tile<64, 1, 4, 64, 2, 3, 1, 4, 1>>(),
            backward_dq_instance<Half, Tile<128, 1, 4, 64, 2, 2, 1, 4, 1>>(),
            backward_dq_instance<Half, Tile<128, 2, 4, 32, 2, 2, 1>>()};
  if (kernel == Kernel::forward)
    return {forward_instance<float, Tile<32, 2, 4, 32, 2, 2, 1>>(),
            forward_instance<float, Tile<32, 2, 4, 64, 1, 2, 1>>(),
            forward_instance<float, Tile<32, 1, 8, 16, 2, 1, 8>>(),
            forward_instance<float, Tile<64, 2, 4, 32, 2, 2, 1>>(),
            forward_instance<float, Tile<64, 2, 4, 64, 1, 2, 1>>(),
            forward_instance<float, Tile<64, 1, 8, 16, 2, 1, 8>>(),
            forward_instance<float, Tile<128, 1, 8, 128, 1, 1, 1, 2>>(),
            forward_instance<float, Tile<128, 1, 4, 64, 1, 2, 1, 2>>(),
            forward_instance<float, Tile<128, 1, 4, 32, 1, 3, 1>>(),
            forward_instance<float, Tile<128, 2, 4, 32, 1, 2, 1>>(),
            forward_instance<float, Tile<128, 1, 8, 16, 1, 1, 8>>(),
            forward_instance<float, Tile<256, 1, 2, 16, 1, 2, 1>>(),
            forward_instance<float, Tile<256, 1, 8, 32, 1, 1, 1, 2>>(),
            forward_instance<float, Tile<256, 1, 8, 32, 1, 1, 1>>(),
            forward_instance<float, Tile<256, 1, 4, 64, 1, 1, 1, 2>>(),
            forward_instance<float, Tile<256, 1, 4, 32, 1, 1, 1, 2>>()};
  if (kernel == Kernel::backward_dkdv)
    return {backward_dkdv_instance<float, Tile<32, 2, 4, 32, 1, 2, 1>>(),
            backward_dkdv_instance<float, Tile<64, 1, 4, 64, 1, 2, 1>>(),
            backward_dkdv_instance<float, Tile<64, 1, 4, 32, 1, 3, 1>>(),
            backward_dkdv_instance<float, Tile<128, 1, 4, 32, 1, 2, 1>>(),
            backward_dkdv_instance<float, Tile<128, 1, 8, 64, 1, 1, 1, 2>>(),
            backward_dkdv_instance<float, Tile<128, 1, 8, 48, 1, 1, 1>>()};
  return {backward_dq_instance<float, Tile<32, 2, 4, 32, 1, 2, 1>>(),
          backward_dq_instance<float, Tile<64, 1, 4, 64, 1, 2, 1>>(),
          backward_dq_instance<float, Tile<64, 2, 4, 32, 1, 2, 1>>(),
          backward_dq_instance<float, Tile<128, 1, 4, 32, 1, 2, 1>>(),
          backward_dq_instance<float, Tile<128, 1, 8, 64, 1, 1, 1, 2>>(),
          backward_dq_instance<float, Tile<128, 1, 8, 48, 1, 1, 1>>()};
}

}  // namespace fovea::cuda::any
