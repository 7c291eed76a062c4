// Finds cuBLASLt, looks up its functions, and turns its statuses into errors.
#include "linear/cuda/cublaslt.h"

#include <dlfcn.h>

#include <filesystem>
#include <vector>

#include "core/check.h"
#include "core/environment.h"
#include "cuda/runtime/check.h"

namespace fovea::cuda::cublaslt {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFiles[] = {"libcublasLt.so.13", "libcublasLt.so.12"};  // newest ABI first

// Library folders of CUDA toolkits, then of Python packages that ship cuBLASLt.
std::vector<fs::path> folders() {
  std::vector<fs::path> found;
  std::error_code none;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const auto value = core::environment(variable); !value.empty()) found.push_back(fs::path(value) / "lib64");
  }
  found.emplace_back("/usr/local/cuda/lib64");
  std::vector<fs::path> prefixes;
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const auto value = core::environment(variable); !value.empty()) prefixes.emplace_back(value);
  }
  if (const auto home = core::environment("HOME"); !home.empty()) prefixes.push_back(fs::path(home) / ".local");
  for (const char* prefix : {"/usr/local", "/usr", "/opt/conda"}) prefixes.emplace_back(prefix);
  for (const fs::path& prefix : prefixes) {
    for (const auto& python : fs::directory_iterator(prefix / "lib", none)) {
      if (python.path().filename().string().rfind("python3", 0) != 0) continue;
      for (const char* packages : {"site-packages", "dist-packages"}) {
        for (const char* part : {"cu13", "cublas"}) found.push_back(python.path() / packages / "nvidia" / part / "lib");
      }
    }
  }
  return found;
}

void* open_file(const fs::path& path) { return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL); }

// FOVEA_CUBLAS alone if it is set; else the loader's search path, then folders().
void* open_library() {
  if (const auto path = core::environment("FOVEA_CUBLAS"); !path.empty()) return open_file(path);
  for (const char* file : kFiles) {
    if (void* library = open_file(file)) return library;
  }
  for (const fs::path& folder : folders()) {
    for (const char* file : kFiles) {
      if (void* library = open_file(folder / file)) return library;
    }
  }
  return nullptr;
}

std::string why_none_opened() {
  if (!core::environment("FOVEA_CUBLAS").empty()) return std::string("no cuBLASLt: ") + dlerror();
  return std::string("no cuBLASLt: ") + kFiles[0] +
         " or .12 was found neither by the loader nor in the folders of a CUDA toolkit or a PyTorch; "
         "FOVEA_CUBLAS names one";
}

}  // namespace

Functions load() {
  Functions result;
  void* const library = open_library();
  if (library == nullptr) {
    result.missing = why_none_opened();
    return result;
  }
  const auto find = [&](auto& function, const std::string& name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name.c_str()));
    if (function == nullptr) result.missing = "no cuBLASLt: the one found has no " + name;
  };
  const auto find_descriptor = [&](auto& descriptor, const char* name) {
    descriptor.name = name;
    find(descriptor.create, descriptor.name + "Create");
    find(descriptor.set, descriptor.name + "SetAttribute");
    find(descriptor.destroy, descriptor.name + "Destroy");
  };
  find(result.create, "cublasLtCreate");
  find(result.status_name, "cublasLtGetStatusName");
  find_descriptor(result.product, "cublasLtMatmulDesc");
  find_descriptor(result.layout, "cublasLtMatrixLayout");
  find_descriptor(result.preference, "cublasLtMatmulPreference");
  find(result.find_algorithms, "cublasLtMatmulAlgoGetHeuristic");
  find(result.read_algorithm, "cublasLtMatmulAlgoConfigGetAttribute");
  find(result.multiply, "cublasLtMatmul");
  return result;
}

void fail(const Functions& functions, int status, const std::string& function, const std::string& subject) {
  constexpr int kAllocationFailed = 3;
  std::string got = functions.status_name(status);
  if (!subject.empty()) got += ", " + subject;
  if (status != kAllocationFailed)
    core::fail({.call = function, .problem = "cuBLASLt failed", .got = got, .wanted = "CUBLAS_STATUS_SUCCESS"});
  core::fail({.status = Status::out_of_memory,
              .call = function,
              .problem = "cuBLASLt found no memory",
              .got = got + ", " + free_memory_text() + " on the device",
              .wanted = "enough free memory on the host and on the device"});
}

}  // namespace fovea::cuda::cublaslt
