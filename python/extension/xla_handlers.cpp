// The functions that fovea/jax.py registers with XLA. XLA calls them on its own threads, which do not hold the GIL:
// nothing but the list of them touches Python.
#include "xla_handlers.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "arrays.h"
#include "fovea/attention.h"
#include "xla_ffi.h"

namespace fovea::python {
namespace {

// An error that XLA made, on its way back to XLA.
struct ErrorOfXla {
  xla::Error* error;
};

void check(xla::Error* error) {
  if (error != nullptr) throw ErrorOfXla{error};
}

template <class Arguments>
Arguments arguments_of(const xla::Call& call) {
  Arguments arguments{};
  arguments.size = sizeof(Arguments);
  arguments.context = call.context;
  return arguments;
}

void* stream_of(const xla::Call& call) {
  auto arguments = arguments_of<xla::GetStream>(call);
  check(call.api->stream(&arguments));
  return arguments.stream;
}

int device_of(const xla::Call& call) {
  if (call.api->size < offsetof(xla::Api, device) + sizeof(call.api->device))
    throw std::runtime_error("fovea.jax: this jaxlib does not tell the GPU of a call; wanted jaxlib 0.6 or newer");
  auto arguments = arguments_of<xla::GetDevice>(call);
  check(call.api->device(&arguments));
  return arguments.index;
}

// Memory of XLA's allocator on the GPU of a call. It goes back when the call has been enqueued: XLA hands it out again
// only to work that its stream runs later.
class Workspace {
 public:
  Workspace(const xla::Call& call, std::int64_t bytes) : call_(call), bytes_(bytes) {
    if (bytes == 0) return;
    auto arguments = arguments_of<xla::Allocate>(call);
    arguments.bytes = allocated(), arguments.alignment = kXlaAlignment;
    check(call.api->allocate(&arguments));
    data_ = arguments.data;
  }
  Workspace(const Workspace&) = delete;
  ~Workspace() {
    if (data_ == nullptr) return;
    auto arguments = arguments_of<xla::Free>(call_);
    arguments.bytes = allocated(), arguments.data = data_;
    call_.api->free(&arguments);
  }

  Buffer buffer() const {
    const auto begin = (reinterpret_cast<std::uintptr_t>(data_) + kAlignment - 1) / kAlignment * kAlignment;
    return {reinterpret_cast<void*>(begin), bytes_};
  }

 private:
  static constexpr std::size_t kAlignment = 64, kXlaAlignment = 16;  // XLA refuses to promise more
  std::size_t allocated() const { return static_cast<std::size_t>(bytes_) + kAlignment - kXlaAlignment; }

  const xla::Call& call_;
  std::int64_t bytes_;
  void* data_ = nullptr;
};

// The attributes of a call. What fovea/jax.py leaves out is absent.
class Attributes {
 public:
  explicit Attributes(const xla::Attributes& all) : all_(all) {}

  std::int64_t integer(std::string_view name, std::int64_t otherwise) const {
    const void* const value = find(name, xla::Type::s64);
    return value == nullptr ? otherwise : *static_cast<const std::int64_t*>(value);
  }
  std::optional<double> number(std::string_view name) const {
    const void* const value = find(name, xla::Type::f64);
    return value == nullptr ? std::optional<double>() : *static_cast<const double*>(value);
  }
  std::string_view text(std::string_view name) const {
    for (std::int64_t i = 0; i < all_.count; ++i) {
      if (all_.kinds[i] == xla::AttributeKind::text && view(all_.names[i]) == name) return view(all_.values[i]);
    }
    return {};
  }

 private:
  static std::string_view view(const void* text) {
    const auto& it = *static_cast<const xla::Text*>(text);
    return {it.data, it.length};
  }
  const void* find(std::string_view name, xla::Type type) const {
    for (std::int64_t i = 0; i < all_.count; ++i) {
      if (all_.kinds[i] != xla::AttributeKind::scalar || view(all_.names[i]) != name) continue;
      const auto& scalar = *static_cast<const xla::Scalar*>(all_.values[i]);
      if (scalar.type == type) return scalar.value;
    }
    return nullptr;
  }

  const xla::Attributes& all_;
};

Mask mask_of(const Attributes& attributes) {
  Mask mask{.alignment = Mask::Alignment::equal_lengths,
            .left = attributes.integer("left", Mask::kUnlimited),
            .right = attributes.integer("right", Mask::kUnlimited)};
  if (mask.left == Mask::kUnlimited && mask.right == Mask::kUnlimited) return Mask::none;
  const std::string_view align = attributes.text("align");
  if (align == "top_left") mask.alignment = Mask::Alignment::top_left;
  if (align == "bottom_right") mask.alignment = Mask::Alignment::bottom_right;
  return mask;
}

DType dtype_of(xla::Type type) {
  switch (type) {
    case xla::Type::f32:
      return DType::fp32;
    case xla::Type::f16:
      return DType::fp16;
    case xla::Type::bf16:
      return DType::bf16;
    default:
      throw std::runtime_error("fovea.jax: an array of another type; wanted float32, float16 or bfloat16");
  }
}

// The arrays of a call as tensor views. vmap puts dimensions before the batch, which join it: XLA's arrays are dense.
class Tensors {
 public:
  Tensors(const xla::Call& call, Layout layout, Device device) : call_(call), layout_(layout), device_(device) {}

  MutableTensorView argument(std::int64_t index) const { return tensor(item(call_.arguments, index)); }
  MutableTensorView argument_rows(std::int64_t index) const { return rows(item(call_.arguments, index)); }
  MutableTensorView result(std::int64_t index) const { return tensor(item(call_.results, index)); }
  MutableTensorView result_rows(std::int64_t index) const { return rows(item(call_.results, index)); }

