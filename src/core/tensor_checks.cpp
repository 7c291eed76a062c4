// Checks of tensors and of pairs of tensors; none reads an element.
#include "core/tensor_checks.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "core/check.h"
#include "core/names.h"

namespace fovea::core {
namespace {

// The number of elements from the view's first to its last, gaps included; -1 if it overflows.
std::int64_t extent(const TensorView& view) {
  std::int64_t last = 0;
  for (int i = 0; i < 4; ++i) {
    std::int64_t step = 0;
    if (view.sizes[i] > 1 && (__builtin_mul_overflow(view.sizes[i] - 1, view.strides[i], &step) ||
                              __builtin_add_overflow(last, step, &last)))
      return -1;
  }
  return last < kMaxElements ? last + 1 : -1;
}

std::string device_text(Device device) {
  return std::string(name_of(device.kind)) + ":" + std::to_string(device.index);
}

// Whether two views with overlapping extents may share a byte. Exact for tensors that interleave in one allocation,
// such as packed q, k and v, which have equal strides and disjoint columns in every row.
bool may_overlap(const TensorView& a, const TensorView& b) {
  const auto first_a = reinterpret_cast<std::uintptr_t>(a.data), first_b = reinterpret_cast<std::uintptr_t>(b.data);
  if (size_of(a.dtype) != size_of(b.dtype)) return true;
  // In a dimension with a common stride, the views are disjoint if the offset modulo that stride separates their
  // extents in the smaller dimensions.
  const bool b_later = first_b >= first_a;
  const TensorView& low = b_later ? a : b;
  const TensorView& high = b_later ? b : a;
  const auto offset = static_cast<std::int64_t>(b_later ? first_b - first_a : first_a - first_b) / size_of(a.dtype);
  for (int i = 0; i < 3; ++i) {
    const std::int64_t stride = low.strides[i];
    if (stride <= 0 || high.strides[i] != stride || low.sizes[i] <= 1 || high.sizes[i] <= 1) continue;
    std::int64_t inner_low = 1, inner_high = 1;
    bool nested = true;
    for (int j = 0; j < 4; ++j) {
      if (j == i) continue;
      if (low.sizes[j] > 1) (low.strides[j] < stride ? inner_low += (low.sizes[j] - 1) * low.strides[j] : inner_low);
      if (high.sizes[j] > 1)
        (high.strides[j] < stride ? inner_high += (high.sizes[j] - 1) * high.strides[j] : inner_high);
      nested = nested && (low.strides[j] < stride || low.strides[j] % stride == 0) &&
               (high.strides[j] < stride || high.strides[j] % stride == 0);
    }
    const std::int64_t within = offset % stride;
    if (nested && within >= inner_low && within + inner_high <= stride) return false;
  }
  return true;
}

}  // namespace

std::int64_t element_count(const TensorView& view) {
  std::int64_t count = 1;
  for (const auto size : view.sizes) count *= size;
  return count;
}

void Validator::refuse(std::string_view argument, std::string reason, std::string got, std::string wanted,
                       std::string hint) const {
  fail({.status = Status::invalid_argument,
        .call = std::string(call_),
        .argument = std::string(argument),
        .problem = std::move(reason),
        .got = std::move(got),
        .wanted = std::move(wanted),
        .hint = std::move(hint),
        .line = line ? line() : ""});
}

void Validator::refuse_missing(const TensorArg& t) const {
  refuse(t.name, "the tensor is missing", "null, sizes " + to_string(t.view.sizes),
         "a tensor of (batch, heads, length, dim)",
         t.name == "lse"                   ? "ask the forward call for it"
         : t.name == "out" && !t.is_output ? "give what forward wrote, or delta in its place"
                                           : "contiguous(data, sizes) makes a view");
}

void Validator::check_shape(const TensorArg& t) const {
  const TensorView& v = t.view;
  if (!is_known(v.dtype)) {
    refuse(t.name, "unknown element type", std::to_string(static_cast<int>(v.dtype)), join({"fp32", "bf16", "fp16"}),
           "set dtype to a value of enum DType");
  }
  if (!is_known(v.device.kind)) {
    refuse(t.name, "unknown device", std::to_string(static_cast<int>(v.device.kind)), join({"cpu", "cuda"}),
           "set device.kind to a value of enum DeviceKind");
  }
  if (v.device.index < 0 || (v.device.kind == DeviceKind::cpu && v.device.index != 0)) {
    refuse(t.name, "no such device", device_text(v.device),
           v.device.kind == DeviceKind::cpu ? "cpu:0" : "an index of 0 or more",
           "the memory of all processors is cpu:0");
  }
  if (v.buffer_bytes < -1) {
    refuse(t.name, "negative buffer size", to_string(v.buffer_bytes) + " bytes", "0 bytes or more, or -1",
           "buffer_bytes counts from `data` on, -1 where it is not known");
  }
  for (const auto size : v.sizes) {
    if (size < 0)
      refuse(t.name, "negative size", to_string(v.sizes), "sizes of 0 or more",
             "sizes are (batch, heads, length, dim)");
  }
  if (!product_within({v.sizes[0], v.sizes[1], v.sizes[2], v.sizes[3]}, kMaxElements)) {
    refuse(t.name, "the product of the sizes overflows", to_string(v.sizes),
           "at most " + to_string(kMaxElements) + " elements", "sizes are (batch, heads, length, dim), in elements");
  }
}

void Validator::check_tensor(TensorArg& t) const {
  check_shape(t);
  if (element_count(t.view) == 0) return;  // an empty tensor's pointer and strides are never used
  check_memory(t);
}

void Validator::check_memory(TensorArg& t) const {
  const TensorView& v = t.view;
  if (v.data == nullptr)
    refuse(t.name, "null pointer", "null, sizes " + to_string(v.sizes),
           "memory for " + to_string(element_count(v)) + " elements",
           t.is_output ? "allocate it" : "allocate and fill it; a tensor with a size of 0 may be null");
  const auto last_of_element = static_cast<std::uintptr_t>(size_of(v.dtype)) - 1;  // sizes are powers of two
  if ((reinterpret_cast<std::uintptr_t>(v.data) & last_of_element) != 0) {
    refuse(t.name, "pointer not aligned to its elements",
           "address ending in " + to_string(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(v.data) % 16)),
           "a multiple of " + to_string(size_of(v.dtype)) + " bytes", "start the tensor at a whole element");
  }
  for (int i = 0; i < 4; ++i) {
    if (v.sizes[i] > 1 && v.strides[i] < 0)
      refuse(t.name, "negative stride", "strides " + to_string(v.strides), "strides of 0 or more",
             "copy the tensor with its rows in the order wanted");
  }
  if (v.sizes[3] > 1 && v.strides[3] != 1) {
    refuse(t.name, "the last dimension must be contiguous",
           "sizes " + to_string(v.sizes) + " strides " + to_string(v.strides), "strides[3] == 1",
           "copy the tensor so that its last dimension is contiguous");
  }
  const std::int64_t elements = extent(v);
  if (elements < 0)
    refuse(t.name, "the strides reach past the address space", "strides " + to_string(v.strides),
           "an extent below " + to_string(kMaxElements) + " elements", "strides count elements, not bytes");
  const std::int64_t bytes = elements * size_of(v.dtype);
  if (v.buffer_bytes >= 0 && bytes > v.buffer_bytes) {
    refuse(t.name, "the strides reach past the buffer", to_string(v.buffer_bytes) + " bytes",
           "at least " + to_string(bytes) + " bytes",
           "strides count elements; buffer_bytes counts from `data` on, -1 where it is not known");
  }
  t.begin = reinterpret_cast<std::uintptr_t>(v.data), t.end = t.begin + static_cast<std::uintptr_t>(bytes);
}

