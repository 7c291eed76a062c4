// Arrays of NumPy and tensors of PyTorch are read as numpy_arrays.cpp and torch_tensors.cpp tell. Other frameworks
// export arrays by DLPack, in capsules that are looked at before nanobind consumes them.
#include "arrays.h"

#include <string_view>
#include <utility>
#include <vector>

#include "array_checks.h"
#include "dlpack.h"
#include "numpy_arrays.h"
#include "torch_tensors.h"

namespace fovea::python {
namespace {

using Held = nb::ndarray<nb::ro>;

// Invalid if nanobind cannot read it.
Held imported(nb::handle capsule) {
  Held array;
  if (!nb::try_cast(capsule, array, false)) PyErr_Clear();
  return array;
}

// On CUDA without a wait: the call runs on the current stream of the framework.
nb::object capsule_of(nb::handle object) {
  nb::dict words;
  if (nb::hasattr(object, "__dlpack_device__")) {
    const int device = nb::cast<int>(nb::object(object.attr("__dlpack_device__")()[0]));
    if (device == dlpack::kCuda || device == dlpack::kCudaManaged) words["stream"] = -1;
  }
  const nb::object method = object.attr("__dlpack__");
  words["max_version"] = nb::make_tuple(dlpack::kMajorVersion, 0);
  try {
    return method(**words);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;  // of versions before DLPack 1.0
  }
  nb::del(words["max_version"]);
  return method(**words);
}

[[noreturn]] void refuse_capsule(const Request& request, const std::string& got, const std::string& wanted) {
  throw nb::buffer_error((std::string(request.name) + ": got " + got + "; wanted " + wanted).c_str());
}

void check_capsule(nb::handle capsule, const Request& request) {
  const char* name = PyCapsule_CheckExact(capsule.ptr()) ? PyCapsule_GetName(capsule.ptr()) : nullptr;
  const std::string_view text = name == nullptr ? "" : name;
  if (text != "dltensor" && text != "dltensor_versioned")
    refuse_capsule(request, "a capsule named \"" + std::string(text) + "\"",
                   "\"dltensor\" or \"dltensor_versioned\", which is consumed once");
  if (text == "dltensor") return;
  const auto* tensor = static_cast<const dlpack::ManagedTensorVersioned*>(PyCapsule_GetPointer(capsule.ptr(), name));
  if (tensor->version.major != dlpack::kMajorVersion)
    refuse_capsule(request, "a capsule of DLPack " + std::to_string(tensor->version.major), "one of DLPack 1");
  if (request.written && (tensor->flags & dlpack::kReadOnly) != 0) refuse_read_only(request);
}

// Invalid for objects that have only a buffer too: nanobind reads strides that some of NumPy's scalars do not have.
Held from_capsule(nb::handle object, const Request& request) {
  if (!PyCapsule_CheckExact(object.ptr()) && !nb::hasattr(object, "__dlpack__")) return {};
  nb::object capsule = nb::borrow(object);
  if (!PyCapsule_CheckExact(object.ptr())) {
    try {
      capsule = capsule_of(object);
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_BufferError)) throw;  // which says that it does not export this type
      return {};
    }
  }
  check_capsule(capsule, request);
  return imported(capsule);
}

enum class Exporter : std::uint8_t { numpy, torch, other };

Exporter exporter_of(nb::handle type) {
  return is_torch(type) ? Exporter::torch : is_numpy(type) ? Exporter::numpy : Exporter::other;
}

// Found out once for each type. The GIL guards the list.
Exporter exporter(nb::handle object) {
  static auto& known = *new std::vector<std::pair<nb::object, Exporter>>;  // keeps the types alive
  for (const auto& [type, answer] : known) {
    if (type.ptr() == object.type().ptr()) return answer;
  }
  known.emplace_back(nb::borrow(object.type()), exporter_of(object.type()));
  return known.back().second;
}

// Keeps the capsule's tensor in `array`.
MutableTensorView view_of_capsule(nb::handle object, const Request& request, Array& array) {
  array.held = from_capsule(object, request);
  const bool bf16 = !array.held.is_valid() && is_named_bf16(object) && nb::hasattr(object, "view");
  if (bf16) array.held = from_capsule(object.attr("view")("uint16"), request);
  if (!array.held.is_valid()) refuse_array(request, object);
  const Held& held = array.held;
  nb::dlpack::dltensor tensor{.data = held.data_handle(),
                              .device = {held.device_type(), held.device_id()},
                              .ndim = static_cast<std::int32_t>(held.ndim()),
                              .dtype = held.dtype(),
                              .shape = const_cast<std::int64_t*>(held.shape_ptr()),
                              .strides = const_cast<std::int64_t*>(held.stride_ptr()),
                              .byte_offset = held.byte_offset()};
  if (bf16) tensor.dtype.code = dlpack::kBfloat;
  return view_of(request, object, tensor);
}

Array array_of(nb::handle object, const Request& request) {
  Array array{.object = nb::borrow(object), .held = {}, .view = {}};
  const Exporter by = exporter(object);
  array.view = by == Exporter::torch   ? view_of_torch(object, request)
               : by == Exporter::numpy ? view_of_numpy(object, request)
                                       : view_of_capsule(object, request, array);
  return array;
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
