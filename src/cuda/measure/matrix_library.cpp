// Where cuBLAS may lie, its few functions declared by hand, and a handle per device.
#include "cuda/measure/matrix_library.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <mutex>
#include <vector>

#include "core/check.h"
#include "cuda/runtime/check.h"

namespace fovea::cuda {
namespace {

namespace fs = std::filesystem;

constexpr const char* kVersions[] = {"13", "12"};  // of the library's binary interface

// Folders of a toolkit, then those in which Python packages carry cuBLAS.
std::vector<fs::path> folders() {
  std::vector<fs::path> found;
  std::error_code none;
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* value = std::getenv(variable)) found.push_back(fs::path(value) / "lib64");
  }
  found.emplace_back("/usr/local/cuda/lib64");
  std::vector<fs::path> prefixes;
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    if (const char* value = std::getenv(variable)) prefixes.emplace_back(value);
  }
  if (const char* home = std::getenv("HOME")) prefixes.push_back(fs::path(home) / ".local");
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

// The loader's own choice first. A library in a folder that the loader does not know needs its companion before it.
void* open_library() {
  if (const char* path = std::getenv("FOVEA_CUBLAS")) return dlopen(path, RTLD_NOW | RTLD_LOCAL);
  for (const char* version : kVersions) {
    const std::string name = std::string("libcublas.so.") + version;
    if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  }
  for (const fs::path& folder : folders()) {
    for (const char* version : kVersions) {
      const fs::path path = folder / (std::string("libcublas.so.") + version);
      std::error_code none;
      if (!fs::exists(path, none)) continue;
      dlopen((folder / (std::string("libcublasLt.so.") + version)).c_str(), RTLD_NOW | RTLD_LOCAL);
      if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    }
  }
  return nullptr;
}

struct Functions {
  int (*create)(void** handle);
  int (*set_stream)(void* handle, void* stream);
  int (*set_workspace)(void* handle, void* data, std::size_t bytes);
  int (*set_math_mode)(void* handle, int mode);
  const char* (*status_name)(int status);
  int (*multiply)(void* handle, int a_order, int b_order, std::int64_t m, std::int64_t n, std::int64_t k,
                  const void* alpha, const void* a, int a_type, std::int64_t a_stride, long long a_apart, const void* b,
                  int b_type, std::int64_t b_stride, long long b_apart, const void* beta, void* c, int c_type,
                  std::int64_t c_stride, long long c_apart, std::int64_t count, int sums, int algorithm);
};

class MatrixLibrary {
 public:
  MatrixLibrary() {
    void* const library = open_library();
    if (library == nullptr) {
      missing_ = std::string(
          "no cuBLAS: libcublas.so.13 or .12 was found neither by the loader nor in the folders of a "
          "CUDA toolkit or a PyTorch; FOVEA_CUBLAS names one");
      if (std::getenv("FOVEA_CUBLAS") != nullptr) missing_ = std::string("no cuBLAS: ") + dlerror();
      return;
    }
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      if (function == nullptr) missing_ = std::string("no cuBLAS: the one found has no ") + name;
    };
    find(functions_.create, "cublasCreate_v2");
    find(functions_.set_stream, "cublasSetStream_v2");
    find(functions_.set_workspace, "cublasSetWorkspace_v2");
    find(functions_.set_math_mode, "cublasSetMathMode");
    find(functions_.status_name, "cublasGetStatusName");
    find(functions_.multiply, "cublasGemmStridedBatchedEx_64");
  }

  const std::string& missing() const { return missing_; }

  void multiply(const BatchedProduct& p, void* stream, const Buffer& workspace) {
    constexpr int kAsItLies = 0, kTransposed = 1, kFp32Sums = 68, kItsChoice = -1;
    constexpr int kTypes[] = {0, 14, 2};  // CUDA_R_32F, CUDA_R_16BF, CUDA_R_16F
    const auto type = [&](DType dtype) { return kTypes[static_cast<std::size_t>(dtype)]; };
    const auto order = [&](const MatrixBatch& one) { return one.transposed ? kTransposed : kAsItLies; };
    const std::lock_guard lock(mutex_);  // the handle holds stream and workspace from here to the product
    void* const handle = handle_of_device();
    check(functions_.set_stream(handle, stream), "cublasSetStream");
    if (workspace.data != nullptr)
      check(functions_.set_workspace(handle, workspace.data, static_cast<std::size_t>(workspace.bytes)),
            "cublasSetWorkspace");
    // The library's matrices are column-major: c^T = b^T a^T.
    check(functions_.multiply(handle, order(p.b), order(p.a), p.n, p.m, p.k, &p.alpha, p.b.data, type(p.b.dtype),
                              p.b.row_stride, p.b.apart, p.a.data, type(p.a.dtype), p.a.row_stride, p.a.apart, &p.beta,
                              const_cast<void*>(p.c.data), type(p.c.dtype), p.c.row_stride, p.c.apart, p.count,
                              kFp32Sums, kItsChoice),
          "cublasGemmStridedBatchedEx");
  }

 private:
  void check(int status, const char* function) const {
    if (status == 0) return;
    constexpr int kAllocationFailed = 3;
    std::size_t free = 0, total = 0;
    if (cudaMemGetInfo(&free, &total) != cudaSuccess) cudaGetLastError();
    const bool out_of_memory = status == kAllocationFailed;
    core::fail({.status = out_of_memory ? Status::out_of_memory : Status::error,
                .call = function,
                .problem = out_of_memory ? "cuBLAS found no memory on the device" : "cuBLAS failed",
                .got = functions_.status_name(status) +
                       (out_of_memory ? ", " + std::to_string(free) + " bytes free" : std::string()),
                .wanted = out_of_memory ? "some 32 MiB for a handle" : "CUBLAS_STATUS_SUCCESS"});
  }

  void* handle_of_device() {
    constexpr int kFp32SumsThroughout = 16;  // no 16-bit sums of parts either
    int device = 0;
    cuda::check(cudaGetDevice(&device), "cudaGetDevice");
    void*& handle = handles_[device];
    if (handle != nullptr) return handle;
    void* made = nullptr;
    check(functions_.create(&made), "cublasCreate");
    check(functions_.set_math_mode(made, kFp32SumsThroughout), "cublasSetMathMode");
    return handle = made;
  }

  std::string missing_;
  Functions functions_{};
  std::mutex mutex_;
  std::map<int, void*> handles_;
};

// Never destroyed: the driver may be gone by then.
MatrixLibrary& library() {
  static auto& one = *new MatrixLibrary;
  return one;
}

}  // namespace

const std::string& missing_matrix_library() { return library().missing(); }

void multiply(const BatchedProduct& product, void* stream, const Buffer& workspace) {
  if (!missing_matrix_library().empty())
    core::fail({.status = Status::unsupported, .problem = missing_matrix_library()});
  library().multiply(product, stream, workspace);
}

}  // namespace fovea::cuda
