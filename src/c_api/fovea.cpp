// The C functions: they convert their arguments, call the C++ functions, and let no exception through.
#include "fovea/fovea.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "c_api/call.h"
#include "c_api/convert.h"
#include "c_api/sized_struct.h"
#include "core/check.h"
#include "core/never_destroyed.h"

namespace {

using namespace fovea;
using c_api::guarded;

// The text of this thread's last error. A plain pointer, because a destructor that runs after the thread's own objects
// are destroyed may still call and fail. Its memory is freed with those objects, if it was allocated before that.
thread_local char* last_error = nullptr;
thread_local bool last_error_lost = false;  // no memory was left for the text

struct LastErrorEnd {
  ~LastErrorEnd() {
    std::free(last_error);
    last_error = nullptr;
  }
};

const std::vector<std::string>& names() {
  static const auto& all = core::never_destroyed<std::vector<std::string>>([] {
    std::vector<std::string> list;
    for (const auto& one : implementations()) list.push_back(one.name);
    return list;
  }());
  return all;
}

std::string_view name_or_empty(const char* name) { return name == nullptr ? std::string_view{} : name; }

}  // namespace

void fovea::c_api::set_last_error(const char* text) noexcept {
  thread_local const LastErrorEnd end;
  (void)end;
  std::free(last_error);
  last_error = strdup(text);
  last_error_lost = last_error == nullptr;
}

extern "C" {

fovea_status fovea_init_dense_tensor(fovea_tensor* tensor, void* data, int32_t dtype, int64_t batch, int64_t heads,
                                     int64_t length, int64_t dim) {
  return guarded([&] {
    constexpr std::string_view call = "fovea_init_dense_tensor";
    c_api::write_struct(c_api::dense_tensor(data, dtype, {batch, heads, length, dim}, call), tensor, "tensor", call);
  });
}

fovea_status fovea_attention_forward(const fovea_forward_tensors* tensors, const fovea_options* options) {
  return guarded([&] {
    const ForwardTensors views = c_api::convert(tensors, "fovea_attention_forward");
    attention_forward(views, c_api::convert(options, "fovea_attention_forward").get());
  });
}

fovea_status fovea_attention_backward(const fovea_backward_tensors* tensors, const fovea_options* options) {
  return guarded([&] {
    const BackwardTensors views = c_api::convert(tensors, "fovea_attention_backward");
    attention_backward(views, c_api::convert(options, "fovea_attention_backward").get());
  });
}

fovea_status fovea_merge_partials(const fovea_tensor* const* partial_outs, const fovea_tensor* const* partial_lses,
                                  size_t count, const fovea_tensor* out, const fovea_tensor* lse) {
  return guarded([&] {
    constexpr std::string_view call = "fovea_merge_partials";
    if (count > 0 && partial_outs == nullptr) c_api::refuse_null("partial_outs", call);
    if (count > 0 && partial_lses == nullptr) c_api::refuse_null("partial_lses", call);
    std::vector<PartialResult> partials;
    for (size_t i = 0; i < count; ++i) {
      partials.push_back({c_api::convert_tensor(partial_outs[i], "partial_outs", call),
                          c_api::convert_tensor(partial_lses[i], "partial_lses", call)});
    }
    merge_partials(partials, c_api::convert_tensor(out, "out", call), c_api::convert_tensor(lse, "lse", call));
  });
}

fovea_status fovea_describe_forward(const fovea_forward_tensors* tensors, const fovea_options* options,
                                    fovea_problem* problem) {
  return guarded([&] {
    constexpr std::string_view call = "fovea_describe_forward";
    const ForwardTensors views = c_api::convert(tensors, call);
    const AttentionProblem asked = describe(views, c_api::convert(options, call).get());
    c_api::write_struct(c_api::convert(asked), problem, "problem", call);
  });
}

fovea_status fovea_describe_backward(const fovea_backward_tensors* tensors, const fovea_options* options,
                                     fovea_problem* problem) {
  return guarded([&] {
    constexpr std::string_view call = "fovea_describe_backward";
    const BackwardTensors views = c_api::convert(tensors, call);
    const AttentionProblem asked = describe(views, c_api::convert(options, call).get());
    c_api::write_struct(c_api::convert(asked), problem, "problem", call);
  });
}

fovea_status fovea_workspace_bytes(const fovea_problem* problem, const char* implementation, int64_t* bytes) {
  return guarded([&] {
    if (bytes == nullptr) c_api::refuse_null("bytes", "fovea_workspace_bytes");
    *bytes = workspace_bytes(c_api::convert(problem, "fovea_workspace_bytes"), name_or_empty(implementation));
  });
}

fovea_status fovea_saved_bytes(const fovea_problem* problem, const char* implementation, int64_t* bytes) {
  return guarded([&] {
    if (bytes == nullptr) c_api::refuse_null("bytes", "fovea_saved_bytes");
    const AttentionProblem asked = c_api::convert(problem, "fovea_saved_bytes");
    workspace_bytes(asked, name_or_empty(implementation));  // throws if no implementation takes it
    *bytes = explain(asked, name_or_empty(implementation)).saved_bytes;
  });
}

fovea_status fovea_explain(const fovea_problem* problem, const char* implementation, char* text, size_t capacity,
                           size_t* needed) {
  return guarded([&] {
    if (text == nullptr && capacity > 0) c_api::refuse_null("text", "fovea_explain");
    c_api::write_text(explain(c_api::convert(problem, "fovea_explain"), name_or_empty(implementation)), text, capacity,
                      needed);
  });
}

size_t fovea_implementation_count(void) {
  size_t count = 0;
  guarded([&] { count = names().size(); });
  return count;
}

const char* fovea_implementation_name(size_t index) {
  const char* name = nullptr;
  guarded([&] { name = index < names().size() ? names()[index].c_str() : nullptr; });
  return name;
}

const char* fovea_last_error(void) {
  if (last_error_lost) return "fovea: out of memory";
  return last_error == nullptr ? "" : last_error;
}

const char* fovea_version(void) { return FOVEA_VERSION_STRING; }

}  // extern "C"
