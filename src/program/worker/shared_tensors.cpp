// The layout of a case's tensors, and their memory.
#include "program/worker/shared_tensors.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/check.h"

namespace fovea::program {
namespace {

constexpr std::int64_t kSpacing = 4096;  // every tensor starts on its own page

[[noreturn]] void fail_memory(std::int64_t bytes) {
  core::fail({.status = Status::out_of_memory,
              .call = "bench",
              .problem = "the tensors of the case could not be allocated",
              .got = std::strerror(errno),
              .wanted = std::to_string(bytes) + " bytes"});
}

}  // namespace

std::int64_t TensorPlaces::Place::bytes() const {
  const Sizes& s = tensor.sizes;
  return s[0] * s[1] * s[2] * s[3] * size_of(tensor.dtype);
}

TensorPlaces places_of(const verification::Case& c) {
  TensorPlaces result;
  for (verification::TensorSpec& tensor : c.operation->tensors(c)) {
    std::int64_t& end = verification::is_read(tensor.role) ? result.input_bytes : result.output_bytes;
    result.places.push_back({std::move(tensor), end});
    end += (result.places.back().bytes() + kSpacing - 1) / kSpacing * kSpacing;
  }
  return result;
}

SharedBlock::SharedBlock(const char* name) : descriptor_(memfd_create(name, MFD_CLOEXEC)) {
  if (descriptor_ < 0) fail_memory(0);
}

SharedBlock::SharedBlock(int descriptor, std::int64_t bytes, bool writable)
    : descriptor_(descriptor), owner_(false), bytes_(bytes) {
  map(writable);
}

SharedBlock::~SharedBlock() {
  unmap();
  if (owner_ && descriptor_ >= 0) close(descriptor_);
}

void SharedBlock::resize(std::int64_t bytes) {
  unmap();
  // Truncating to 0 first frees the pages, so that the next case starts with zeros.
  if (ftruncate(descriptor_, 0) != 0 || ftruncate(descriptor_, bytes) != 0) fail_memory(bytes);
  bytes_ = bytes;
  map(true);
}

void SharedBlock::map(bool writable) {
  if (bytes_ == 0) return;
  void* const at = mmap(nullptr, static_cast<std::size_t>(bytes_), PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED,
                        descriptor_, 0);
  if (at == MAP_FAILED) fail_memory(bytes_);
  data_ = static_cast<std::byte*>(at);
}

void SharedBlock::unmap() {
  if (data_ != nullptr) munmap(data_, static_cast<std::size_t>(bytes_));
  data_ = nullptr;
}

MutableTensorView view_of(const TensorPlaces::Place& place, const TensorMemory& memory) {
  std::byte* const base = place.is_input() ? memory.inputs : memory.outputs;
  return {base == nullptr ? nullptr : base + place.offset,
          place.tensor.dtype,
          place.tensor.sizes,
          place.tensor.strides,
          memory.device,
          place.bytes()};
}

verification::TensorSet tensors_of(const TensorPlaces& places, const TensorMemory& memory) {
  verification::TensorSet set;
  for (const auto& place : places.places) set.add(place.tensor.name, view_of(place, memory));
  return set;
}

void poison(const SharedBlock& block) {
  if (block.data() != nullptr) std::memset(block.data(), 0xff, static_cast<std::size_t>(block.bytes()));
}

bool untouched(const MutableTensorView& view) {
  const auto* const bytes = static_cast<const std::byte*>(view.data);
  return bytes == nullptr ||
         std::all_of(bytes, bytes + view.buffer_bytes, [](std::byte b) { return b == std::byte{0xff}; });
}

}  // namespace fovea::program
