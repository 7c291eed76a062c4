// Reads and writes structs of callers that were compiled with an older or a newer fovea.h, guided by struct_size.
#pragma once

#include <cstddef>
#include <string_view>

#include "fovea/fovea.h"

namespace fovea::c_api {

// The smallest accepted size: sizeof(Struct) in the version that introduced the struct (attention's: 0.1.0, Linear's:
// 0.2.0), computed from its last field at that time. It never changes.
template <class Struct>
inline constexpr std::size_t kFirstSize = 0;
template <>
inline constexpr std::size_t kFirstSize<fovea_tensor> = offsetof(fovea_tensor, buffer_bytes) +
                                                        sizeof(fovea_tensor::buffer_bytes);
template <>
inline constexpr std::size_t kFirstSize<fovea_external_thread_pool> = offsetof(fovea_external_thread_pool, run) +
                                                                      sizeof(fovea_external_thread_pool::run);
template <>
inline constexpr std::size_t kFirstSize<fovea_options> = offsetof(fovea_options, workspace) +
                                                         sizeof(fovea_options::workspace);
template <>
inline constexpr std::size_t kFirstSize<fovea_forward_tensors> = offsetof(fovea_forward_tensors, saved) +
                                                                 sizeof(fovea_forward_tensors::saved);
template <>
inline constexpr std::size_t kFirstSize<fovea_backward_tensors> = offsetof(fovea_backward_tensors, reserved) +
                                                                  sizeof(fovea_backward_tensors::reserved);
template <>
inline constexpr std::size_t kFirstSize<fovea_problem> = offsetof(fovea_problem, skip_dv) +
                                                         sizeof(fovea_problem::skip_dv);

template <>
inline constexpr std::size_t kFirstSize<fovea_linear_options> = offsetof(fovea_linear_options, reserved) +
                                                                sizeof(fovea_linear_options::reserved);
template <>
inline constexpr std::size_t kFirstSize<fovea_linear_forward_tensors> = offsetof(fovea_linear_forward_tensors, y) +
                                                                        sizeof(fovea_linear_forward_tensors::y);
template <>
inline constexpr std::size_t kFirstSize<fovea_linear_backward_tensors> =
    offsetof(fovea_linear_backward_tensors, accumulate_dx) + sizeof(fovea_linear_backward_tensors::accumulate_dx);
template <>
inline constexpr std::size_t kFirstSize<fovea_layer_options> = offsetof(fovea_layer_options, reserved) +
                                                               sizeof(fovea_layer_options::reserved);
template <>
inline constexpr std::size_t kFirstSize<fovea_layer_projections> = offsetof(fovea_layer_projections, out) +
                                                                   sizeof(fovea_layer_projections::out);
template <>
inline constexpr std::size_t kFirstSize<fovea_layer_norms> = offsetof(fovea_layer_norms, kv_latent) +
                                                             sizeof(fovea_layer_norms::kv_latent);
template <>
inline constexpr std::size_t kFirstSize<fovea_layer_cache> = offsetof(fovea_layer_cache, length) +
                                                             sizeof(fovea_layer_cache::length);
template <>
inline constexpr std::size_t kFirstSize<fovea_layer_forward_tensors> = offsetof(fovea_layer_forward_tensors, saved) +
                                                                       sizeof(fovea_layer_forward_tensors::saved);
template <>
inline constexpr std::size_t kFirstSize<fovea_layer_backward_tensors> = offsetof(fovea_layer_backward_tensors,
                                                                                 reserved) +
                                                                        sizeof(fovea_layer_backward_tensors::reserved);

struct StructSizes {
  std::size_t first;  // kFirstSize
  std::size_t known;  // in this library
};

// Copies a caller's struct to `known`, which is all zeros. Fields that an older caller lacks stay zero. Fields that
// only a newer caller has must be zero. The first field of every struct is its size.
void read_bytes(const void* given, void* known, StructSizes sizes, std::string_view name, std::string_view call);

// Copies `answer` into a caller's struct, at most struct_size bytes. Refuses if a field that does not fit is not zero.
// Fields that only the caller knows become zero.
void write_bytes(const void* answer, void* given, StructSizes sizes, std::string_view name, std::string_view call);

template <class Struct>
constexpr StructSizes sizes_of() {
  static_assert(kFirstSize<Struct> % alignof(Struct) == 0, "a new field may not lie in an older version's padding");
  return {kFirstSize<Struct>, sizeof(Struct)};
}

template <class Struct>
Struct read_struct(const Struct* given, std::string_view name, std::string_view call) {
  Struct known{};
  read_bytes(given, &known, sizes_of<Struct>(), name, call);
  return known;
}

template <class Struct>
void write_struct(const Struct& answer, Struct* given, std::string_view name, std::string_view call) {
  write_bytes(&answer, given, sizes_of<Struct>(), name, call);
}

}  // namespace fovea::c_api
