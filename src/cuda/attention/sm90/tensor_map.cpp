// Tensor maps from the driver, which encodes them without work on a device. Between the launches of a call, another
// address for a kept map takes less time than encoding one (docs/kernels/cuda_any_notebook.md, 2026-11-26).
#include "cuda/attention/sm90/tensor_map.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <tuple>

#include "core/hash.h"
#include "cuda/runtime/device_info.h"
#include "cuda/runtime/driver_function.h"

namespace fovea::cuda::sm90 {
namespace {

// What a map is made of, but for the tensor's address.
template <std::size_t kDims>
struct MapLayout {
  ElementKind kind;
  std::array<std::int64_t, kDims> sizes;
  std::array<std::int64_t, kDims - 1> strides;  // of all dimensions but the first, in elements
  std::array<cuuint32_t, kDims> box;
  bool operator==(const MapLayout&) const = default;
};

template <std::size_t kDims>
std::size_t hash_of(const MapLayout<kDims>& layout) {
  return std::apply([](const auto&... numbers) { return core::hash_of(numbers...); },
                    std::tuple_cat(std::tuple(layout.kind), layout.sizes, layout.strides, layout.box));
}

template <std::size_t kDims>
bool encode(CUtensorMap& map, const void* data, const MapLayout<kDims>& layout) {
  static const auto driver = driver_function<decltype(&cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
  if (driver == nullptr) return false;
  constexpr cuuint64_t kElementBytes = 2, kLeastStride = 16;
  std::array<cuuint64_t, kDims> sizes{};
  std::array<cuuint64_t, kDims - 1> strides{};
  std::array<cuuint32_t, kDims> steps{};
  std::copy(layout.sizes.begin(), layout.sizes.end(), sizes.begin());
  steps.fill(1);
  // A dimension of size 1 may have any stride here, but not in a map.
  for (std::size_t i = 0; i + 1 < kDims; ++i) {
    const bool used = sizes[i + 1] > 1;
    strides[i] = used ? static_cast<cuuint64_t>(layout.strides[i]) * kElementBytes : kLeastStride;
  }
  const CUtensorMapDataType type =
      layout.kind == ElementKind::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  const auto ask = [&] {
    return driver(&map, type, kDims, const_cast<void*>(data), sizes.data(), strides.data(), layout.box.data(),
                  steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  };
  CUresult status = ask();
  // A new thread has no context until it calls the runtime, and the driver encodes in a context only.
  if (status == CUDA_ERROR_INVALID_CONTEXT && cudaSetDevice(current_device()) == cudaSuccess) status = ask();
  return status == CUDA_SUCCESS;
}

bool replace_address(CUtensorMap& map, const void* data) {
  static const auto driver = driver_function<decltype(&cuTensorMapReplaceAddress)>("cuTensorMapReplaceAddress");
  return driver != nullptr && driver(&map, const_cast<void*>(data)) == CUDA_SUCCESS;
}

// A thread keeps the maps of the last layouts. A tensor of such a layout gets a copy with its own address.
template <std::size_t kDims>
bool map_of(CUtensorMap& map, const void* data, const MapLayout<kDims>& layout) {
  struct Kept {
    MapLayout<kDims> layout;  // all 0: none
    CUtensorMap map;
  };
  constexpr std::size_t kMost = 16;
  static thread_local std::array<Kept, kMost> all{};
  Kept& kept = all[hash_of(layout) % kMost];
  if (kept.layout == layout) {
    map = kept.map;
    if (replace_address(map, data)) return true;
  }
  if (!encode(map, data, layout)) return false;
  kept.layout = layout, kept.map = map;
  return true;
}

constexpr cuuint32_t kBoxColumns = 64;

}  // namespace

bool encode_tensor_map(CUtensorMap& map, const ConstTensorRef& t, const TensorMapShape& shape) {
  return map_of<4>(map, t.data,
                   {.kind = t.kind,
                    .sizes = {shape.dim, shape.len, shape.heads, shape.batch},
                    .strides = {t.row_stride, t.head_stride, t.batch_stride},
                    .box = {kBoxColumns, static_cast<cuuint32_t>(shape.box_rows), 1, 1}});
}

bool encode_query_map(CUtensorMap& map, const ConstTensorRef& t, const QueryMapShape& shape) {
  return map_of<5>(
      map, t.data,
      {.kind = t.kind,
       .sizes = {shape.dim, shape.group, shape.len, shape.heads_kv, shape.batch},
       .strides = {t.head_stride, t.row_stride, t.head_stride * shape.group, t.batch_stride},
       .box = {kBoxColumns, static_cast<cuuint32_t>(shape.box_heads), static_cast<cuuint32_t>(shape.box_rows), 1, 1}});
}

}  // namespace fovea::cuda::sm90
