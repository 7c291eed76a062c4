// The C functions of layers.
#include "fovea/layers.h"

#include <optional>
#include <string>

#include "c_api/call.h"
#include "c_api/convert.h"
#include "c_api/sized_struct.h"

namespace {

using namespace fovea;
using c_api::guarded;

static_assert(FOVEA_MLA == static_cast<int>(LayerKind::mla));

// Options in C++ form, and the thread pool that they point to.
struct CallOptions {
  LayerOptions options;
  ExternalThreadPool thread_pool;

  const LayerOptions& get() {
    if (thread_pool.run != nullptr) options.thread_pool = &thread_pool;
    return options;
  }
};

std::optional<Rotary> rotary_of(const fovea_layer_options& options, std::string_view call) {
  const int pairs = c_api::to_index(options.rotary, FOVEA_ROTARY_HALVES + 1, "rotary", call);
  if (pairs == FOVEA_ROTARY_NONE) return std::nullopt;
  Rotary rotary{.pairs = static_cast<RotaryPairs>(pairs - FOVEA_ROTARY_INTERLEAVED),
                .columns = options.rotary_columns,
                .position_q = options.rotary_position_q,
                .position_k = options.rotary_position_k};
  if (options.rotary_theta != 0) rotary.theta = options.rotary_theta;
  return rotary;
}

CallOptions convert(const fovea_layer_options* given, std::string_view call) {
  CallOptions result;
  const fovea_layer_options options = c_api::read_struct(given, "options", call);
  LayerOptions& to = result.options;
  to.kind = static_cast<LayerKind>(c_api::to_index(options.kind, FOVEA_MLA + 1, "kind", call));
  to.heads_q = options.heads_q, to.heads_kv = options.heads_kv;
  to.mask = c_api::convert_mask(options.mask, options.mask_left, options.mask_right, call);
  if (c_api::to_bool(options.has_scale, "has_scale", call)) to.scale = options.scale;
  if (options.attention != nullptr) to.attention = options.attention;
  if (options.product != nullptr) to.product = options.product;
  to.threads = options.threads;
  if (options.thread_pool != nullptr) result.thread_pool = c_api::convert(*options.thread_pool, call);
  to.cancel = reinterpret_cast<const std::atomic<bool>*>(options.cancel);
  to.stream = options.stream;
  to.workspace = c_api::convert(options.workspace);
  to.reproducible = !c_api::to_bool(options.irreproducible, "irreproducible", call);
  c_api::check_reserved(options.reserved, "reserved", call);
  c_api::check_reserved(options.reserved_2, "reserved_2", call);
  to.rotary = rotary_of(options, call);
  if (options.epsilon != 0) to.epsilon = options.epsilon;
  return result;
}

// Projections, or their gradients: `Views` has a weight and a bias, both optional here.
template <class Views>
PerProjection<Views> convert(const fovea_layer_projections& given, const std::string& prefix, std::string_view call) {
  const auto one = [&](const fovea_projection& projection, const std::string& name) {
    return Views{c_api::optional_tensor(projection.weight, prefix + name + ".weight", call),
                 c_api::optional_tensor(projection.bias, prefix + name + ".bias", call)};
  };
  return {one(given.qkv, "qkv"), one(given.q_down, "q_down"), one(given.q, "q"),    one(given.kv_down, "kv_down"),
          one(given.k, "k"),     one(given.v, "v"),           one(given.out, "out")};
}

template <class View>
PerNorm<View> norms_of(const fovea_layer_norms* given, const std::string& name, std::string_view call) {
  if (given == nullptr) return {};
  const fovea_layer_norms norms = c_api::read_struct(given, name, call);
  const auto one = [&](const fovea_tensor* tensor, const char* which) -> View {
    return c_api::optional_tensor(tensor, name + which, call);
  };
  return {one(norms.q, ".q"), one(norms.k, ".k"), one(norms.q_latent, ".q_latent"), one(norms.kv_latent, ".kv_latent")};
}

LayerCache cache_of(const fovea_layer_cache* given, std::string_view call) {
  if (given == nullptr) return {};
  const fovea_layer_cache cache = c_api::read_struct(given, "cache", call);
  return {.k = c_api::optional_tensor(cache.k, "cache.k", call),
          .v = c_api::optional_tensor(cache.v, "cache.v", call),
          .latent = c_api::optional_tensor(cache.latent, "cache.latent", call),
          .length = cache.length};
}

LayerParameters parameters_of(const fovea_layer_projections* given, std::string_view call) {
  return convert<Projection>(c_api::read_struct(given, "parameters", call), "", call);
}

LayerForwardTensors convert(const fovea_layer_forward_tensors* given, std::string_view call) {
  const fovea_layer_forward_tensors tensors = c_api::read_struct(given, "tensors", call);
  return {.x = c_api::convert_tensor(tensors.x, "x", call),
          .x_kv = c_api::optional_tensor(tensors.x_kv, "x_kv", call),
          .parameters = parameters_of(tensors.parameters, call),
          .y = c_api::convert_tensor(tensors.y, "y", call),
          .saved = c_api::convert(tensors.saved),
          .norms = norms_of<TensorView>(tensors.norms, "norms", call),
          .cache = cache_of(tensors.cache, call)};
}

LayerBackwardTensors convert(const fovea_layer_backward_tensors* given, std::string_view call) {
  const fovea_layer_backward_tensors tensors = c_api::read_struct(given, "tensors", call);
  c_api::check_reserved(tensors.reserved, "reserved", call);
  LayerBackwardTensors result{.x = c_api::convert_tensor(tensors.x, "x", call),
                              .x_kv = c_api::optional_tensor(tensors.x_kv, "x_kv", call),
                              .parameters = parameters_of(tensors.parameters, call),
                              .dy = c_api::convert_tensor(tensors.dy, "dy", call),
                              .dx = c_api::optional_tensor(tensors.dx, "dx", call),
                              .dx_kv = c_api::optional_tensor(tensors.dx_kv, "dx_kv", call),
                              .saved = c_api::convert(tensors.saved),
                              .accumulate = c_api::to_bool(tensors.accumulate, "accumulate", call)};
  result.norms = norms_of<TensorView>(tensors.norms, "norms", call);
  result.norm_gradients = norms_of<MutableTensorView>(tensors.norm_gradients, "norm_gradients", call);
  if (tensors.gradients != nullptr)
    result.gradients =
        convert<ProjectionGradient>(c_api::read_struct(tensors.gradients, "gradients", call), "gradients.", call);
  return result;
}

std::string text_of(const LayerExplanation& told) {
  std::string text;
  for (const LayerExplanation::Part& part : told.parts)
    text += part.name + ": " + (part.explanation.chosen.empty() ? "refused by all" : part.explanation.chosen) + "\n";
  for (const std::string& pass : told.row_passes) text += "rows of " + pass + "\n";
  for (const LayerExplanation::SavedTensor& one : told.saved)
    text += "saves " + one.name + ": " + std::to_string(one.bytes) + " bytes\n";
  text += "workspace: " + std::to_string(told.workspace_bytes) + " bytes\n";
  text += "saved: " + std::to_string(told.saved_bytes) + " bytes\n";
  text += "flops: " + std::to_string(told.flops) + "\n";
  return text + "bytes: " + std::to_string(told.bytes) + "\n";
}

// What the functions that explain write.
struct Told {
  int64_t *workspace, *saved;
  char* text;
  size_t capacity;
  size_t* needed;
};

template <class Tensors>
void explain_call(const Tensors* tensors, const fovea_layer_options* options, const Told& told, std::string_view call) {
  if (told.text == nullptr && told.capacity > 0) c_api::refuse_null("text", call);
  CallOptions given = convert(options, call);
  const LayerProblem problem = describe(convert(tensors, call), given.get());
  const LayerExplanation explanation = explain(problem, given.options.attention, given.options.product);
  if (told.workspace != nullptr) *told.workspace = explanation.workspace_bytes;
  if (told.saved != nullptr) *told.saved = saved_bytes(problem, given.options.attention);
  c_api::write_text(text_of(explanation), told.text, told.capacity, told.needed);
}

}  // namespace

