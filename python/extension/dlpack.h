// The structures of DLPack that nanobind does not declare: tensors in capsules, and the table of functions by which
// PyTorch exports a tensor without a capsule. https://dmlc.github.io/dlpack/latest/c_api.html
#pragma once

#include <nanobind/ndarray.h>

#include <cstdint>

namespace fovea::python::dlpack {

// DLDeviceType and DLDataTypeCode.
constexpr std::int32_t kCpu = 1, kCuda = 2, kCudaHost = 3, kCudaManaged = 13;
constexpr std::uint8_t kFloat = 2, kBfloat = 4;

constexpr std::uint32_t kMajorVersion = 1;  // with another the structures differ
constexpr std::uint64_t kReadOnly = 1;      // of `flags`

struct Version {
  std::uint32_t major, minor;
};

struct ManagedTensorVersioned {
  Version version;
  void* context;
  void (*deleter)(ManagedTensorVersioned*);
  std::uint64_t flags;
  nanobind::dlpack::dltensor tensor;
};

struct ExchangeApi {
  Version version;
  ExchangeApi* older;
  void *allocate, *managed_from_object, *object_from_managed;
  int (*from_object)(void* object,
                     nanobind::dlpack::dltensor* tensor);  // may be null; the object owns what it points to
  void* current_stream;
};

}  // namespace fovea::python::dlpack
