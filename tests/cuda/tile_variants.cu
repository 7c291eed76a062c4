// Instances of the kernels of cuda.any with other tiles than the library's.
#include "cuda/attention/any/backward_dkdv.cuh"
#include "cuda/attention/any/backward_dq.cuh"
#include "cuda/attention/any/forward.cuh"
#include "tile_variants.h"

namespace fovea::cuda::any {
namespace {

using Half = __nv_bfloat16;

// The fields of TileShape in order: dim, row_tiles, warps, stream, stages, ctas_per_sm, split_warps; optionally
// lane_rows and warpgroup.
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

std::vector<KernelInstance> forward_bf16_variants() {
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
}

std::vector<KernelInstance> backward_dkdv_bf16_variants() {
  return {backward_dkdv_instance<Half, Tile<32, 2, 4, 64, 2, 2, 1>>(),
          backward_dkdv_instance<Half, Tile<32, 1, 4, 64, 2, 3, 1, 4, 1>>(),
          backward_dkdv_instance<Half, Tile<64, 2, 4, 32, 2, 2, 1>>(),
          backward_dkdv_instance<Half, Tile<64, 1, 4, 64, 2, 3, 1, 4, 1>>(),
          backward_dkdv_instance<Half, Tile<128, 1, 4, 64, 2, 2, 1>>(),
          backward_dkdv_instance<Half, Tile<128, 1, 4, 64, 2, 2, 1, 4, 1>>(),
          backward_dkdv_instance<Half, Tile<128, 1, 8, 64, 2, 1, 1>>()};
}

std::vector<KernelInstance> backward_dq_bf16_variants() {
  return {backward_dq_instance<Half, Tile<32, 2, 4, 64, 2, 2, 1>>(),
          backward_dq_instance<Half, Tile<32, 1, 4, 64, 2, 3, 1, 4, 1>>(),
          backward_dq_instance<Half, Tile<64, 2, 4, 48, 2, 2, 1>>(),
          backward_dq_instance<Half, Tile<64, 2, 4, 64, 2, 2, 1>>(),
          backward_dq_instance<Half, Tile<64, 1, 4, 64, 2, 3, 1, 4, 1>>(),
          backward_dq_instance<Half, Tile<128, 1, 4, 64, 2, 2, 1, 4, 1>>(),
          backward_dq_instance<Half, Tile<128, 2, 4, 32, 2, 2, 1>>()};
}

std::vector<KernelInstance> forward_fp32_variants() {
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
}

std::vector<KernelInstance> backward_dkdv_fp32_variants() {
  return {backward_dkdv_instance<float, Tile<32, 2, 4, 32, 1, 2, 1>>(),
          backward_dkdv_instance<float, Tile<64, 1, 4, 64, 1, 2, 1>>(),
          backward_dkdv_instance<float, Tile<64, 1, 4, 32, 1, 3, 1>>(),
          backward_dkdv_instance<float, Tile<128, 1, 4, 32, 1, 2, 1>>(),
          backward_dkdv_instance<float, Tile<128, 1, 8, 64, 1, 1, 1, 2>>(),
          backward_dkdv_instance<float, Tile<128, 1, 8, 48, 1, 1, 1>>()};
}

std::vector<KernelInstance> backward_dq_fp32_variants() {
  return {backward_dq_instance<float, Tile<32, 2, 4, 32, 1, 2, 1>>(),
          backward_dq_instance<float, Tile<64, 1, 4, 64, 1, 2, 1>>(),
          backward_dq_instance<float, Tile<64, 2, 4, 32, 1, 2, 1>>(),
          backward_dq_instance<float, Tile<128, 1, 4, 32, 1, 2, 1>>(),
          backward_dq_instance<float, Tile<128, 1, 8, 64, 1, 1, 1, 2>>(),
          backward_dq_instance<float, Tile<128, 1, 8, 48, 1, 1, 1>>()};
}

}  // namespace

std::vector<KernelInstance> variants(Kernel kernel, ElementKind kind) {
  const bool is_bf16 = kind == ElementKind::bf16;
  switch (kernel) {
    case Kernel::forward:
      return is_bf16 ? forward_bf16_variants() : forward_fp32_variants();
    case Kernel::backward_dkdv:
      return is_bf16 ? backward_dkdv_bf16_variants() : backward_dkdv_fp32_variants();
    case Kernel::backward_dq:
      return is_bf16 ? backward_dq_bf16_variants() : backward_dq_fp32_variants();
  }
  return {};
}

}  // namespace fovea::cuda::any
