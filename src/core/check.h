// Builds the text of refusals from the values that were checked.
#pragma once

#include <initializer_list>
#include <new>
#include <string>
#include <string_view>

#include "core/floating_point.h"
#include "fovea/error.h"
#include "fovea/tensor.h"

namespace fovea::core {

std::string to_string(std::int64_t value);
std::string to_string(const Sizes& sizes);  // (2, 8, 512, 64)

// "a, b, c", for lists such as "wanted: one of a, b, c".
std::string join(std::initializer_list<std::string_view> words, std::string_view separator = ", ");

[[noreturn]] void fail(ErrorDetails details);
[[noreturn]] void fail_out_of_memory(std::string_view call);

// Every public call runs in here. It computes in the default floating-point mode, whatever the caller's mode is, and a
// failed allocation becomes an Error.
template <class Call>
auto guarded(std::string_view name, Call call) {
  const DefaultFloatingPoint mode;
  try {
    return call();
  } catch (const std::bad_alloc&) {
    fail_out_of_memory(name);
  }
}

}  // namespace fovea::core
