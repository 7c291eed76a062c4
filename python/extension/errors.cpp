// The exception is made in Python, where its classes are.
#include "errors.h"

#include <nanobind/nanobind.h>

#include <exception>
#include <string_view>

#include "fovea/error.h"

namespace fovea::python {
namespace {

namespace nb = nanobind;

nb::object exception_of(const Error& error) {
  const ErrorDetails& details = error.details();
  nb::dict words;
  words["call"] = details.call.c_str();
  words["argument"] = details.argument.c_str();
  words["problem"] = details.problem.c_str();
  words["got"] = details.got.c_str();
  words["wanted"] = details.wanted.c_str();
  words["hint"] = details.hint.c_str();
  words["line"] = details.line.c_str();
  const std::string_view word = to_string(error.status());
  const nb::str status(word.data(), word.size());
  return nb::module_::import_("fovea.errors").attr("exception_of")(error.what(), status, words);
}

}  // namespace

void translate_errors() {
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const Error& error) {
      const nb::object exception = exception_of(error);
      PyErr_SetObject(exception.type().ptr(), exception.ptr());
    }
  });
}

}  // namespace fovea::python
