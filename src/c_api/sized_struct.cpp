// Copies structs between this library and callers with an older or newer header.
#include "c_api/sized_struct.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "c_api/convert.h"

namespace fovea::c_api {
namespace {

constexpr std::size_t kMostBytes = 4096;  // no header's struct is larger: struct_size was not set

[[noreturn]] void refuse_size(std::string_view name, std::string_view call, std::string problem, std::size_t got,
                              std::string wanted, std::string hint) {
  refuse(call, name, std::move(problem), std::to_string(got) + " bytes", std::move(wanted), std::move(hint));
}

std::size_t checked_size(const void* given, StructSizes sizes, std::string_view name, std::string_view call) {
  if (given == nullptr) refuse_null(name, call);
  std::size_t size = 0;
  std::memcpy(&size, given, sizeof size);
  if (size < sizes.first || size > kMostBytes) {
    refuse_size(name, call, "no version of the struct has this size", size,
                std::to_string(sizes.first) + " to " + std::to_string(kMostBytes) + " bytes; " +
                    std::to_string(sizes.known) + " bytes in version " FOVEA_VERSION_STRING,
                "set struct_size to sizeof the struct");
  }
  return size;
}

bool all_zero(const void* bytes, std::size_t begin, std::size_t end) {
  const auto* first = static_cast<const unsigned char*>(bytes);
  return begin >= end || std::all_of(first + begin, first + end, [](unsigned char byte) { return byte == 0; });
}

}  // namespace

void read_bytes(const void* given, void* known, StructSizes sizes, std::string_view name, std::string_view call) {
  const std::size_t size = checked_size(given, sizes, name, call);
  if (!all_zero(given, sizes.known, size)) {
    refuse_size(name, call, "a newer version's field is set", size,
                std::to_string(sizes.known) + " bytes in version " FOVEA_VERSION_STRING ", and zeros behind them",
                "this library does not know the field: leave it zero, or link a newer library");
  }
  std::memcpy(known, given, std::min(size, sizes.known));
  std::memcpy(known, &sizes.known, sizeof sizes.known);
}

void write_bytes(const void* answer, void* given, StructSizes sizes, std::string_view name, std::string_view call) {
  const std::size_t size = checked_size(given, sizes, name, call), shared = std::min(size, sizes.known);
  if (!all_zero(answer, shared, sizes.known)) {
    refuse_size(name, call, "the answer has a field that the struct lacks", size,
                std::to_string(sizes.known) + " bytes in version " FOVEA_VERSION_STRING,
                "compile with the header that came with the library");
  }
  auto* bytes = static_cast<unsigned char*>(given);
  std::memcpy(bytes + sizeof size, static_cast<const unsigned char*>(answer) + sizeof size, shared - sizeof size);
  std::memset(bytes + shared, 0, size - shared);
}

}  // namespace fovea::c_api