 private:
  static const xla::Buffer& item(const xla::Buffers& buffers, std::int64_t index) {
    if (index >= buffers.count) throw std::runtime_error("fovea.jax: a call with too few arrays");
    return *buffers.items[index];
  }

  MutableTensorView dense(const xla::Buffer& buffer, std::int64_t dims) const {
    if (buffer.rank < dims) throw std::runtime_error("fovea.jax: an array with too few dimensions");
    Sizes sizes{1, 1, 1, 1};
    const std::int64_t joined = buffer.rank - dims;
    for (std::int64_t i = 0; i < buffer.rank; ++i) sizes[i <= joined ? 0 : i - joined] *= buffer.sizes[i];
    return contiguous(buffer.data, dtype_of(buffer.type), sizes, device_);
  }

  MutableTensorView tensor(const xla::Buffer& buffer) const {
    MutableTensorView view = dense(buffer, 4);
    if (layout_ == Layout::blhd) std::swap(view.sizes[1], view.sizes[2]), std::swap(view.strides[1], view.strides[2]);
    return view;
  }

  // log-sum-exp: one column.
  MutableTensorView rows(const xla::Buffer& buffer) const { return dense(buffer, 3); }

  const xla::Call& call_;
  Layout layout_;
  Device device_;
};

// Arrays in the order of fovea/jax.py.
struct Forward {
  static constexpr const char* kTarget = "fovea_attention";
  static ForwardTensors tensors(const Tensors& all) {
    return {.q = all.argument(0),
            .k = all.argument(1),
            .v = all.argument(2),
            .out = all.result(0),
            .lse = all.result_rows(1)};
  }
  static void run(const ForwardTensors& tensors, const AttentionOptions& options) {
    attention_forward(tensors, options);
  }
};

struct Backward {
  static constexpr const char* kTarget = "fovea_attention_backward";
  static BackwardTensors tensors(const Tensors& all) {
    return {.q = all.argument(1),
            .k = all.argument(2),
            .v = all.argument(3),
            .out = all.argument(4),
            .lse = all.argument_rows(5),
            .dout = all.argument(0),
            .dq = all.result(0),
            .dk = all.result(1),
            .dv = all.result(2)};
  }
  static void run(const BackwardTensors& tensors, const AttentionOptions& options) {
    attention_backward(tensors, options);
  }
};

template <class Operation, DeviceKind kind>
void run(const xla::Call& call) {
  const Attributes attributes(call.attributes);
  const Layout layout = attributes.text("layout") == "blhd" ? Layout::blhd : Layout::bhld;
  AttentionOptions options{.mask = mask_of(attributes), .scale = attributes.number("scale")};
  if constexpr (kind == DeviceKind::cpu) {
    Operation::run(Operation::tensors({call, layout, {}}), options);
  } else {
    const auto tensors = Operation::tensors({call, layout, {kind, device_of(call)}});
    options.stream = stream_of(call);
    const Plan plan = prepare(describe(tensors, options));
    const Workspace workspace(call, plan.workspace_bytes());
    options.plan = &plan, options.workspace = workspace.buffer();
    Operation::run(tensors, options);
  }
}

xla::Code code_of(Status status) {
  switch (status) {
    case Status::invalid_argument:
      return xla::Code::invalid_argument;
    case Status::unsupported:
      return xla::Code::unimplemented;
    case Status::out_of_memory:
      return xla::Code::resource_exhausted;
    case Status::cancelled:
      return xla::Code::cancelled;
    default:
      return xla::Code::internal;
  }
}

xla::Error* error_of(const xla::Call& call, const char* message, xla::Code code) {
  xla::CreateError arguments{};
  arguments.size = sizeof(arguments);
  arguments.message = message, arguments.code = code;
  return call.api->create_error(&arguments);
}

// XLA asks for the version when a function is registered, and refuses one that it does not speak. Its own is not told
// by older ones, which speak the oldest.
bool tell_version(const xla::Call& call) {
  if (call.extensions == nullptr || call.extensions->kind != xla::ExtensionKind::metadata) return false;
  xla::Version& version = reinterpret_cast<xla::MetadataExtension*>(call.extensions)->metadata->version;
  version.major_version = xla::kMajorVersion;
  version.minor_version = call.api == nullptr ? xla::kOldestMinorVersion
                                              : std::min(call.api->version.minor_version, xla::kNewestMinorVersion);
  return true;
}

template <class Operation, DeviceKind kind>
xla::Error* handle(xla::Call* call) noexcept {
  if (tell_version(*call)) return nullptr;
  try {
    run<Operation, kind>(*call);
    return nullptr;
  } catch (const ErrorOfXla& thrown) {
    return thrown.error;
  } catch (const Error& error) {
    return error_of(*call, error.what(), code_of(error.status()));
  } catch (const std::bad_alloc&) {
    return error_of(*call, "fovea.jax: out of memory", xla::Code::resource_exhausted);
  } catch (const std::exception& error) {
    return error_of(*call, error.what(), xla::Code::internal);
  }
}

template <class Operation, DeviceKind kind>
nb::tuple registration() {
  xla::Error* (*const function)(xla::Call*) = &handle<Operation, kind>;
  return nb::make_tuple(Operation::kTarget, kind == DeviceKind::cpu ? "cpu" : "CUDA",
                        nb::capsule(reinterpret_cast<void*>(function)));
}

}  // namespace

void add_xla_handlers(nb::module_& module) {
  module.def("xla_handlers", [] {
    nb::list all;
    all.append(registration<Forward, DeviceKind::cpu>());
    all.append(registration<Forward, DeviceKind::cuda>());
    all.append(registration<Backward, DeviceKind::cpu>());
    all.append(registration<Backward, DeviceKind::cuda>());
    return all;
  });
}

}  // namespace fovea::python