// Strides of an output must not make elements overlap. Nested strides cannot: in ascending order, each is at least the
// extent of the dimensions before it. Some other strides would do as well, but deciding that takes a search.
void Validator::check_nested(const TensorArg& t) const {
  const TensorView& v = t.view;
  std::array<int, 4> order{3, 2, 1, 0};  // already sorted for most tensors
  for (int i = 1; i < 4; ++i) {
    for (int j = i; j > 0 && v.strides[order[j]] < v.strides[order[j - 1]]; --j) std::swap(order[j], order[j - 1]);
  }
  std::int64_t span = 1;
  for (const int i : order) {
    if (v.sizes[i] <= 1) continue;
    if (v.strides[i] < span) {
      refuse(t.name, v.strides[i] == 0 ? "stride 0 on an output" : "strides of an output that do not nest",
             "sizes " + to_string(v.sizes) + " strides " + to_string(v.strides),
             "strides[" + to_string(i) + "] of " + to_string(span) +
                 " or more, the extent of the dimensions with smaller ones",
             "dense_strides(sizes) gives strides that fit");
    }
    span += (v.sizes[i] - 1) * v.strides[i];
  }
}

void Validator::refuse_sizes(const TensorArg& t, const Sizes& wanted) const {
  refuse(t.name, "sizes do not agree with the other tensors", to_string(t.view.sizes), to_string(wanted),
         "sizes are (batch, heads, length, dim)");
}

void Validator::refuse_dtype(const TensorArg& t, DType wanted) const {
  refuse(t.name, "element type does not agree", std::string(name_of(t.view.dtype)), std::string(name_of(wanted)),
         "convert the tensor to " + std::string(name_of(wanted)));
}

