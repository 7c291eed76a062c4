// Checks of single tensors and of pairs of tensors, which every call makes first.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "fovea/attention.h"

namespace fovea::core {

// More than any machine's memory, but small enough that byte counts in plans fit in 64 bits.
inline constexpr std::int64_t kMaxElements = std::int64_t{1} << 50;

// Whether the product of sizes (0 counts as 1) is at most `limit`.
inline bool product_within(std::initializer_list<std::int64_t> sizes, std::int64_t limit) {
  std::int64_t count = 1;
  for (const auto size : sizes) {
    if (__builtin_mul_overflow(count, size > 0 ? size : 1, &count) || count > limit) return false;
  }
  return true;
}

std::int64_t element_count(const TensorView& view);  // the sizes must have been checked

struct TensorArg {
  std::string_view name;
  TensorView view;
  bool is_output;
  std::uintptr_t begin = 0, end = 0;  // its first byte, and one past its last; set by check_tensor
  bool has_elements() const { return begin != end; }
};

// The workspace or the saved state of a call; null if the caller gave none.
struct BufferArg {
  std::string_view name;
  Buffer buffer;
  bool is_written;
  std::uintptr_t begin() const { return reinterpret_cast<std::uintptr_t>(buffer.data); }
  std::uintptr_t end() const { return begin() + static_cast<std::uintptr_t>(buffer.bytes); }
};

// The hint for a workspace that cannot be used.
inline constexpr std::string_view kOwnPool = "leave it {}: the library then takes memory of its own pool";

// Checks the arguments of one call; every refusal is an Error(invalid_argument) that names the call.
class Validator {
 public:
  explicit Validator(std::string_view call) : call_(call) {}

  [[noreturn]] void refuse(std::string_view argument, std::string reason, std::string got, std::string wanted,
                           std::string hint) const;
  void check_given(const TensorArg& t) const {  // for a tensor that must not be left out
    if (!t.view && t.view.sizes == Sizes{}) refuse_missing(t);
  }
  void check_shape(const TensorArg& t) const;  // type, device, sizes; not the pointer and not the strides
  void check_tensor(TensorArg& t) const;
  void check_sizes(const TensorArg& t, const Sizes& wanted) const {
    if (t.view.sizes != wanted) refuse_sizes(t, wanted);
  }
  void check_dtype(const TensorArg& t, DType wanted) const {
    if (t.view.dtype != wanted) refuse_dtype(t, wanted);
  }
  void check_device(const TensorArg& t, Device wanted) const {
    if (t.view.device != wanted) refuse_device(t, wanted);
  }
  void check_overlap(std::span<const TensorArg> tensors) const;  // outputs against themselves and everything else
  void check_buffers(std::span<const TensorArg> tensors, const BufferArg& workspace, const BufferArg& saved) const;

  // Of a problem: types that are known, results of the inputs' type or fp32; a device that may exist.
  void check_element_types(DType dtype, DType result, DType parameter) const;
  void check_known_device(Device device) const;

  void check_threads(int threads, const ExternalThreadPool* thread_pool) const;
  void check_buffer(std::string_view name, const Buffer& buffer, std::string_view hint) const;

  std::function<std::string()> line;  // the call's problem line; "" if none can describe it

 private:
  [[noreturn]] void refuse_missing(const TensorArg& t) const;
  [[noreturn]] void refuse_sizes(const TensorArg& t, const Sizes& wanted) const;
  [[noreturn]] void refuse_dtype(const TensorArg& t, DType wanted) const;
  [[noreturn]] void refuse_device(const TensorArg& t, Device wanted) const;
  [[noreturn]] void refuse_shared(const BufferArg& arg, std::string_view other) const;
  void check_memory(TensorArg& t) const;        // pointer, strides and extent of a tensor with elements
  void check_nested(const TensorArg& t) const;  // strides of an output must not make elements overlap

  std::string_view call_;
};

}  // namespace fovea::core
