// Memory of a case: strides by layout and placement, guard pages, poison.
#include "verification/case_tensors.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

namespace fovea::verification {
namespace {

constexpr int kPoison = 0xff;                                 // bytes 0xff are a NaN in all three element types
constexpr std::int64_t kMeaningless = std::int64_t{1} << 40;  // stride of a dimension of size 1

std::int64_t count_of(const Sizes& sizes) { return sizes[0] * sizes[1] * sizes[2] * sizes[3]; }

// Rows next to each other in the order of the layout, `gap` elements after each row and each outer dimension.
Sizes strides_of(const Sizes& sizes, core::Layout layout, std::int64_t gap) {
  const int outer = 0, middle = layout == core::Layout::bhld ? 1 : 2, inner = 3 - middle;
  Sizes strides{0, 0, 0, 1};
  strides[inner] = sizes[3] + gap;
  strides[middle] = sizes[inner] * strides[inner] + gap;
  strides[outer] = sizes[middle] * strides[middle] + gap;
  return strides;
}

// Elements from the first to one past the last.
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

// Whole pages between two protected ones.
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

HostTensor::HostTensor(const Sizes& sizes, DType dtype, const core::Case& c, bool is_output) {
  const std::int64_t size = size_of(dtype);
  const bool strided = c.place == "strided";
  Sizes strides = strides_of(sizes, c.layout, strided ? 3 : 0);
  if (c.place == "broadcast" && !is_output) strides[c.seed % 2] = 0;  // over the batch, or over the heads
  std::int64_t first = strided ? 1 : 0;  // in elements: a strided tensor is aligned to its elements only
  const std::int64_t bytes = (first + extent_of(sizes, strides) + (strided ? 5 : 0)) * size;
  if (c.place == "guarded" || c.place == "guarded_front") {
    const std::int64_t page = sysconf(_SC_PAGESIZE);
    allocated_bytes_ = (bytes + page - 1) / page * page;
    memory_ = between_guards(allocated_bytes_);
    if (c.place == "guarded") first = (allocated_bytes_ - bytes) / size;
  } else {
    allocated_bytes_ = bytes;
    memory_ = heap(bytes);
  }
  view_ = {.data = memory_.get() + first * size, .dtype = dtype, .sizes = sizes, .strides = strides};
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

ForwardTensors CaseTensors::forward() const {
  ForwardTensors t{.q = q.view(), .k = k.view(), .v = v.view(), .out = out.view(), .lse = lse.view()};
  if (saved.view()) t.saved = {saved.view().data, saved.view().buffer_bytes};
  return t;
}

BackwardTensors CaseTensors::backward() const {
  BackwardTensors t{.q = q.view(), .k = k.view(), .v = v.view(), .out = out.view(), .lse = lse.view()};
  t.dout = dout.view();
  t.delta = delta.view();
  t.dq = dq.view();
  t.dk = dk.view();
  t.dv = dv.view();
  if (saved.view()) t.saved = {saved.view().data, saved.view().buffer_bytes};
  return t;
}

bool CaseTensors::padding_intact() const {
  return out.padding_intact() && lse.padding_intact() && dq.padding_intact() && dk.padding_intact() &&
         dv.padding_intact();
}

CaseTensors make_tensors(const core::Case& c, DType result) {
  const AttentionProblem& p = c.problem;
  const Sizes q{p.batch, p.heads_q, p.len_q, p.dim_qk}, k{p.batch, p.heads_kv, p.len_k, p.dim_qk},
      v{p.batch, p.heads_kv, p.len_k, p.dim_v}, out{p.batch, p.heads_q, p.len_q, p.dim_v},
      row{p.batch, p.heads_q, p.len_q, 1};
  CaseTensors t;
  t.q = HostTensor(q, p.dtype, c, false);
  t.k = HostTensor(k, p.dtype, c, false);
  t.v = HostTensor(v, p.dtype, c, false);
  fill_input(c, Role::q, t.q.view());
  fill_input(c, Role::k, t.k.view());
  fill_input(c, Role::v, t.v.view());
  t.out = HostTensor(out, result, c, true);
  t.lse = HostTensor(row, DType::fp32, c, true);
  if (c.pass == core::CasePass::fwd) return t;
  t.dout = HostTensor(out, p.dtype, c, false);
  fill_input(c, Role::dout, t.dout.view());
  t.dq = HostTensor(q, result, c, true);
  t.dk = HostTensor(k, result, c, true);
  t.dv = HostTensor(v, result, c, true);
  return t;
}

HostTensor make_saved(std::int64_t bytes) {
  if (bytes == 0) return {};
  return {{1, 1, 1, (bytes + 3) / 4}, DType::fp32, core::Case{}, true};
}

AttentionOptions options_of(const core::Case& c) { return {.mask = c.problem.mask, .scale = c.problem.scale}; }

}  // namespace fovea::verification
