// Layout of a case's tensors and the memory they lie in.
#include "program/worker/shared_tensors.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/check.h"

namespace fovea::program {
namespace {

constexpr std::int64_t kSpacing = 4096;  // every tensor starts on a page of its own

Sizes strides_of(const Sizes& s, verification::Layout layout) {
  if (layout == verification::Layout::bhld) return dense_strides(s);
  return {s[2] * s[1] * s[3], s[3], s[1] * s[3], 1};
}

[[noreturn]] void fail_memory(std::int64_t bytes) {
  core::fail({.status = Status::out_of_memory,
              .call = "bench",
              .problem = "the tensors of the case could not be allocated",
              .got = std::strerror(errno),
              .wanted = std::to_string(bytes) + " bytes"});
}

}  // namespace

TensorPlaces places_of(const verification::AttentionCase& c) {
  const AttentionProblem& p = c.problem;
  const Sizes q{p.batch, p.heads_q, p.len_q, p.dim_qk}, k{p.batch, p.heads_kv, p.len_k, p.dim_qk};
  const Sizes v{p.batch, p.heads_kv, p.len_k, p.dim_v}, out{p.batch, p.heads_q, p.len_q, p.dim_v};
  const Sizes lse{p.batch, p.heads_q, p.len_q, 1};
  const bool gradients = c.pass != verification::CasePass::fwd;
  TensorPlaces result;
  const auto put = [&](Name name, const Sizes& sizes, DType dtype) {
    std::int64_t& end = is_input(name) ? result.input_bytes : result.output_bytes;
    const verification::Layout layout = name == Name::lse ? verification::Layout::bhld : c.layout;
    auto& place = result.places[static_cast<std::size_t>(name)];
    place = {end, sizes, strides_of(sizes, layout), dtype, true};
    end += (place.bytes() + kSpacing - 1) / kSpacing * kSpacing;
  };
  put(Name::q, q, p.dtype);
  put(Name::k, k, p.dtype);
  put(Name::v, v, p.dtype);
  put(Name::out, out, p.result_dtype);
  put(Name::lse, lse, DType::fp32);
  if (!gradients) return result;
  put(Name::dout, out, p.dtype);
  put(Name::dq, q, p.result_dtype);
  put(Name::dk, k, p.result_dtype);
  put(Name::dv, v, p.result_dtype);
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
  // Cutting to nothing first gives the pages back, so that the next case starts from fresh zeros.
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

MutableTensorView view_of(const TensorPlaces& places, Name name, const TensorMemory& memory) {
  const auto& place = places[name];
  if (!place.present) return {};
  std::byte* const base = is_input(name) ? memory.inputs : memory.outputs;
  return {base == nullptr ? nullptr : base + place.offset,
          place.dtype,
          place.sizes,
          place.strides,
          memory.device,
          place.bytes()};
}

ForwardTensors forward_tensors(const TensorPlaces& places, const TensorMemory& memory) {
  const auto view = [&](Name name) { return view_of(places, name, memory); };
  return {view(Name::q), view(Name::k), view(Name::v), view(Name::out), view(Name::lse), {}};
}

BackwardTensors backward_tensors(const TensorPlaces& places, const TensorMemory& memory) {
  const auto view = [&](Name name) { return view_of(places, name, memory); };
  BackwardTensors t;
  t.q = view(Name::q), t.k = view(Name::k), t.v = view(Name::v);
  t.out = view(Name::out), t.lse = view(Name::lse), t.dout = view(Name::dout);
  t.dq = view(Name::dq), t.dk = view(Name::dk), t.dv = view(Name::dv);
  return t;
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
