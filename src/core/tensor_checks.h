// Refusals of single tensors and of pairs of them: what every call checks first.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>

#include "fovea/attention.h"

namespace fovea::core {

// Far above any machine's memory, and low enough that byte counts of plans built on it stay within 64 bits.
inline constexpr std::int64_t kMaxElements = std::int64_t{1} << 50;

// Whether the product of sizes (0 counts as 1) is at most `limit`.
inline bool product_within(std::initializer_list<std::int64_t> sizes, std::int64_t limit) {
  std::int64_t count = 1;
  for (const auto size : sizes) {
    if (__builtin_mul_overflow(count, size > 0 ? size : 1, &count) || count > limit) return false;
  }
  return true;
}

std::int64_t element_count(const TensorView& view);  // of a tensor whose sizes were checked

struct TensorArg {
  std::string_view name;
  TensorView view;
  bool is_output;
  std::uintptr_t begin = 0, end = 0;  // from its first byte to behind its last, found by check_tensor
  bool has_elements() const { return begin != end; }
};

// The workspace or the saved state of a call; null if not given.
struct BufferArg {
  std::string_view name;
  Buffer buffer;
  bool is_written;
  std::uintptr_t begin() const { return reinterpret_cast<std::uintptr_t>(buffer.data); }
  std::uintptr_t end() const { return begin() + static_cast<std::uintptr_t>(buffer.bytes); }
};

// The hint for a workspace that cannot be used.
inline constexpr std::string_view kOwnPool = "leave it {}: the library then takes memory of its own pool";

// Throws Error(invalid_argument) for the call that it was made for.
class Validator {
 public:
  explicit Validator(std::string_view call) : call_(call) {}

  [[noreturn]] void refuse(std::string_view argument, std::string reason, std::string got, std::string wanted,
                           std::string hint) const;
  void check_given(const TensorArg& t) const {  // a tensor that may not be left out
    if (!t.view && t.view.sizes == Sizes{}) refuse_missing(t);
  }
  void check_shape(const TensorArg& t) const;  // all that needs neither pointer nor strides
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

  void check_threads(int threads, const ExternalThreadPool* thread_pool) const;
  void check_buffer(std::string_view name, const Buffer& buffer, std::string_view hint) const;

  std::function<std::string()> line;  // what the call asks for as a problem line, where one can say it

 private:
  [[noreturn]] void refuse_missing(const TensorArg& t) const;
  [[noreturn]] void refuse_sizes(const TensorArg& t, const Sizes& wanted) const;
  [[noreturn]] void refuse_dtype(const TensorArg& t, DType wanted) const;
  [[noreturn]] void refuse_device(const TensorArg& t, Device wanted) const;
  [[noreturn]] void refuse_shared(const BufferArg& arg, std::string_view other) const;
  void check_memory(TensorArg& t) const;        // pointer, strides, extent of a tensor that has elements
  void check_nested(const TensorArg& t) const;  // so that every index of an output has an element of its own

  std::string_view call_;
};

}  // namespace fovea::core