void Validator::refuse_device(const TensorArg& t, Device wanted) const {
  refuse(t.name, "tensors are on different devices", device_text(t.view.device), device_text(wanted),
         "copy the tensor to " + device_text(wanted));
}

void Validator::check_overlap(std::span<const TensorArg> tensors) const {
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const TensorArg& output = tensors[i];
    if (!output.is_output || !output.has_elements()) continue;
    check_nested(output);
    for (std::size_t j = 0; j < tensors.size(); ++j) {
      const TensorArg& other = tensors[j];
      if (output.end <= other.begin || other.end <= output.begin) continue;
      if (i == j || (other.is_output && j < i) || !other.has_elements()) continue;
      if (may_overlap(output.view, other.view)) {
        refuse(output.name, "an output that shares memory with `" + std::string(other.name) + "`",
               "overlapping buffers", "memory of its own",
               "give `" + std::string(output.name) + "` a buffer that no other tensor uses");
      }
    }
  }
}

void Validator::check_element_types(DType dtype, DType result, DType parameter) const {
  for (const auto& [name, one] :
       {std::pair{"dtype", dtype}, {"result_dtype", result}, {"parameter_dtype", parameter}}) {
    if (!is_known(one))
      refuse(name, "unknown element type", std::to_string(static_cast<int>(one)), join({"fp32", "bf16", "fp16"}),
             "set it to a value of enum DType");
    if (one != dtype && one != DType::fp32)
      refuse(name, "element type of a result", std::string(name_of(one)),
             dtype == DType::fp32 ? "fp32" : join({name_of(dtype), "fp32"}, " or "),
             "results are stored in the type of the inputs or in fp32");
  }
}

void Validator::check_known_device(Device device) const {
  if (!is_known(device.kind) || device.index < 0 || (device.kind == DeviceKind::cpu && device.index != 0))
    refuse("device", "no such device", std::string(name_of(device.kind)) + ":" + to_string(device.index),
           "cpu:0, or cuda with an index of 0 or more", "the memory of all processors is cpu:0");
}

void Validator::check_threads(int threads, const ExternalThreadPool* thread_pool) const {
  if (threads < 0 || threads > kMaxThreads)
    refuse("threads", threads < 0 ? "negative thread count" : "too many threads", std::to_string(threads),
           "0 for the default, or 1 to " + std::to_string(kMaxThreads), "leave it 0 for as many as the machine grants");
  if (thread_pool == nullptr) return;
  const int pooled = thread_pool->threads;
  if (thread_pool->run == nullptr || pooled < 1 || pooled > kMaxThreads) {
    refuse("thread_pool",
           pooled > kMaxThreads ? "too many threads" : "a thread pool without threads or without a function",
           std::to_string(pooled) + " threads", "1 to " + std::to_string(kMaxThreads) + " threads and a run function",
           "leave it null for the library's own threads");
  }
}

void Validator::check_buffer(std::string_view name, const Buffer& buffer, std::string_view hint) const {
  if (buffer.bytes < 0 || (buffer.data == nullptr && buffer.bytes != 0)) {
    refuse(name, "null or negative buffer",
           to_string(buffer.bytes) + " bytes at " + (buffer.data ? "an address" : "null"), "a buffer, or {} for none",
           std::string(hint));
  }
  const auto past = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(buffer.data) % 64);
  if (past != 0)
    refuse(name, "buffer not aligned", "address ending in " + to_string(past), "a multiple of 64 bytes",
           std::string(hint));
}

void Validator::refuse_shared(const BufferArg& arg, std::string_view other) const {
  refuse(arg.name, "a buffer that shares memory with `" + std::string(other) + "`",
         to_string(arg.buffer.bytes) + " bytes that overlap it", "memory of its own",
         "give `" + std::string(arg.name) + "` memory that nothing else of the call uses, or {} for none");
}

// A buffer must not overlap the whole extent of a tensor, gaps between rows included, unless both are only read.
void Validator::check_buffers(std::span<const TensorArg> tensors, const BufferArg& workspace,
                              const BufferArg& saved) const {
  for (const BufferArg* arg : {&workspace, &saved}) {
    if (arg->buffer.data == nullptr || arg->buffer.bytes == 0) continue;
    for (const TensorArg& t : tensors) {
      if ((arg->is_written || t.is_output) && t.has_elements() && t.begin < arg->end() && arg->begin() < t.end)
        refuse_shared(*arg, t.name);
    }
  }
  if (workspace.buffer.bytes > 0 && saved.buffer.bytes > 0 && workspace.begin() < saved.end() &&
      saved.begin() < workspace.end())
    refuse_shared(workspace, saved.name);
}

}  // namespace fovea::core
