// Linear's C functions.
#include "fovea/linear.h"

#include "c_api/call.h"
#include "c_api/convert.h"

namespace {

using namespace fovea;
using c_api::guarded;

template <class Tensors>
void explain_call(const Tensors* tensors, const fovea_linear_options* options, int64_t* workspace_bytes, char* text,
                  size_t capacity, size_t* needed, std::string_view call) {
  if (text == nullptr && capacity > 0) c_api::refuse_null("text", call);
  c_api::LinearCallOptions given = c_api::convert(options, call);
  const LinearProblem problem = describe(c_api::convert(tensors, call), given.get());
  const Explanation told = explain(problem, given.options.implementation);
  if (workspace_bytes != nullptr) *workspace_bytes = told.workspace_bytes;
  c_api::write_text(told, text, capacity, needed);
}

}  // namespace

extern "C" {

fovea_status fovea_linear_forward(const fovea_linear_forward_tensors* tensors, const fovea_linear_options* options) {
  return guarded([&] {
    constexpr std::string_view call = "fovea_linear_forward";
    const LinearForwardTensors views = c_api::convert(tensors, call);
    linear_forward(views, c_api::convert(options, call).get());
  });
}

fovea_status fovea_linear_backward(const fovea_linear_backward_tensors* tensors, const fovea_linear_options* options) {
  return guarded([&] {
    constexpr std::string_view call = "fovea_linear_backward";
    const LinearBackwardTensors views = c_api::convert(tensors, call);
    linear_backward(views, c_api::convert(options, call).get());
  });
}

fovea_status fovea_explain_linear_forward(const fovea_linear_forward_tensors* tensors,
                                          const fovea_linear_options* options, int64_t* workspace_bytes, char* text,
                                          size_t capacity, size_t* needed) {
  return guarded(
      [&] { explain_call(tensors, options, workspace_bytes, text, capacity, needed, "fovea_explain_linear_forward"); });
}

fovea_status fovea_explain_linear_backward(const fovea_linear_backward_tensors* tensors,
                                           const fovea_linear_options* options, int64_t* workspace_bytes, char* text,
                                           size_t capacity, size_t* needed) {
  return guarded([&] {
    explain_call(tensors, options, workspace_bytes, text, capacity, needed, "fovea_explain_linear_backward");
  });
}

}  // extern "C"
