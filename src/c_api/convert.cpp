// C structs to C++ views and back. Every struct is copied first, so that its size is checked before any other field.
#include "c_api/convert.h"

#include <atomic>
#include <cstdint>

#include "attention/mask.h"
#include "c_api/sized_struct.h"
#include "core/check.h"
#include "core/tensor_checks.h"

namespace fovea::c_api {
namespace {

static_assert(FOVEA_FP16 == static_cast<int>(DType::fp16) && FOVEA_BF16 == static_cast<int>(DType::bf16));
static_assert(FOVEA_CUDA == static_cast<int>(DeviceKind::cuda) && FOVEA_BACKWARD == static_cast<int>(Pass::backward));
static_assert(FOVEA_UNLIMITED == Mask::kUnlimited);
static_assert(FOVEA_ERROR == static_cast<int>(Status::error));
static_assert(sizeof(std::atomic<bool>) == 1 && std::atomic<bool>::is_always_lock_free);  // the cancel byte

template <class Enum>
Enum to_enum(std::int32_t value, int count, const std::string& name, std::string_view call) {
  return static_cast<Enum>(to_index(value, count, name, call));
}

// The C++ calls would refuse them too, but with the names of C++.
void check_bounds(std::int64_t left, std::int64_t right, std::string_view call) {
  for (const auto& [name, bound] : {std::pair{"mask_left", left}, {"mask_right", right}}) {
    if (!core::is_bound(bound))
      refuse(call, name, "a window's bound out of range", std::to_string(bound), "0 to 2^62 keys, or FOVEA_UNLIMITED",
             "mask_left and mask_right count keys beside the row's own");
  }
  if (left == FOVEA_UNLIMITED && right == FOVEA_UNLIMITED)
    refuse(call, "mask", "a window that hides nothing", "mask_left and mask_right of FOVEA_UNLIMITED",
           "a limit for mask_left or mask_right", "the mask that hides nothing is FOVEA_MASK_NONE");
}

}  // namespace

int to_index(std::int32_t value, int count, const std::string& name, std::string_view call) {
  if (value < 0 || value >= count)
    refuse(call, name, "unknown value", std::to_string(value), "0 to " + std::to_string(count - 1),
           "use the constants of fovea.h");
  return value;
}

bool to_bool(std::int32_t value, const std::string& name, std::string_view call) {
  if (value != 0 && value != 1)
    refuse(call, name, "not a boolean", std::to_string(value), "0 or 1", "0 is no, 1 is yes");
  return value == 1;
}

void check_reserved(std::int32_t value, std::string_view name, std::string_view call) {
  if (value != 0)
    refuse(call, name, "a field without a meaning is set", std::to_string(value), "0", "initialise the whole struct");
}

Mask convert_mask(std::int32_t value, std::int64_t left, std::int64_t right, std::string_view call) {
  const auto words = core::mask_words();
  const core::MaskWord& word = words[to_enum<std::size_t>(value, static_cast<int>(words.size()), "mask", call)];
  if (word.is_window) {
    check_bounds(left, right, call);
    return {word.mask.alignment, left, right};
  }
  for (const auto& [name, bound] : {std::pair{"mask_left", left}, {"mask_right", right}}) {
    if (bound != 0)
      refuse(call, name, "a bound without a window", std::to_string(bound) + " with mask " + std::string(word.word),
             "0, or mask " + core::window_word_list(), "only windows take bounds");
  }
  return word.mask;
}

MutableTensorView optional_tensor(const fovea_tensor* tensor, std::string_view name, std::string_view call) {
  if (tensor == nullptr) return {};
  MutableTensorView view = convert_tensor(tensor, name, call);
  // In C++ a null pointer means "absent". In C only a null struct does, because an empty tensor needs no memory.
  const bool empty = view.sizes[0] == 0 || view.sizes[1] == 0 || view.sizes[2] == 0 || view.sizes[3] == 0;
  if (view.data == nullptr && !empty)
    refuse(call, name, "null pointer", "null, sizes " + core::to_string(view.sizes), "memory, or a null struct",
           "a null struct says that the tensor is absent");
  return view;
}

Buffer convert(const fovea_buffer& buffer) { return {buffer.data, buffer.bytes}; }

ExternalThreadPool convert(const fovea_external_thread_pool& given, std::string_view call) {
  const fovea_external_thread_pool thread_pool = read_struct(&given, "thread_pool", call);
  if (thread_pool.run == nullptr)
    refuse(call, "thread_pool", "a thread pool without a function", "run null", "a function",
           "leave thread_pool null for the library's own threads");
  return {thread_pool.threads, thread_pool.host, thread_pool.run};
}

void refuse(std::string_view call, std::string_view argument, std::string problem, std::string got, std::string wanted,
            std::string hint) {
  core::fail({.status = Status::invalid_argument,
              .call = std::string(call),
              .argument = std::string(argument),
              .problem = std::move(problem),
              .got = std::move(got),
              .wanted = std::move(wanted),
              .hint = std::move(hint)});
}

void refuse_null(std::string_view name, std::string_view call) {
  refuse(call, name, "null pointer", "null", "the address of a struct", "only what fovea.h says may be null");
}

MutableTensorView convert_tensor(const fovea_tensor* given, std::string_view name, std::string_view call) {
  const fovea_tensor tensor = read_struct(given, name, call);
  const std::string prefix(name);
  if (tensor.rank != 4)
    refuse(call, name, "wrong rank", std::to_string(tensor.rank), "rank 4",
           "sizes are (batch, heads, length, dim); absent ones are 1");
  if (tensor.buffer_bytes < 0) {
    refuse(call, prefix + ".buffer_bytes", "negative size", std::to_string(tensor.buffer_bytes), "0 (not told) or more",
           "it counts from data on");
  }
  MutableTensorView view;
  view.data = tensor.data;
  view.dtype = to_enum<DType>(tensor.dtype, 3, prefix + ".dtype", call);
  for (std::size_t i = 0; i < 4; ++i) {
    view.sizes[i] = tensor.sizes[i];
    view.strides[i] = tensor.strides[i];
  }
  view.device = {to_enum<DeviceKind>(tensor.device_kind, 2, prefix + ".device_kind", call), tensor.device_index};
  view.buffer_bytes = tensor.buffer_bytes == 0 ? -1 : tensor.buffer_bytes;
  return view;
}

fovea_tensor dense_tensor(void* data, std::int32_t dtype, const Sizes& sizes, std::string_view call) {
  core::TensorArg tensor{"sizes", {.dtype = to_enum<DType>(dtype, 3, "dtype", call), .sizes = sizes}, true};
  core::Validator(call).check_shape(tensor);
  const Sizes strides = dense_strides(sizes);
  return {.struct_size = sizeof(fovea_tensor),
          .data = data,
          .dtype = dtype,
          .rank = 4,
          .sizes = {sizes[0], sizes[1], sizes[2], sizes[3]},
          .strides = {strides[0], strides[1], strides[2], strides[3]},
          .device_kind = FOVEA_CPU};
}

const AttentionOptions& Options::get() {
  if (thread_pool.run != nullptr) options.thread_pool = &thread_pool;
  return options;
}

Options convert(const fovea_options* given, std::string_view call) {
  Options result;
  if (given == nullptr) return result;
  const fovea_options options = read_struct(given, "options", call);
  result.options.mask = convert_mask(options.mask, options.mask_left, options.mask_right, call);
  if (to_bool(options.has_scale, "has_scale", call)) result.options.scale = options.scale;
  if (options.implementation != nullptr) result.options.implementation = options.implementation;
  result.options.threads = options.threads;
  result.options.reproducible = !to_bool(options.irreproducible, "irreproducible", call);
  if (options.thread_pool != nullptr) result.thread_pool = convert(*options.thread_pool, call);
  result.options.cancel = reinterpret_cast<const std::atomic<bool>*>(options.cancel);
  result.options.stream = options.stream;
  result.options.workspace = convert(options.workspace);
  return result;
}

ForwardTensors convert(const fovea_forward_tensors* given, std::string_view call) {
  const fovea_forward_tensors tensors = read_struct(given, "tensors", call);
  ForwardTensors result;
  result.q = convert_tensor(tensors.q, "q", call);
  result.k = convert_tensor(tensors.k, "k", call);
  result.v = convert_tensor(tensors.v, "v", call);
  result.out = convert_tensor(tensors.out, "out", call);
  result.lse = optional_tensor(tensors.lse, "lse", call);
  result.saved = convert(tensors.saved);
  return result;
}

BackwardTensors convert(const fovea_backward_tensors* given, std::string_view call) {
  const fovea_backward_tensors tensors = read_struct(given, "tensors", call);
  BackwardTensors result;
  result.q = convert_tensor(tensors.q, "q", call);
  result.k = convert_tensor(tensors.k, "k", call);
  result.v = convert_tensor(tensors.v, "v", call);
  result.lse = convert_tensor(tensors.lse, "lse", call);
  result.dout = convert_tensor(tensors.dout, "dout", call);
  result.delta = optional_tensor(tensors.delta, "delta", call);
  result.out =
      tensors.delta != nullptr ? optional_tensor(tensors.out, "out", call) : convert_tensor(tensors.out, "out", call);
  result.dq = optional_tensor(tensors.dq, "dq", call);
  result.dk = optional_tensor(tensors.dk, "dk", call);
  result.dv = optional_tensor(tensors.dv, "dv", call);
  result.saved = convert(tensors.saved);
  result.accumulate = to_bool(tensors.accumulate, "accumulate", call);
  check_reserved(tensors.reserved, "reserved", call);
  return result;
}

AttentionProblem convert(const fovea_problem* given, std::string_view call) {
  const fovea_problem problem = read_struct(given, "problem", call);
  AttentionProblem result;
  result.pass = to_enum<Pass>(problem.pass, 2, "pass", call);
  result.mask = convert_mask(problem.mask, problem.mask_left, problem.mask_right, call);
  result.batch = problem.batch;
  result.heads_q = problem.heads_q;
  result.heads_kv = problem.heads_kv;
  result.len_q = problem.len_q;
  result.len_k = problem.len_k;
  result.dim_qk = problem.dim_qk;
  result.dim_v = problem.dim_v;
  result.dtype = to_enum<DType>(problem.dtype, 3, "dtype", call);
  result.result_dtype = to_enum<DType>(problem.result_dtype, 3, "result_dtype", call);
  result.scale = problem.scale;
  result.device = {to_enum<DeviceKind>(problem.device_kind, 2, "device_kind", call), problem.device_index};
  result.reproducible = !to_bool(problem.irreproducible, "irreproducible", call);
  result.saved_state = to_bool(problem.saved_state, "saved_state", call);
  result.accumulate = to_bool(problem.accumulate, "accumulate", call);
  result.wants_dq = !to_bool(problem.skip_dq, "skip_dq", call);
  result.wants_dk = !to_bool(problem.skip_dk, "skip_dk", call);
  result.wants_dv = !to_bool(problem.skip_dv, "skip_dv", call);
  result.unaligned = to_bool(problem.unaligned, "unaligned", call);
  check_reserved(problem.reserved, "reserved", call);
  return result;
}

fovea_problem convert(const AttentionProblem& problem) {
  const bool is_window = core::word_of(problem.mask).is_window;
  return {.struct_size = sizeof(fovea_problem),
          .pass = static_cast<std::int32_t>(problem.pass),
          .mask = static_cast<std::int32_t>(core::index_of(problem.mask)),
          .batch = problem.batch,
          .heads_q = problem.heads_q,
          .heads_kv = problem.heads_kv,
          .len_q = problem.len_q,
          .len_k = problem.len_k,
          .dim_qk = problem.dim_qk,
          .dim_v = problem.dim_v,
          .dtype = static_cast<std::int32_t>(problem.dtype),
          .result_dtype = static_cast<std::int32_t>(problem.result_dtype),
          .scale = problem.scale,
          .device_kind = static_cast<std::int32_t>(problem.device.kind),
          .device_index = problem.device.index,
          .irreproducible = !problem.reproducible,
          .saved_state = problem.saved_state,
          .accumulate = problem.accumulate,
          .skip_dq = !problem.wants_dq,
          .skip_dk = !problem.wants_dk,
          .skip_dv = !problem.wants_dv,
          .mask_left = is_window ? problem.mask.left : 0,
          .mask_right = is_window ? problem.mask.right : 0,
          .unaligned = problem.unaligned,
          .reserved = 0};
}

const LinearOptions& LinearCallOptions::get() {
  if (thread_pool.run != nullptr) options.thread_pool = &thread_pool;
  return options;
}

LinearCallOptions convert(const fovea_linear_options* given, std::string_view call) {
  LinearCallOptions result;
  if (given == nullptr) return result;
  const fovea_linear_options options = read_struct(given, "options", call);
  check_reserved(options.reserved, "reserved", call);
  if (options.implementation != nullptr) result.options.implementation = options.implementation;
  result.options.threads = options.threads;
  if (options.thread_pool != nullptr) result.thread_pool = convert(*options.thread_pool, call);
  result.options.cancel = reinterpret_cast<const std::atomic<bool>*>(options.cancel);
  result.options.stream = options.stream;
  result.options.workspace = convert(options.workspace);
  return result;
}

LinearForwardTensors convert(const fovea_linear_forward_tensors* given, std::string_view call) {
  const fovea_linear_forward_tensors tensors = read_struct(given, "tensors", call);
  return {.x = convert_tensor(tensors.x, "x", call),
          .weight = convert_tensor(tensors.weight, "weight", call),
          .bias = optional_tensor(tensors.bias, "bias", call),
          .y = convert_tensor(tensors.y, "y", call)};
}

LinearBackwardTensors convert(const fovea_linear_backward_tensors* given, std::string_view call) {
  const fovea_linear_backward_tensors tensors = read_struct(given, "tensors", call);
  return {.x = optional_tensor(tensors.x, "x", call),
          .weight = optional_tensor(tensors.weight, "weight", call),
          .dy = convert_tensor(tensors.dy, "dy", call),
          .dx = optional_tensor(tensors.dx, "dx", call),
          .dweight = optional_tensor(tensors.dweight, "dweight", call),
          .dbias = optional_tensor(tensors.dbias, "dbias", call),
          .accumulate = to_bool(tensors.accumulate, "accumulate", call),
          .accumulate_dx = to_bool(tensors.accumulate_dx, "accumulate_dx", call)};
}

}  // namespace fovea::c_api
