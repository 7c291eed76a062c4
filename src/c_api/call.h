// What every C function does: exceptions become a status and a text, explanations become text.
#pragma once

#include <exception>
#include <new>

#include "fovea/attention.h"
#include "fovea/fovea.h"

namespace fovea::c_api {

// Why this thread's last failed call failed.
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

// As fovea_explain says it.
void write_text(const Explanation& explanation, char* text, size_t capacity, size_t* needed);

}  // namespace fovea::c_api
