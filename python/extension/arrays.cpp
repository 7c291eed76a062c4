// NumPy and most frameworks export arrays by DLPack, which nanobind imports. Tensors of PyTorch are read by their
// attributes, which takes less time and asks for no stream.
#include "arrays.h"

#include <utility>
#include <vector>

namespace fovea::python {
namespace {

constexpr int kCpu = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13;  // DLDeviceType
constexpr int kFloat = 2, kBfloat = 4;                                // DLDataTypeCode

struct Request {
  const char* name;
  std::size_t dims;
  bool written;
};

std::string word(const nb::object& object) { return nb::str(nb::handle(object)).c_str(); }

std::string text_of(nb::handle object) {
  std::string text = nb::type_name(object.type()).c_str();
  for (const char* attribute : {"dtype", "shape"}) {
    if (nb::hasattr(object, attribute))
      text += std::string(attribute[0] == 'd' ? " of " : ", shape ") + word(object.attr(attribute));
  }
  return text;
}

[[noreturn]] void refuse_type(const Request& request, nb::handle object, const std::string& wanted) {
  const std::string text = std::string(request.name) + ": got " + text_of(object) + "; wanted " + wanted;
  throw nb::type_error(text.c_str());
}

[[noreturn]] void refuse_value(const Request& request, const std::string& problem) {
  throw nb::value_error((std::string(request.name) + ": " + problem).c_str());
}

void check_dims(const Request& request, nb::handle object, std::size_t dims) {
  if (dims == request.dims) return;
  refuse_value(request, "got " + std::to_string(dims) + " dimensions, shape " + word(object.attr("shape")) +
                            "; wanted " +
                            (request.dims == 4 ? "4: batch, heads, length and columns, in the order of `layout`"
                                               : "3: batch, heads and length"));
}

// Rows have one column.
void set_sizes(MutableTensorView& view, const std::int64_t* sizes, const std::int64_t* strides, std::size_t dims) {
  view.sizes = {1, 1, 1, 1}, view.strides = {1, 1, 1, 1};
  for (std::size_t i = 0; i < dims; ++i) view.sizes[i] = sizes[i], view.strides[i] = strides[i];
}

const std::string kTypes = "an array of float32, float16 or bfloat16";

DType dtype_of(const Request& request, nb::handle object, nb::dlpack::dtype type) {
  if (type.lanes == 1) {
    if (type.code == kFloat && type.bits == 32) return DType::fp32;
    if (type.code == kFloat && type.bits == 16) return DType::fp16;
    if (type.code == kBfloat && type.bits == 16) return DType::bf16;
  }
  refuse_type(request, object, kTypes);
}

Device device_of(const Request& request, int type, int index) {
  if (type == kCpu || type == kCudaHost) return {};
  if (type == kCuda || type == kCudaManaged) return {DeviceKind::cuda, index};
  refuse_value(request, "got a device of DLPack's type " + std::to_string(type) + "; wanted the CPU or CUDA");
}

// NumPy has no bf16 of its own: the type is that of the package ml_dtypes, which DLPack of NumPy does not export.
bool is_numpy_bf16(nb::handle object) {
  return nb::hasattr(object, "dtype") && nb::hasattr(object, "view") && nb::hasattr(object.attr("dtype"), "name") &&
         word(object.attr("dtype").attr("name")) == "bfloat16";
}

Array from_dlpack(nb::handle object, const Request& request) {
  Array array{.object = nb::borrow(object), .held = {}, .view = {}};
  nb::object exported = array.object;
  bool bf16 = false;
  if (!nb::try_cast(exported, array.held, false)) {
    PyErr_Clear();
    bf16 = is_numpy_bf16(object);
    if (bf16) exported = object.attr("view")("uint16");
    if (!bf16 || !nb::try_cast(exported, array.held, false)) refuse_type(request, object, kTypes);
  }
  nb::ndarray<> writable;
  if (request.written && !nb::try_cast(exported, writable, false)) {
    PyErr_Clear();
    refuse_value(request, "the array is read-only; wanted one that can be written");
  }
  const auto& held = array.held;
  check_dims(request, object, held.ndim());
  array.view.data = const_cast<void*>(held.data());
  array.view.dtype = bf16 ? DType::bf16 : dtype_of(request, object, held.dtype());
  array.view.device = device_of(request, held.device_type(), held.device_id());
  set_sizes(array.view, held.shape_ptr(), held.stride_ptr(), held.ndim());
  return array;
}

bool is_tensor_of_torch(nb::handle object) {
  return nb::hasattr(object, "data_ptr") && nb::hasattr(object, "requires_grad");
}

// Whether arrays of a type are PyTorch's, found out once for each type. The GIL guards the list.
bool is_torch(nb::handle object) {
  static auto& known = *new std::vector<std::pair<nb::object, bool>>;  // keeps the types alive
  for (const auto& [type, answer] : known) {
    if (type.ptr() == object.type().ptr()) return answer;
  }
  const bool answer = is_tensor_of_torch(object);
  known.emplace_back(nb::borrow(object.type()), answer);
  return answer;
}

DType torch_dtype(const Request& request, nb::handle object) {
  struct Types {
    nb::object torch = nb::module_::import_("torch");
    nb::object fp32 = torch.attr("float32"), fp16 = torch.attr("float16"), bf16 = torch.attr("bfloat16");
  };
  static const Types& types = *new Types;  // never destroyed: the interpreter may be gone by then
  const nb::object type = object.attr("dtype");
  if (type.is(types.fp32)) return DType::fp32;
  if (type.is(types.fp16)) return DType::fp16;
  if (type.is(types.bf16)) return DType::bf16;
  refuse_type(request, object, "a tensor of float32, float16 or bfloat16");
}

Device torch_device(const Request& request, nb::handle object) {
  if (nb::cast<bool>(object.attr("is_cpu"))) return {};
  if (nb::cast<bool>(object.attr("is_cuda"))) return {DeviceKind::cuda, nb::cast<int>(object.attr("get_device")())};
  refuse_value(request, "got a tensor on device " + word(object.attr("device").attr("type")) + "; wanted cpu or cuda");
}

Array from_torch(nb::handle object, const Request& request) {
  if (nb::cast<bool>(object.attr("requires_grad")))
    refuse_value(request, "the tensor requires grad, and this call records no gradient; wanted tensor.detach()");
  const auto sizes = nb::cast<nb::tuple>(object.attr("shape")), strides = nb::cast<nb::tuple>(object.attr("stride")());
  check_dims(request, object, sizes.size());
  std::array<std::int64_t, 4> size{}, stride{};
  for (std::size_t i = 0; i < sizes.size(); ++i)
    size[i] = nb::cast<std::int64_t>(sizes[i]), stride[i] = nb::cast<std::int64_t>(strides[i]);
  Array array{.object = nb::borrow(object), .held = {}, .view = {}};
  array.view.device = torch_device(request, object);
  array.view.data = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(object.attr("data_ptr")()));
  array.view.dtype = torch_dtype(request, object);
  set_sizes(array.view, size.data(), stride.data(), sizes.size());
  return array;
}

Array array_of(nb::handle object, const Request& request) {
  return is_torch(object) ? from_torch(object, request) : from_dlpack(object, request);
}

Array array_of(nb::handle object, const Request& request, Layout layout) {
  Array array = array_of(object, request);
  if (layout == Layout::blhd) {
    std::swap(array.view.sizes[1], array.view.sizes[2]);
    std::swap(array.view.strides[1], array.view.strides[2]);
  }
  return array;
}

}  // namespace

Layout layout_of(nb::handle word) {
  const std::string text = nb::repr(word).c_str();
  if (text == "'bhld'") return Layout::bhld;
  if (text == "'blhd'") return Layout::blhd;
  throw nb::value_error(("layout: got " + text + "; wanted \"bhld\" or \"blhd\"").c_str());
}

Array input_array(nb::handle object, const char* name, Layout layout) {
  return array_of(object, {name, 4, false}, layout);
}

Array output_array(nb::handle object, const char* name, Layout layout) {
  return array_of(object, {name, 4, true}, layout);
}

Array input_rows(nb::handle object, const char* name) { return array_of(object, {name, 3, false}); }

Array output_rows(nb::handle object, const char* name) { return array_of(object, {name, 3, true}); }

nb::tuple shape_of(const Sizes& sizes, Layout layout) {
  return layout == Layout::bhld ? nb::make_tuple(sizes[0], sizes[1], sizes[2], sizes[3])
                                : nb::make_tuple(sizes[0], sizes[2], sizes[1], sizes[3]);
}

nb::tuple shape_of_rows(const Sizes& sizes) { return nb::make_tuple(sizes[0], sizes[1], sizes[2]); }

}  // namespace fovea::python
