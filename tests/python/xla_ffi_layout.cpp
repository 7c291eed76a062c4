// Whether xla_ffi.h says what the headers of a jaxlib say: test_jax.py compiles this file against them.
#include "xla/ffi/api/c_api.h"
#include "xla_ffi.h"

namespace ours = fovea::python::xla;

#define SAME(our_struct, our_field, their_struct, their_field)                                 \
  static_assert(offsetof(ours::our_struct, our_field) == offsetof(their_struct, their_field)); \
  static_assert(sizeof(ours::our_struct::our_field) == sizeof(their_struct::their_field))
#define SAME_VALUE(ours_one, theirs) static_assert(static_cast<int>(ours::ours_one) == static_cast<int>(theirs))

static_assert(XLA_FFI_API_MAJOR == ours::kMajorVersion);

SAME_VALUE(Type::s64, XLA_FFI_DataType_S64);
SAME_VALUE(Type::f16, XLA_FFI_DataType_F16);
SAME_VALUE(Type::f32, XLA_FFI_DataType_F32);
SAME_VALUE(Type::f64, XLA_FFI_DataType_F64);
SAME_VALUE(Type::bf16, XLA_FFI_DataType_BF16);
SAME_VALUE(AttributeKind::scalar, XLA_FFI_AttrType_SCALAR);
SAME_VALUE(AttributeKind::text, XLA_FFI_AttrType_STRING);
SAME_VALUE(ExtensionKind::metadata, XLA_FFI_Extension_Metadata);
SAME_VALUE(Code::cancelled, XLA_FFI_Error_Code_CANCELLED);
SAME_VALUE(Code::invalid_argument, XLA_FFI_Error_Code_INVALID_ARGUMENT);
SAME_VALUE(Code::resource_exhausted, XLA_FFI_Error_Code_RESOURCE_EXHAUSTED);
SAME_VALUE(Code::unimplemented, XLA_FFI_Error_Code_UNIMPLEMENTED);
SAME_VALUE(Code::internal, XLA_FFI_Error_Code_INTERNAL);

SAME(Extension, kind, decltype(XLA_FFI_Metadata_Extension::extension_base), type);
SAME(Version, major_version, XLA_FFI_Api_Version, major_version);
SAME(Version, minor_version, XLA_FFI_Api_Version, minor_version);
SAME(Metadata, version, XLA_FFI_Metadata, api_version);
SAME(MetadataExtension, metadata, XLA_FFI_Metadata_Extension, metadata);

SAME(Buffer, type, XLA_FFI_Buffer, dtype);
SAME(Buffer, data, XLA_FFI_Buffer, data);
SAME(Buffer, rank, XLA_FFI_Buffer, rank);
SAME(Buffer, sizes, XLA_FFI_Buffer, dims);
SAME(Buffers, count, XLA_FFI_Args, size);
SAME(Buffers, items, XLA_FFI_Args, args);
SAME(Buffers, count, XLA_FFI_Rets, size);
SAME(Buffers, items, XLA_FFI_Rets, rets);
SAME(Text, data, XLA_FFI_ByteSpan, ptr);
SAME(Text, length, XLA_FFI_ByteSpan, len);
SAME(Scalar, type, XLA_FFI_Scalar, dtype);
SAME(Scalar, value, XLA_FFI_Scalar, value);
SAME(Attributes, count, XLA_FFI_Attrs, size);
SAME(Attributes, kinds, XLA_FFI_Attrs, types);
SAME(Attributes, names, XLA_FFI_Attrs, names);
SAME(Attributes, values, XLA_FFI_Attrs, attrs);
SAME(Call, extensions, XLA_FFI_CallFrame, extension_start);
SAME(Call, api, XLA_FFI_CallFrame, api);
SAME(Call, context, XLA_FFI_CallFrame, ctx);
SAME(Call, arguments, XLA_FFI_CallFrame, args);
SAME(Call, results, XLA_FFI_CallFrame, rets);
SAME(Call, attributes, XLA_FFI_CallFrame, attrs);

SAME(CreateError, message, XLA_FFI_Error_Create_Args, message);
SAME(CreateError, code, XLA_FFI_Error_Create_Args, errc);
SAME(GetStream, context, XLA_FFI_Stream_Get_Args, ctx);
SAME(GetStream, stream, XLA_FFI_Stream_Get_Args, stream);
SAME(Allocate, context, XLA_FFI_DeviceMemory_Allocate_Args, ctx);
SAME(Allocate, bytes, XLA_FFI_DeviceMemory_Allocate_Args, size);
SAME(Allocate, alignment, XLA_FFI_DeviceMemory_Allocate_Args, alignment);
SAME(Allocate, data, XLA_FFI_DeviceMemory_Allocate_Args, data);
SAME(Free, context, XLA_FFI_DeviceMemory_Free_Args, ctx);
SAME(Free, bytes, XLA_FFI_DeviceMemory_Free_Args, size);
SAME(Free, data, XLA_FFI_DeviceMemory_Free_Args, data);
SAME(GetDevice, context, XLA_FFI_DeviceOrdinal_Get_Args, ctx);
SAME(GetDevice, index, XLA_FFI_DeviceOrdinal_Get_Args, device_ordinal);

SAME(Api, version, XLA_FFI_Api, api_version);
SAME(Api, create_error, XLA_FFI_Api, XLA_FFI_Error_Create);
SAME(Api, stream, XLA_FFI_Api, XLA_FFI_Stream_Get);
SAME(Api, allocate, XLA_FFI_Api, XLA_FFI_DeviceMemory_Allocate);
SAME(Api, free, XLA_FFI_Api, XLA_FFI_DeviceMemory_Free);
SAME(Api, device, XLA_FFI_Api, XLA_FFI_DeviceOrdinal_Get);
