// The interface between XLA and functions that it calls: xla/ffi/api/c_api.h of openxla/xla, as far as it is used here.
// It is written out so that the package is built without jaxlib, and runs with any jaxlib that speaks a version from
// 0.1 to 0.4. The layouts below are the same in all of these, and tests/python/xla_ffi_layout.cpp compares them with
// the headers of a jaxlib. XLA changes layouts only with the major version, else adds fields at the end.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fovea::python::xla {

inline constexpr int kMajorVersion = 0, kOldestMinorVersion = 1, kNewestMinorVersion = 4;

// Values of XLA_FFI_DataType, _AttrType, _Extension_Type and _Error_Code.
enum class Type : std::uint32_t { s64 = 5, f16 = 10, f32 = 11, f64 = 12, bf16 = 16 };
enum class AttributeKind : std::uint32_t { scalar = 3, text = 4 };
enum class ExtensionKind : std::uint32_t { metadata = 1 };
enum class Code : std::uint32_t {
  cancelled = 1,
  invalid_argument = 3,
  resource_exhausted = 8,
  unimplemented = 12,
  internal = 13
};

struct Error;    // made by Api::create_error; who gets one destroys it
struct Context;  // of one call

// Structures begin with their size in bytes.
struct Extension {
  std::size_t size;
  ExtensionKind kind;
  Extension* next;
};

struct Version {
  std::size_t size;
  Extension* extensions;
  int major_version, minor_version;
};

struct Metadata {
  std::size_t size;
  Version version;
  std::uint32_t traits;
};

// In a call that only asks which version the function speaks.
struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

// A dense array, the last dimension in consecutive elements.
struct Buffer {
  std::size_t size;
  Extension* extensions;
  Type type;
  void* data;
  std::int64_t rank;
  std::int64_t* sizes;
};

struct Buffers {
  std::size_t size;
  Extension* extensions;
  std::int64_t count;
  std::uint32_t* kinds;  // 1, a buffer, is the only one
  Buffer** items;
};

struct Text {
  const char* data;
  std::size_t length;
};

struct Scalar {
  Type type;
  const void* value;
};

struct Attributes {
  std::size_t size;
  Extension* extensions;
  std::int64_t count;
  AttributeKind* kinds;
  Text** names;
  void** values;  // Scalar or Text
};

struct Api;

struct Call {
  std::size_t size;
  Extension* extensions;
  const Api* api;
  Context* context;
  std::uint32_t stage;  // running is the only one that is registered
  Buffers arguments, results;
  Attributes attributes;
};

// Arguments of the functions of Api.
struct CreateError {
  std::size_t size;
  Extension* extensions;
  const char* message;
  Code code;
};

struct GetStream {
  std::size_t size;
  Extension* extensions;
  Context* context;
  void* stream;  // written
};

struct Allocate {
  std::size_t size;
  Extension* extensions;
  Context* context;
  std::size_t bytes, alignment;
  void* data;  // written
};

struct Free {
  std::size_t size;
  Extension* extensions;
  Context* context;
  std::size_t bytes;
  void* data;
};

struct GetDevice {
  std::size_t size;
  Extension* extensions;
  Context* context;
  std::int32_t index;  // written
};

// Functions that return an Error* return null on success. Those that nothing here calls are `void*`.
struct Api {
  std::size_t size;
  Extension* extensions;
  Version version;
  const void* internal;
  Error* (*create_error)(CreateError*);
  void *error_message, *destroy_error, *register_handler;
  Error* (*stream)(GetStream*);
  void *register_type, *execution_context, *set_state, *state;
  Error* (*allocate)(Allocate*);
  Error* (*free)(Free*);
  void *schedule, *thread_count, *create_future, *set_available, *set_error, *run_id;
  Error* (*device)(GetDevice*);  // absent from the oldest, as `size` tells
};

}  // namespace fovea::python::xla
