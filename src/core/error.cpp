// The text of an error, and how refusals are thrown.
#include "fovea/error.h"

#include <new>

#include "core/check.h"
#include "core/never_destroyed.h"

namespace fovea {
namespace {

std::string text_of(const ErrorDetails& details) {
  std::string text = "fovea: " + std::string(to_string(details.status));
  if (details.call.empty()) {  // what a person typed: no function is to blame
    if (!details.argument.empty()) text += " " + details.argument;
  } else {
    text += " in " + details.call + "()";
    if (!details.argument.empty()) text += ": argument `" + details.argument + "`";
  }
  text += ": " + details.problem;
  const auto add = [&text](std::string_view name, const std::string& value) {
    if (!value.empty()) text.append("\n  ").append(name).append(value);
  };
  add("got:    ", details.got);
  add("wanted: ", details.wanted);
  add("hint:   ", details.hint);
  // An invalid argument may be a tensor or an option, which the problem line does not hold. So it cannot be replayed.
  if (details.status == Status::invalid_argument) {
    add("problem: ", details.line);
  } else {
    add("replay: ", details.line.empty() ? "" : "fovea verify --problem \"" + details.line + "\"");
  }
  return text;
}

// Constructed while the program is loaded, so that it can be thrown when no memory is left.
const Error& no_memory_at_all = core::never_destroyed<Error>(
    ErrorDetails{.status = Status::out_of_memory, .call = "fovea", .problem = "memory ran out"});

}  // namespace

std::string_view to_string(Status status) {
  switch (status) {
    case Status::ok:
      return "ok";
    case Status::invalid_argument:
      return "invalid";
    case Status::unsupported:
      return "unsupported";
    case Status::out_of_memory:
      return "oom";
    case Status::cancelled:
      return "cancelled";
    case Status::error:
      return "error";
  }
  return "error";
}

Error::Error(ErrorDetails details)
    : std::runtime_error(text_of(details)), details_(std::make_shared<const ErrorDetails>(std::move(details))) {}

namespace core {

std::string to_string(std::int64_t value) { return std::to_string(value); }

std::string to_string(const Sizes& sizes) {
  std::string text = "(";
  for (const auto size : sizes) text += std::to_string(size) + ", ";
  text.resize(text.size() - 2);
  return text + ")";
}

std::string join(std::initializer_list<std::string_view> words, std::string_view separator) {
  std::string text;
  for (const auto word : words) {
    if (!text.empty()) text += separator;
    text += word;
  }
  return text;
}

void fail(ErrorDetails details) { throw Error(std::move(details)); }

void fail_out_of_memory(std::string_view call) {
  try {
    fail({.status = Status::out_of_memory,
          .call = std::string(call),
          .problem = "memory ran out",
          .got = "no memory",
          .wanted = "some kilobytes beside the workspace"});
  } catch (const std::bad_alloc&) {
    throw no_memory_at_all;
  }
}

}  // namespace core
}  // namespace fovea
