// For every C function: turns exceptions into a status and a text, and explanations into text.
#pragma once

#include <exception>
#include <new>
#include <string_view>

#include "fovea/attention.h"
#include "fovea/fovea.h"

namespace fovea::c_api {

// Stores the error text of this thread's last failed call.
void set_last_error(const char* text) noexcept;

template <class Call>
fovea_status guarded(Call call) noexcept {
  try {
    call();
    return FOVEA_OK;
  } catch (const Error& error) {
    set_last_error(error.what());
    return static_cast<fovea_status>(error.status());
  } catch (const std::bad_alloc&) {
    set_last_error("fovea: out of memory");
    return FOVEA_OUT_OF_MEMORY;
  } catch (const std::exception& error) {
    set_last_error(error.what());
  } catch (...) {
    set_last_error("fovea: an exception of unknown type");
  }
  return FOVEA_ERROR;
}

// Writes the text of fovea_explain.
void write_text(const Explanation& explanation, char* text, size_t capacity, size_t* needed);
void write_text(std::string_view whole, char* text, size_t capacity, size_t* needed);

}  // namespace fovea::c_api
