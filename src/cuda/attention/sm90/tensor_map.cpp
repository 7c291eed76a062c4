// Encodes tensor maps by the driver's function. It costs about 40 ns and touches no device.
#include "cuda/attention/sm90/tensor_map.h"

#include <algorithm>
#include <array>

#include "cuda/runtime/driver_function.h"

namespace fovea::cuda::sm90 {
namespace {

template <std::size_t kDims>
struct Dimensions {
  std::array<std::int64_t, kDims> sizes;
  std::array<std::int64_t, kDims - 1> strides;  // of all dimensions but the first, in elements
  std::array<cuuint32_t, kDims> box;
};

template <std::size_t kDims>
bool encode(CUtensorMap& map, const ConstTensorRef& t, const Dimensions<kDims>& dimensions) {
  static const auto driver = driver_function<decltype(&cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
  if (driver == nullptr) return false;
  constexpr cuuint64_t kElementBytes = 2, kLeastStride = 16;
  std::array<cuuint64_t, kDims> sizes{};
  std::array<cuuint64_t, kDims - 1> strides{};
  std::array<cuuint32_t, kDims> steps{};
  std::copy(dimensions.sizes.begin(), dimensions.sizes.end(), sizes.begin());
  steps.fill(1);
  // A dimension of size 1 may have any stride here, but not in a map.
  for (std::size_t i = 0; i + 1 < kDims; ++i) {
    const bool used = sizes[i + 1] > 1;
    strides[i] = used ? static_cast<cuuint64_t>(dimensions.strides[i]) * kElementBytes : kLeastStride;
  }
  const CUtensorMapDataType type =
      t.kind == ElementKind::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
  return driver(&map, type, kDims, const_cast<void*>(t.data), sizes.data(), strides.data(), dimensions.box.data(),
                steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

constexpr cuuint32_t kBoxColumns = 64;

}  // namespace

bool encode_tensor_map(CUtensorMap& map, const ConstTensorRef& t, const TensorMapShape& shape) {
  return encode<4>(map, t,
                   {.sizes = {shape.dim, shape.len, shape.heads, shape.batch},
                    .strides = {t.row_stride, t.head_stride, t.batch_stride},
                    .box = {kBoxColumns, static_cast<cuuint32_t>(shape.box_rows), 1, 1}});
}

bool encode_query_map(CUtensorMap& map, const ConstTensorRef& t, const QueryMapShape& shape) {
  return encode<5>(
      map, t,
      {.sizes = {shape.dim, shape.group, shape.len, shape.heads_kv, shape.batch},
       .strides = {t.head_stride, t.row_stride, t.head_stride * shape.group, t.batch_stride},
       .box = {kBoxColumns, static_cast<cuuint32_t>(shape.box_heads), static_cast<cuuint32_t>(shape.box_rows), 1, 1}});
}

}  // namespace fovea::cuda::sm90
