// Frameworks export arrays by DLPack. NumPy's come through nanobind, those of others in capsules that are looked at
// first, and tensors of PyTorch as torch_tensors.cpp reads them.
#include "arrays.h"

#include <string_view>
#include <utility>
#include <vector>

#include "array_checks.h"
#include "dlpack.h"
#include "torch_tensors.h"

namespace fovea::python {
namespace {

using Held = nb::ndarray<nb::ro>;

[[noreturn]] void refuse_read_only(const Request& request) {
  refuse_value(request, "the array is read-only; wanted one that can be written");
}

// NumPy has no bf16 of its own: the type is that of the package ml_dtypes, which DLPack does not export.
bool is_numpy_bf16(nb::handle object) {
  return nb::hasattr(object, "dtype") && nb::hasattr(object, "view") && nb::hasattr(object.attr("dtype"), "name") &&
         std::string_view(nb::str(object.attr("dtype").attr("name")).c_str()) == "bfloat16";
}

// Invalid if the object exports nothing of the kind.
template <class Exported>
Held imported(nb::handle object) {
  Exported array;
  if (nb::try_cast(object, array, false)) return Held(array.handle());
  PyErr_Clear();
  return {};
}

Held from_numpy(nb::handle object, const Request& request) {
  if (!request.written) return imported<Held>(object);
  Held held = imported<nb::ndarray<>>(object);
  if (!held.is_valid() && imported<Held>(object).is_valid()) refuse_read_only(request);
  return held;
}

// On CUDA without a wait: the call runs on the current stream of the framework.
nb::object capsule_of(nb::handle object) {
  constexpr int kCuda = 2, kCudaManaged = 13;
  nb::dict words;
  if (nb::hasattr(object, "__dlpack_device__")) {
    const int device = nb::cast<int>(nb::object(object.attr("__dlpack_device__")()[0]));
    if (device == kCuda || device == kCudaManaged) words["stream"] = -1;
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
  return imported<Held>(capsule);
}

enum class Exporter : std::uint8_t { numpy, torch, other };

Exporter exporter_of(nb::handle type) {
  if (is_torch(type)) return Exporter::torch;
  // Scalars of NumPy have no __dlpack__, other frameworks' arrays on a GPU no __array_interface__.
  const bool numpy = nb::hasattr(type, "__array_interface__") && nb::hasattr(type, "__dlpack__");
  return numpy ? Exporter::numpy : Exporter::other;
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

Array array_of(nb::handle object, const Request& request) {
  Array array{.object = nb::borrow(object), .held = {}, .view = {}};
  const Exporter by = exporter(object);
  if (by == Exporter::torch) {
    array.view = view_of_torch(object, request);
    return array;
  }
  const auto held_of = by == Exporter::numpy ? &from_numpy : &from_capsule;
  array.held = held_of(object, request);
  const bool bf16 = !array.held.is_valid() && is_numpy_bf16(object);
  if (bf16) array.held = held_of(object.attr("view")("uint16"), request);
  if (!array.held.is_valid()) refuse_array(request, object);
  const Held& held = array.held;
  nb::dlpack::dltensor tensor{.data = held.data_handle(),
                              .device = {held.device_type(), held.device_id()},
                              .ndim = static_cast<std::int32_t>(held.ndim()),
                              .dtype = held.dtype(),
                              .shape = const_cast<std::int64_t*>(held.shape_ptr()),
                              .strides = const_cast<std::int64_t*>(held.stride_ptr()),
                              .byte_offset = held.byte_offset()};
  if (bf16) tensor.dtype.code = static_cast<std::uint8_t>(nb::dlpack::dtype_code::Bfloat);
  array.view = view_of(request, object, tensor);
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
