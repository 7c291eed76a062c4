// The words of the problem line for the enumerations.
#include "core/names.h"

#include <array>
#include <utility>

namespace fovea::core {
namespace {

template <class Enum, std::size_t N>
using Names = std::array<std::pair<Enum, std::string_view>, N>;

constexpr Names<DType, 3> kDTypes{{{DType::fp32, "fp32"}, {DType::bf16, "bf16"}, {DType::fp16, "fp16"}}};
constexpr Names<DeviceKind, 2> kDevices{{{DeviceKind::cpu, "cpu"}, {DeviceKind::cuda, "cuda"}}};

static_assert(is_known(kDTypes.back().first) && is_known(kDevices.back().first));

template <class Enum, std::size_t N>
std::string_view find_name(const Names<Enum, N>& names, Enum value) {
  for (const auto& [key, name] : names) {
    if (key == value) return name;
  }
  return "unknown";
}

template <class Enum, std::size_t N>
std::optional<Enum> find_value(const Names<Enum, N>& names, std::string_view word) {
  for (const auto& [key, name] : names) {
    if (name == word) return key;
  }
  return std::nullopt;
}

}  // namespace

std::string_view name_of(DType type) { return find_name(kDTypes, type); }
std::string_view name_of(DeviceKind kind) { return find_name(kDevices, kind); }
std::optional<DType> dtype_of(std::string_view name) { return find_value(kDTypes, name); }
std::optional<DeviceKind> device_kind_of(std::string_view name) { return find_value(kDevices, name); }

}  // namespace fovea::core
