// PyTorch from 2.10 on fills a DLTensor by a C function. Tensors of older versions, and those of subclasses, are read
// by their attributes. Either way no stream is asked for, and nothing is counted but the Python object.
#include "torch_tensors.h"

#include <array>

#include "dlpack.h"

namespace fovea::python {
namespace {

using dlpack::kBfloat, dlpack::kFloat;

struct Torch {
  nb::object module = nb::module_::import_("torch");
  nb::object tensor = module.attr("Tensor");
  nb::object fp32 = module.attr("float32"), fp16 = module.attr("float16"), bf16 = module.attr("bfloat16");
  const dlpack::ExchangeApi* exchange = exchange_of(tensor);

  // Null if there is none of the version that this file knows.
  static const dlpack::ExchangeApi* exchange_of(nb::handle type) {
    const nb::object capsule = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
    if (!PyCapsule_IsValid(capsule.ptr(), "dlpack_exchange_api")) return nullptr;
    const auto* api = static_cast<const dlpack::ExchangeApi*>(nb::borrow<nb::capsule>(capsule).data());
    return api->version.major == dlpack::kMajorVersion && api->from_object != nullptr ? api : nullptr;
  }
};

const Torch& torch() {
  static const Torch& all = *new Torch;  // never destroyed: the interpreter may be gone by then
  return all;
}

nb::dlpack::dtype dtype_of(const Request& request, nb::handle tensor) {
  const nb::object type = tensor.attr("dtype");
  if (type.is(torch().fp32)) return {kFloat, 32, 1};
  if (type.is(torch().fp16)) return {kFloat, 16, 1};
  if (type.is(torch().bf16)) return {kBfloat, 16, 1};
  refuse_array(request, tensor);
}

nb::dlpack::device device_of(const Request& request, nb::handle tensor) {
  if (nb::cast<bool>(tensor.attr("is_cpu"))) return {dlpack::kCpu, 0};
  if (nb::cast<bool>(tensor.attr("is_cuda"))) return {dlpack::kCuda, nb::cast<int>(tensor.attr("get_device")())};
  const std::string device = nb::str(tensor.attr("device").attr("type")).c_str();
  refuse_value(request, "got a tensor on device " + device + "; wanted cpu or cuda");
}

MutableTensorView by_attributes(nb::handle tensor, const Request& request) {
  const auto sizes = nb::cast<nb::tuple>(tensor.attr("shape")), strides = nb::cast<nb::tuple>(tensor.attr("stride")());
  check_dims(request, tensor, sizes.size());
  std::array<std::int64_t, 4> size{}, stride{};
  for (std::size_t i = 0; i < sizes.size(); ++i)
    size[i] = nb::cast<std::int64_t>(sizes[i]), stride[i] = nb::cast<std::int64_t>(strides[i]);
  const nb::dlpack::device device = device_of(request, tensor);  // before the address, which some devices have none of
  void* data = reinterpret_cast<void*>(nb::cast<std::uintptr_t>(tensor.attr("data_ptr")()));
  return view_of(request, tensor,
                 {.data = data,
                  .device = device,
                  .ndim = static_cast<std::int32_t>(sizes.size()),
                  .dtype = dtype_of(request, tensor),
                  .shape = size.data(),
                  .strides = stride.data(),
                  .byte_offset = 0});
}

}  // namespace

bool is_torch(nb::handle type) { return nb::hasattr(type, "data_ptr") && nb::hasattr(type, "requires_grad"); }

MutableTensorView view_of_torch(nb::handle tensor, const Request& request) {
  if (torch().exchange != nullptr && tensor.type().is(torch().tensor)) {
    nb::dlpack::dltensor exported{};
    if (torch().exchange->from_object(tensor.ptr(), &exported) == 0) return view_of(request, tensor, exported);
    PyErr_Clear();  // the attributes tell better what is wrong
  }
  return by_attributes(tensor, request);
}

}  // namespace fovea::python