extern "C" {

fovea_status fovea_layer_forward(const fovea_layer_forward_tensors* tensors, const fovea_layer_options* options) {
  return guarded([&] {
    constexpr std::string_view call = "fovea_layer_forward";
    const LayerForwardTensors views = convert(tensors, call);
    layer_forward(views, convert(options, call).get());
  });
}

fovea_status fovea_layer_backward(const fovea_layer_backward_tensors* tensors, const fovea_layer_options* options) {
  return guarded([&] {
    constexpr std::string_view call = "fovea_layer_backward";
    const LayerBackwardTensors views = convert(tensors, call);
    layer_backward(views, convert(options, call).get());
  });
}

fovea_status fovea_explain_layer_forward(const fovea_layer_forward_tensors* tensors, const fovea_layer_options* options,
                                         int64_t* workspace_bytes, int64_t* saved_bytes, char* text, size_t capacity,
                                         size_t* needed) {
  return guarded([&] {
    explain_call(tensors, options, {workspace_bytes, saved_bytes, text, capacity, needed},
                 "fovea_explain_layer_forward");
  });
}

fovea_status fovea_explain_layer_backward(const fovea_layer_backward_tensors* tensors,
                                          const fovea_layer_options* options, int64_t* workspace_bytes,
                                          int64_t* saved_bytes, char* text, size_t capacity, size_t* needed) {
  return guarded([&] {
    explain_call(tensors, options, {workspace_bytes, saved_bytes, text, capacity, needed},
                 "fovea_explain_layer_backward");
  });
}

}  // extern "C"
