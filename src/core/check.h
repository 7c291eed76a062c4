// Building refusals: the message comes from the code and the values, never typed by hand beside the condition.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "fovea/error.h"
#include "fovea/tensor.h"

namespace fovea::core {

std::string to_string(std::int64_t value);
std::string to_string(const Sizes& sizes);  // (2, 8, 512, 64)

// a, b, c: for "wanted: one of ..." lists.
std::string join(std::initializer_list<std::string_view> words, std::string_view separator = ", ");

[[noreturn]] void fail(ErrorDetails details);

}  // namespace fovea::core
