// C structs to C++ views, with the refusals that only C needs: ranks, enum values, null structs.
#pragma once

#include <string>
#include <string_view>

#include "fovea/attention.h"
#include "fovea/fovea.h"
#include "fovea/linear.h"

namespace fovea::c_api {

// Options in C++ form, and the thread pool that they point to.
struct Options {
  AttentionOptions options;
  ExternalThreadPool thread_pool;

  const AttentionOptions& get();
};

// The same for Linear.
struct LinearCallOptions {
  LinearOptions options;
  ExternalThreadPool thread_pool;

  const LinearOptions& get();
};

LinearCallOptions convert(const fovea_linear_options* options, std::string_view call);
LinearForwardTensors convert(const fovea_linear_forward_tensors* tensors, std::string_view call);
LinearBackwardTensors convert(const fovea_linear_backward_tensors* tensors, std::string_view call);

Options convert(const fovea_options* options, std::string_view call);
ForwardTensors convert(const fovea_forward_tensors* tensors, std::string_view call);
BackwardTensors convert(const fovea_backward_tensors* tensors, std::string_view call);
AttentionProblem convert(const fovea_problem* problem, std::string_view call);
fovea_problem convert(const AttentionProblem& problem);

// Range-checks a field with the values 0 to count - 1.
int to_index(std::int32_t value, int count, const std::string& name, std::string_view call);
bool to_bool(std::int32_t value, const std::string& name, std::string_view call);
// A field that will have a meaning only in a later version must be 0.
void check_reserved(std::int32_t value, std::string_view name, std::string_view call);

// The FOVEA_MASK constants index the table of masks.
Mask convert_mask(std::int32_t value, std::int64_t left, std::int64_t right, std::string_view call);
Buffer convert(const fovea_buffer& buffer);
ExternalThreadPool convert(const fovea_external_thread_pool& thread_pool, std::string_view call);

// A null struct is an absent tensor.
MutableTensorView optional_tensor(const fovea_tensor* tensor, std::string_view name, std::string_view call);
MutableTensorView convert_tensor(const fovea_tensor* tensor, std::string_view name, std::string_view call);

// A dense row-major tensor in CPU memory.
fovea_tensor dense_tensor(void* data, std::int32_t dtype, const Sizes& sizes, std::string_view call);

[[noreturn]] void refuse(std::string_view call, std::string_view argument, std::string problem, std::string got,
                         std::string wanted, std::string hint);
[[noreturn]] void refuse_null(std::string_view name, std::string_view call);

}  // namespace fovea::c_api
