// Memory of a tensor: strides by placement, guard pages, poison.
#include "verification/host_tensor.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

namespace fovea::verification {
namespace {

constexpr int kPoison = 0xff;                                 // bytes 0xff are a NaN in all three element types
constexpr std::int64_t kMeaningless = std::int64_t{1} << 40;  // stride of dimensions of size 1, which nobody may use

std::int64_t count_of(const Sizes& sizes) { return sizes[0] * sizes[1] * sizes[2] * sizes[3]; }

// The same order of dimensions in memory, with `gap` elements after each row and each outer dimension.
Sizes with_gaps(const Sizes& sizes, const Sizes& dense, std::int64_t gap) {
  std::array<std::size_t, 3> outer_first{0, 1, 2};
  std::stable_sort(outer_first.begin(), outer_first.end(),
                   [&dense](std::size_t a, std::size_t b) { return dense[a] > dense[b]; });
  Sizes strides{0, 0, 0, 1};
  std::int64_t extent = sizes[3];
  for (const std::size_t dimension : {outer_first[2], outer_first[1], outer_first[0]}) {
    strides[dimension] = extent + gap;
    extent = sizes[dimension] * strides[dimension];
  }
  return strides;
}

// The number of elements from the first to the last, gaps included.
std::int64_t extent_of(const Sizes& sizes, const Sizes& strides) {
  if (count_of(sizes) == 0) return 0;
  std::int64_t last = 0;
  for (int i = 0; i < 4; ++i) last += (sizes[i] - 1) * strides[i];
  return last + 1;
}

std::shared_ptr<std::byte> heap(std::int64_t bytes) {
  const std::size_t rounded = (static_cast<std::size_t>(bytes) + 63) / 64 * 64;
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(64, rounded == 0 ? 64 : rounded));
  if (memory == nullptr) throw std::bad_alloc();
  return {memory, [](std::byte* p) { std::free(p); }};
}

// Allocates whole pages between two protected pages.
std::shared_ptr<std::byte> between_guards(std::int64_t bytes) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  const auto length = static_cast<std::size_t>(bytes) + 2 * page;
  void* const mapped = mmap(nullptr, length, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw std::bad_alloc();
  auto* const inside = static_cast<std::byte*>(mapped) + page;
  if (bytes > 0 && mprotect(inside, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE) != 0) {
    munmap(mapped, length);
    throw std::bad_alloc();
  }
  return {inside, [mapped, length](std::byte*) { munmap(mapped, length); }};
}

}  // namespace

HostTensor::HostTensor(const TensorSpec& tensor, std::string_view place, std::uint64_t seed) {
  const Sizes& sizes = tensor.sizes;
  const std::int64_t size = size_of(tensor.dtype);
  const bool strided = place == "strided";
  Sizes strides = with_gaps(sizes, tensor.strides, strided ? 3 : 0);
  if (place == "broadcast" && is_read(tensor.role)) strides[seed % 2] = 0;
  std::int64_t first = strided ? 1 : 0;  // in elements: a strided tensor is aligned to its elements only
  const std::int64_t bytes = (first + extent_of(sizes, strides) + (strided ? 5 : 0)) * size;
  if (place == "guarded" || place == "guarded_front") {
    const std::int64_t page = sysconf(_SC_PAGESIZE);
    allocated_bytes_ = (bytes + page - 1) / page * page;
    memory_ = between_guards(allocated_bytes_);
    if (place == "guarded") first = (allocated_bytes_ - bytes) / size;
  } else {
    allocated_bytes_ = bytes;
    memory_ = heap(bytes);
  }
  view_ = {.data = memory_.get() + first * size, .dtype = tensor.dtype, .sizes = sizes, .strides = strides};
  view_.buffer_bytes = extent_of(sizes, strides) * size;
  if (strided) {
    for (int i = 0; i < 3; ++i) view_.strides[i] = sizes[i] == 1 ? kMeaningless : strides[i];
  }
  poison();
}

void HostTensor::poison() {
  if (allocated_bytes_ > 0) std::memset(memory_.get(), kPoison, static_cast<std::size_t>(allocated_bytes_));
}

bool HostTensor::padding_intact() const {
  if (memory_ == nullptr) return true;
  std::vector<bool> own(static_cast<std::size_t>(allocated_bytes_), false);
  const std::int64_t start = static_cast<std::byte*>(view_.data) - memory_.get(), size = size_of(view_.dtype);
  const auto& [batches, heads, rows, columns] = view_.sizes;
  for (std::int64_t b = 0; b < batches; ++b) {
    for (std::int64_t h = 0; h < heads; ++h) {
      for (std::int64_t i = 0; i < rows; ++i) {
        const std::int64_t row = b * view_.strides[0] + h * view_.strides[1] + i * view_.strides[2];
        const auto begin = own.begin() + (start + row * size);
        std::fill(begin, begin + columns * size, true);
      }
    }
  }
  for (std::int64_t n = 0; n < allocated_bytes_; ++n) {
    if (!own[static_cast<std::size_t>(n)] && memory_.get()[n] != std::byte{kPoison}) return false;
  }
  return true;
}

HostTensor host_buffer(std::int64_t bytes, bool guarded) {
  if (bytes == 0) return {};
  const Sizes sizes{1, 1, 1, guarded ? (bytes + 63) / 64 * 16 : (bytes + 3) / 4};
  return {{.name = "buffer", .role = Role::saved, .sizes = sizes, .strides = dense_strides(sizes)},
          guarded ? "guarded" : "contiguous",
          0};
}

Buffer buffer_of(const HostTensor& memory) {
  return {memory.view().data, memory.view() ? memory.view().buffer_bytes : 0};
}

}  // namespace fovea::verification
