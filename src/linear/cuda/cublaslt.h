// cuBLASLt's functions, loaded at run time, without its headers and without linking it. Values and sizes are those of
// cublasLt.h, cublas_api.h and library_types.h of CUDA 12 and 13.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>

namespace fovea::cuda::cublaslt {

constexpr int kFp32 = 0, kFp16 = 2, kBf16 = 14;  // CUDA_R_*
constexpr int kComputeFp32 = 68;                 // CUBLAS_COMPUTE_32F: fp32 sums, no TF32
constexpr int kNotSupported = 15;                // CUBLAS_STATUS_NOT_SUPPORTED

// CUBLASLT_REDUCTION_SCHEME_*: where split-K partial sums are added, in the result and its type or in the compute type;
// none: no split-K.
constexpr std::uint32_t kNoReduction = 0, kInPlace = 1, kInComputeType = 2;

// Number of an attribute whose value has type Value; cuBLASLt refuses a value of another size.
template <class Value>
struct Attribute {
  int number;
};

// CUBLASLT_MATMUL_DESC_TRANSA, TRANSB
constexpr Attribute<std::int32_t> kTransposeA{3}, kTransposeB{4};
// CUBLASLT_MATMUL_DESC_EPILOGUE, BIAS_POINTER, BIAS_BATCH_STRIDE
constexpr Attribute<std::uint32_t> kEpilogue{7};
constexpr Attribute<const void*> kBiasPointer{8};
constexpr Attribute<std::int64_t> kBiasBatchStride{10};
constexpr std::uint32_t kAddBias = 4;  // CUBLASLT_EPILOGUE_BIAS
// CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, STRIDED_BATCH_OFFSET
constexpr Attribute<std::int32_t> kBatchCount{5};
constexpr Attribute<std::int64_t> kBatchStride{6};
// CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, REDUCTION_SCHEME_MASK, MIN_ALIGNMENT_{A,B,C,D}_BYTES
constexpr Attribute<std::uint64_t> kMaxWorkspaceBytes{1};
constexpr Attribute<std::uint32_t> kReductionSchemes{3};
constexpr Attribute<std::uint32_t> kMinAlignmentA{5}, kMinAlignmentB{6}, kMinAlignmentC{7}, kMinAlignmentD{8};

// CUBLASLT_ALGO_CONFIG_SPLITK_NUM
constexpr Attribute<std::uint32_t> kSplits{2};

// cublasLtMatmulAlgo_t
struct Algorithm {
  std::uint64_t data[8];
};

// cublasLtMatmulHeuristicResult_t
struct HeuristicResult {
  Algorithm algorithm;
  std::size_t workspace_bytes;
  int status;
  float waves;
  int reserved[4];
};

struct DescriptorFunctions {
  std::string name;  // prefix of its functions' names
  int (*set)(void* descriptor, int attribute, const void* value, std::size_t bytes) = nullptr;
  int (*destroy)(void* descriptor) = nullptr;
};

template <class... Arguments>
struct DescriptorMadeOf : DescriptorFunctions {
  int (*create)(void** descriptor, Arguments...) = nullptr;
};

struct Functions {
  std::string missing;  // why cuBLASLt could not be loaded; else empty
  int (*create)(void** handle) = nullptr;
  const char* (*status_name)(int status) = nullptr;
  DescriptorMadeOf<int, int> product;  // compute type; type of alpha and beta
  // Element type, rows, columns, leading dimension.
  DescriptorMadeOf<int, std::uint64_t, std::uint64_t, std::int64_t> layout;
  DescriptorMadeOf<> preference;
  int (*find_algorithms)(void* handle, void* product, void* a_layout, void* b_layout, void* c_layout, void* d_layout,
                         void* preference, int wanted, HeuristicResult* results, int* found) = nullptr;
  int (*read_algorithm)(const Algorithm* algorithm, int attribute, void* value, std::size_t bytes,
                        std::size_t* written) = nullptr;
  int (*multiply)(void* handle, void* product, const void* alpha, const void* a, void* a_layout, const void* b,
                  void* b_layout, const void* beta, const void* c, void* c_layout, void* d, void* d_layout,
                  const Algorithm* algorithm, void* workspace, std::size_t workspace_bytes, void* stream) = nullptr;
};

// Searches the loader's path, CUDA toolkits and Python environments.
Functions load();

// Throws the Error of a status that is not success. `subject` describes the product in words.
[[noreturn]] void fail(const Functions& functions, int status, const std::string& function,
                       const std::string& subject = {});

class Descriptor {
 public:
  // `functions` must outlive the descriptor.
  template <class... Arguments>
  Descriptor(const Functions& functions, const DescriptorMadeOf<Arguments...>& own,
             std::type_identity_t<Arguments>... arguments)
      : functions_(&functions), own_(&own), descriptor_(nullptr, own.destroy) {
    void* made = nullptr;
    if (const int status = own.create(&made, arguments...)) fail(functions, status, own.name + "Create");
    descriptor_.reset(made);
  }

  template <class Value>
  void set(Attribute<Value> attribute, std::type_identity_t<Value> value) {
    if (const int status = own_->set(get(), attribute.number, &value, sizeof(value)))
      fail(*functions_, status, own_->name + "SetAttribute");
  }

  void* get() const { return descriptor_.get(); }

 private:
  const Functions* functions_;
  const DescriptorFunctions* own_;
  std::unique_ptr<void, int (*)(void*)> descriptor_;
};

}  // namespace fovea::cuda::cublaslt
