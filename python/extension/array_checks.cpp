// Every message names the parameter, what was got and what is wanted.
#include "array_checks.h"

#include "dlpack.h"

namespace fovea::python {
namespace {

std::string word(const nb::object& object) { return nb::str(nb::handle(object)).c_str(); }

std::string text_of(nb::handle object) {
  std::string text = nb::type_name(object.type()).c_str();
  for (const char* attribute : {"dtype", "shape"}) {
    if (nb::hasattr(object, attribute))
      text += std::string(attribute[0] == 'd' ? " of " : ", shape ") + word(object.attr(attribute));
  }
  return text;
}

DType dtype_of(const Request& request, nb::handle object, nb::dlpack::dtype type) {
  if (type.lanes == 1) {
    if (type.code == dlpack::kFloat && type.bits == 32) return DType::fp32;
    if (type.code == dlpack::kFloat && type.bits == 16) return DType::fp16;
    if (type.code == dlpack::kBfloat && type.bits == 16) return DType::bf16;
  }
  refuse_array(request, object);
}

Device device_of(const Request& request, nb::dlpack::device device) {
  const int type = device.device_type;
  if (type == dlpack::kCpu || type == dlpack::kCudaHost) return {};
  if (type == dlpack::kCuda || type == dlpack::kCudaManaged) return {DeviceKind::cuda, device.device_id};
  refuse_value(request, "got a device of DLPack's type " + std::to_string(type) + "; wanted the CPU or CUDA");
}

}  // namespace

void refuse_value(const Request& request, const std::string& problem) {
  throw nb::value_error((std::string(request.name) + ": " + problem).c_str());
}

void refuse_read_only(const Request& request) {
  refuse_value(request, "the array is read-only; wanted one that can be written");
}

void refuse_array(const Request& request, nb::handle object) {
  throw nb::type_error(
      (std::string(request.name) + ": got " + text_of(object) + "; wanted an array of float32, float16 or bfloat16")
          .c_str());
}

void check_dims(const Request& request, nb::handle object, std::size_t dims) {
  if (dims == request.dims) return;
  const std::string shape = nb::hasattr(object, "shape") ? ", shape " + word(object.attr("shape")) : "";
  refuse_value(request, "got " + std::to_string(dims) + " dimensions" + shape + "; wanted " +
                            (request.dims == 4 ? "4: batch, heads, length and columns, in the order of `layout`"
                                               : "3: batch, heads and length"));
}

MutableTensorView view_of(const Request& request, nb::handle object, const nb::dlpack::dltensor& tensor) {
  check_dims(request, object, static_cast<std::size_t>(tensor.ndim));
  MutableTensorView view;
  view.data = static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  view.dtype = dtype_of(request, object, tensor.dtype);
  view.device = device_of(request, tensor.device);
  view.sizes = {1, 1, 1, 1}, view.strides = {1, 1, 1, 1};  // rows have one column
  for (std::size_t i = 0; i < request.dims; ++i) view.sizes[i] = tensor.shape[i], view.strides[i] = tensor.strides[i];
  return view;
}

}  // namespace fovea::python
