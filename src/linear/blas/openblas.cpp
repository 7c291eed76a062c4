// Opens the library by the name that every machine's loader knows, or else the file that the build found.
#include "linear/blas/openblas.h"

#include <dlfcn.h>

#include <string>
#include <type_traits>

#include "core/check.h"

namespace fovea::linear::blas {
namespace {

[[noreturn]] void refuse() {
  const char* const said = dlerror();
  const std::string reason = said == nullptr ? FOVEA_OPENBLAS_FILE : said;
  const bool no_memory = reason.find("annot allocate memory") != std::string::npos ||  // as the loader of glibc says it
                         reason.find("failed to map segment") != std::string::npos;
  core::fail({.status = no_memory ? Status::out_of_memory : Status::unsupported,
              .problem = "OpenBLAS cannot be loaded",
              .got = reason,
              .wanted = "the library of the build, and memory for it"});
}

void* open_library() {
  for (const char* name : {FOVEA_OPENBLAS_NAME, FOVEA_OPENBLAS_FILE}) {
    if (void* const library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) return library;
  }
  refuse();
}

OpenBlas load() {
  OpenBlas result;
  void* const library = open_library();
  const auto find = [library](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr) refuse();
  };
  find(result.sgemm, "cblas_sgemm");
  find(result.set_num_threads, "openblas_set_num_threads");
  result.set_num_threads(1);
  return result;
}

}  // namespace

const OpenBlas& openblas_library() {
  static const OpenBlas library = load();
  return library;
}

}  // namespace fovea::linear::blas
