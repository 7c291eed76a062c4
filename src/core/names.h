// The words of the problem line for enumerations, one table each. Words of masks: attention/mask.h.
#pragma once

#include <optional>
#include <string_view>

#include "fovea/problem.h"

namespace fovea::core {

std::string_view name_of(DType type);       // fp32 bf16 fp16
std::string_view name_of(DeviceKind kind);  // cpu cuda

// Whether the value is an enumerator. Callers may pass any number, so every call checks.
constexpr bool is_known(DType type) { return type <= DType::fp16; }
constexpr bool is_known(DeviceKind kind) { return kind <= DeviceKind::cuda; }

std::optional<DType> dtype_of(std::string_view name);
std::optional<DeviceKind> device_kind_of(std::string_view name);

}  // namespace fovea::core
