// Views of tensors that the caller owns: element type, device, sizes and strides. A view never allocates or frees.
#pragma once

#include <array>
#include <cstdint>

namespace fovea {

enum class DType : std::uint8_t { fp32, bf16, fp16 };

constexpr std::int64_t size_of(DType type) { return type == DType::fp32 ? 4 : 2; }

enum class DeviceKind : std::uint8_t { cpu, cuda };

struct Device {
  DeviceKind kind = DeviceKind::cpu;
  int index = 0;
  bool operator==(const Device&) const = default;
};

using Sizes = std::array<std::int64_t, 4>;

// A [batch, heads, length, dim] tensor; the log-sum-exp uses dim = 1. Strides count elements, not bytes.
// The last dimension must be contiguous (stride 1). A stride of 0 (broadcast) is allowed on inputs only; negative
// strides are refused; the stride of a dimension of size 1 is ignored. Strides of an output must not make elements
// overlap: each is at least the extent of all dimensions with smaller strides.
template <class Pointer>
struct BasicTensorView {
  Pointer data = nullptr;
  DType dtype = DType::fp32;
  Sizes sizes{};
  Sizes strides{};
  Device device{};
  std::int64_t buffer_bytes = -1;  // bytes that may be accessed from `data` on; -1: unknown, so not checked

  // An output of one call is an input of the next.
  operator BasicTensorView<const void*>() const { return {data, dtype, sizes, strides, device, buffer_bytes}; }
  explicit operator bool() const { return data != nullptr; }
};

using TensorView = BasicTensorView<const void*>;
using MutableTensorView = BasicTensorView<void*>;

// Strides of a dense row-major tensor: (B, H, L, D) in memory.
constexpr Sizes dense_strides(const Sizes& sizes) {
  return {sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1};
}

namespace detail {
template <class T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::fp32;
};
}  // namespace detail

// View of a dense fp32 tensor of the given [batch, heads, length, dim] sizes.
template <class T>
MutableTensorView contiguous(T* data, const Sizes& sizes) {
  return {data, detail::DTypeOf<T>::value, sizes, dense_strides(sizes)};
}

// View of a dense tensor whose element type is given by `dtype`.
inline MutableTensorView contiguous(void* data, DType dtype, const Sizes& sizes, Device device = {}) {
  return {data, dtype, sizes, dense_strides(sizes), device};
}

}  // namespace fovea
