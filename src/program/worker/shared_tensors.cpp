// The layout of a case's tensors, and their memory.
#include "program/worker/shared_tensors.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/binary_size.h"
#include "core/check.h"
#include "verification/blocks.h"

namespace fovea::program {
namespace {

constexpr std::int64_t kSpacing = 4096;    // every tensor starts on its own page
constexpr std::int64_t kGuardBytes = 256;  // at least so many stay unused behind every output
constexpr int kPoison = 0xff;

[[noreturn]] void fail_memory(std::int64_t bytes) {
  core::fail({.status = Status::out_of_memory,
              .problem = "the tensors of the case could not be allocated",
              .got = std::strerror(errno),
              .wanted = core::binary_size(bytes)});
}

TensorPlaces places_with(const verification::Case& c, std::int64_t guard_bytes) {
  TensorPlaces result;
  for (verification::TensorSpec& tensor : c.operation->tensors(c)) {
    const bool read = verification::is_read(tensor.role);
    std::int64_t& end = read ? result.input_bytes : result.output_bytes;
    result.places.push_back({std::move(tensor), end});
    const std::int64_t bytes = result.places.back().bytes() + (read ? 0 : guard_bytes);
    end += (bytes + kSpacing - 1) / kSpacing * kSpacing;
  }
  return result;
}

void poison(std::byte* first, std::int64_t bytes) {
  constexpr std::int64_t kBlock = std::int64_t{1} << 21;
  verification::for_each_block(bytes, kBlock, static_cast<double>(bytes), [first](std::int64_t at, std::int64_t count) {
    std::memset(first + at, kPoison, static_cast<std::size_t>(count));
  });
}

bool is_poison(std::byte b) { return b == std::byte{kPoison}; }

}  // namespace

std::int64_t TensorPlaces::PlacedTensor::bytes() const {
  const Sizes& s = tensor.sizes;
  return s[0] * s[1] * s[2] * s[3] * size_of(tensor.dtype);
}

TensorPlaces places_of(const verification::Case& c) { return places_with(c, kGuardBytes); }

TensorPlaces places_without_guards(const verification::Case& c) { return places_with(c, 0); }

SharedBlock::SharedBlock(const char* name) : descriptor_(memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING)) {
  if (descriptor_ < 0 || fcntl(descriptor_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL) != 0) fail_memory(0);
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
  bytes_ = 0;
  // A hole frees the pages, so that the next case starts with zeros.
  constexpr int kHole = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
  if (file_bytes_ > 0 && fallocate(descriptor_, kHole, 0, file_bytes_) != 0) fail_memory(bytes);
  if (bytes > file_bytes_ && ftruncate(descriptor_, bytes) != 0) fail_memory(bytes);
  file_bytes_ = std::max(file_bytes_, bytes);
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

MutableTensorView view_of(const TensorPlaces::PlacedTensor& place, const TensorMemory& memory) {
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
  if (block.data() != nullptr) poison(block.data(), block.bytes());
}

void poison_timed(const verification::Case& c, const TensorPlaces& places, const SharedBlock& outputs) {
  for (const auto& place : places.places) {
    const bool timed = place.tensor.role == verification::Role::gradient ? c.backwards() : c.forwards();
    if (!place.is_input() && timed) poison(outputs.data() + place.offset, place.bytes());
  }
}

bool untouched(const MutableTensorView& view) {
  const auto* const bytes = static_cast<const std::byte*>(view.data);
  return bytes == nullptr || std::all_of(bytes, bytes + view.buffer_bytes, is_poison);
}

std::string overrun(const TensorPlaces& places, const SharedBlock& outputs) {
  std::string names;
  std::int64_t next = places.output_bytes;
  for (auto place = places.places.rbegin(); place != places.places.rend(); ++place) {
    if (place->is_input()) continue;
    const std::byte *const behind = outputs.data() + place->offset + place->bytes(), *const end = outputs.data() + next;
    if (!std::all_of(behind, end, is_poison)) names = place->tensor.name + (names.empty() ? "" : ", ") + names;
    next = place->offset;
  }
  return names;
}

}  // namespace fovea::program
