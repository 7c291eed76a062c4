// C structs to C++ views, with the refusals that only C needs: struct sizes, ranks, enum values, null structs.
#pragma once

#include <string_view>

#include "fovea/attention.h"
#include "fovea/fovea.h"

namespace fovea::c_api {

// Options in C++ form, with the lender that they point to.
struct Options {
  AttentionOptions options;
  ThreadLender lender;

  const AttentionOptions& get();
};

Options convert(const fovea_options* options, std::string_view call);
ForwardTensors convert(const fovea_forward_tensors* tensors, std::string_view call);
BackwardTensors convert(const fovea_backward_tensors* tensors, std::string_view call);
AttentionProblem convert(const fovea_problem* problem, std::string_view call);
void convert_back(const AttentionProblem& problem, fovea_problem* result, std::string_view call);

MutableTensorView convert_tensor(const fovea_tensor* tensor, std::string_view name, std::string_view call);

[[noreturn]] void refuse_null(std::string_view name, std::string_view call);

}  // namespace fovea::c_api
