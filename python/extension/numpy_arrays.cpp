// Arrays are read by NumPy's array interface in C, which takes half the time of a DLPack capsule.
// https://numpy.org/doc/stable/reference/arrays.interface.html#c-struct-access
#include "numpy_arrays.h"

#include <array>
#include <string_view>
#include <type_traits>

#include "dlpack.h"

namespace fovea::python {
namespace {

struct ArrayInterface {
  int two;  // 2, for a check
  int dims;
  char kind;  // of the elements
  int itemsize;
  int flags;
  Py_ssize_t *shape, *strides;  // strides in bytes
  void* data;
};
static_assert(std::is_same_v<Py_ssize_t, std::int64_t>);
constexpr int kNativeByteOrder = 0x200, kWritable = 0x400;

nb::dlpack::dtype dtype_of(const Request& request, nb::handle object, const ArrayInterface& array) {
  const auto bits = static_cast<std::uint8_t>(array.itemsize * 8);
  if (array.kind == 'f' && (array.flags & kNativeByteOrder) != 0) return {dlpack::kFloat, bits, 1};
  if (array.kind == 'V' && array.itemsize == 2 && is_named_bf16(object)) return {dlpack::kBfloat, bits, 1};
  refuse_array(request, object);
}

}  // namespace

bool is_numpy(nb::handle type) {
  // Scalars of NumPy have no __dlpack__, other frameworks' arrays on a GPU no __array_struct__.
  return nb::hasattr(type, "__array_struct__") && nb::hasattr(type, "__dlpack__");
}

bool is_named_bf16(nb::handle array) {
  return nb::hasattr(array, "dtype") && nb::hasattr(array.attr("dtype"), "name") &&
         std::string_view(nb::str(array.attr("dtype").attr("name")).c_str()) == "bfloat16";
}

MutableTensorView view_of_numpy(nb::handle object, const Request& request) {
  static PyObject* const name = PyUnicode_InternFromString("__array_struct__");
  const nb::object capsule = nb::steal(PyObject_GetAttr(object.ptr(), name));
  if (!capsule.is_valid()) nb::raise_python_error();
  const auto* array = static_cast<const ArrayInterface*>(PyCapsule_GetPointer(capsule.ptr(), nullptr));
  if (array == nullptr) nb::raise_python_error();
  if (array->two != 2) refuse_array(request, object);
  check_dims(request, object, static_cast<std::size_t>(array->dims));
  const nb::dlpack::dtype dtype = dtype_of(request, object, *array);  // none without bytes
  std::array<std::int64_t, 4> strides{};
  for (std::size_t i = 0; i < request.dims; ++i) {
    strides[i] = array->strides[i] / array->itemsize;
    if (strides[i] * array->itemsize != array->strides[i]) refuse_array(request, object);
  }
  const MutableTensorView view = view_of(request, object,
                                         {.data = array->data,
                                          .device = {dlpack::kCpu, 0},
                                          .ndim = array->dims,
                                          .dtype = dtype,
                                          .shape = array->shape,
                                          .strides = strides.data(),
                                          .byte_offset = 0});
  if (request.written && (array->flags & kWritable) == 0) refuse_read_only(request);
  return view;
}

}  // namespace fovea::python
