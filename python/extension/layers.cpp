// Layers take their arrays by name in a dictionary, as 4-dimensional views that Python has made. Names that are missing
// are absent. On CUDA the calls are on the framework's current stream.
#include "layers.h"

#include <cstdint>
#include <deque>
#include <string>

#include "arrays.h"
#include "fovea/layers.h"
#include "framework.h"
#include "interruptible.h"
#include "options.h"

namespace fovea::python {
namespace {

template <class Per, class Visit>
void each_projection(Per& per, const Visit& visit) {
  visit("qkv", per.qkv), visit("q_down", per.q_down), visit("q", per.q), visit("kv_down", per.kv_down);
  visit("k", per.k), visit("v", per.v), visit("out", per.out);
}

template <class Per, class Visit>
void each_norm(Per& per, const Visit& visit) {
  visit("q_norm", per.q), visit("k_norm", per.k);
  visit("q_latent_norm", per.q_latent), visit("kv_latent_norm", per.kv_latent);
}

class Arrays {
 public:
  explicit Arrays(const nb::dict& given) : given_(given) {}

  TensorView input(const std::string& name) { return view(name, &input_array); }
  MutableTensorView output(const std::string& name) { return view(name, &output_array); }
  nb::handle object(const char* name) const { return given_[name]; }

 private:
  MutableTensorView view(const std::string& name, Array (*read)(nb::handle, const char*, Layout)) {
    if (!given_.contains(name.c_str())) return {};
    return held_.emplace_back(read(given_[name.c_str()], name.c_str(), Layout::bhld)).view;
  }

  nb::dict given_;
  std::deque<Array> held_;
};

// Tensors of which only the sizes exist. Their addresses do not overlap, as those of tensors; nobody reads there.
class Shapes {
 public:
  Shapes(const nb::dict& given, DType dtype, Device device) : given_(given), dtype_(dtype), device_(device) {}

  MutableTensorView input(const std::string& name) {
    if (!given_.contains(name.c_str())) return {};
    const auto sizes = nb::cast<nb::tuple>(given_[name.c_str()]);
    Sizes all{};
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = nb::cast<std::int64_t>(sizes[i]);
    const MutableTensorView view = contiguous(reinterpret_cast<void*>(address_), dtype_, all, device_);
    address_ += static_cast<std::uintptr_t>(all[0] * view.strides[0] * size_of(dtype_)) + kAlignment;
    address_ -= address_ % kAlignment;
    return view;
  }
  MutableTensorView output(const std::string& name) { return input(name); }

 private:
  static constexpr std::uintptr_t kAlignment = 64;

  nb::dict given_;
  DType dtype_;
  Device device_;
  std::uintptr_t address_ = kAlignment;
};

std::string text_of(const nb::object& word) { return nb::cast<nb::str>(word).c_str(); }

std::optional<Rotary> rotary_of(const nb::object& words) {
  if (words.is_none()) return {};
  const auto fields = nb::cast<nb::tuple>(words);
  Rotary rotary{.theta = nb::cast<double>(fields[0]), .columns = nb::cast<std::int64_t>(fields[2])};
  if (text_of(fields[1]) == to_string(RotaryPairs::halves)) rotary.pairs = RotaryPairs::halves;
  return rotary;
}

LayerKind kind_of(const std::string& word) {
  for (const LayerKind kind : {LayerKind::mha_fused, LayerKind::mha, LayerKind::gqa, LayerKind::mqa})
    if (word == to_string(kind)) return kind;
  return LayerKind::mla;
}

// What torch_layer_calls.py hands over: (kind, heads, key heads, rotary embedding, epsilon, the words of attention).
struct LayerWords {
  explicit LayerWords(const nb::tuple& words) : attention(nb::cast<nb::tuple>(words[5])) {
    layer.kind = kind_of(text_of(words[0]));
    layer.heads_q = nb::cast<std::int64_t>(words[1]), layer.heads_kv = nb::cast<std::int64_t>(words[2]);
    layer.rotary = rotary_of(words[3]), layer.epsilon = nb::cast<double>(words[4]);
    layer.mask = attention.attention.mask, layer.scale = attention.attention.scale;
    layer.threads = attention.attention.threads;
  }

  Options attention;
  LayerOptions layer;
};

template <class Source>
LayerForwardTensors forward_tensors(Source& arrays) {
  LayerForwardTensors tensors{.x = arrays.input("x"), .x_kv = arrays.input("x_kv"), .y = arrays.output("y")};
  each_projection(tensors.parameters, [&](const std::string& name, Projection& projection) {
    projection = {arrays.input(name + ".weight"), arrays.input(name + ".bias")};
  });
  each_norm(tensors.norms, [&](const std::string& name, TensorView& weight) { weight = arrays.input(name); });
  tensors.cache = {
      .k = arrays.output("cache.k"), .v = arrays.output("cache.v"), .latent = arrays.output("cache.latent")};
  return tensors;
}

LayerBackwardTensors backward_tensors(Arrays& arrays, Arrays& gradients) {
  const LayerForwardTensors forward = forward_tensors(arrays);
  LayerBackwardTensors tensors{.x = forward.x,
                               .x_kv = forward.x_kv,
                               .parameters = forward.parameters,
                               .dy = arrays.input("dy"),
                               .dx = gradients.output("x"),
                               .dx_kv = gradients.output("x_kv"),
                               .norms = forward.norms};
  each_projection(tensors.gradients, [&](const std::string& name, ProjectionGradient& gradient) {
    gradient = {gradients.output(name + ".weight"), gradients.output(name + ".bias")};
  });
  each_norm(tensors.norm_gradients,
            [&](const std::string& name, MutableTensorView& weight) { weight = gradients.output(name); });
  return tensors;
}

template <class Tensors>
void run(const Tensors& tensors, LayerOptions options, Framework framework, nb::handle x,
         void (*work)(const Tensors&, const LayerOptions&)) {
  constexpr double kLongFlops = 2e8;  // some milliseconds
  const LayerProblem problem = describe(tensors, options);
  const bool on_cpu = problem.device.kind == DeviceKind::cpu;
  Plan plan;
  nb::object workspace;
  if (!on_cpu) {
    plan = prepare(problem);
    options.stream = framework.current_stream(x);
    workspace = framework.empty_bytes(x, plan.workspace_bytes(), options.workspace);
    options.plan = &plan;
  }
  run_interruptible(on_cpu && flops(problem) > kLongFlops, [&](const std::atomic<bool>* cancel) {
    options.cancel = cancel;
    work(tensors, options);
  });
}

// Writes y, and returns the memory of what backward needs, or None. A cache holds `cached` tokens.
nb::object forward(const nb::dict& given, nb::handle framework, const nb::tuple& words, bool saves,
                   std::int64_t cached) {
  const LayerWords call(words);
  Arrays arrays(given);
  LayerForwardTensors tensors = forward_tensors(arrays);
  tensors.cache.length = cached;
  nb::object saved = nb::none();
  if (saves) {
    LayerProblem problem = describe(tensors, call.layer);
    problem.saves = true;
    saved = Framework{framework}.empty_bytes(arrays.object("x"), saved_bytes(problem), tensors.saved);
  }
  run<LayerForwardTensors>(tensors, call.layer, {framework}, arrays.object("x"), &layer_forward);
  return saved;
}

// Writes the gradients. `saved` is the address and the bytes of what forward saved.
void backward(const nb::dict& given, const nb::dict& gradients, const nb::tuple& saved, nb::handle framework,
              const nb::tuple& words) {
  const LayerWords call(words);
  Arrays arrays(given), results(gradients);
  LayerBackwardTensors tensors = backward_tensors(arrays, results);
  tensors.saved = {reinterpret_cast<void*>(nb::cast<std::uintptr_t>(saved[0])), nb::cast<std::int64_t>(saved[1])};
  run<LayerBackwardTensors>(tensors, call.layer, {framework}, arrays.object("x"), &layer_backward);
}

// Bytes that forward saves, from the sizes of its tensors.
std::int64_t bytes_to_save(const nb::dict& sizes, const nb::str& type, int cuda_device, const nb::tuple& words) {
  const LayerWords call(words);
  const Device device = cuda_device < 0 ? Device{} : Device{DeviceKind::cuda, cuda_device};
  const std::string dtype = type.c_str();
  Shapes shapes(sizes, dtype == "float32" ? DType::fp32 : dtype == "float16" ? DType::fp16 : DType::bf16, device);
  LayerProblem problem = describe(forward_tensors(shapes), call.layer);
  problem.saves = true;
  return saved_bytes(problem);
}

}  // namespace

void add_layers(nb::module_& module) {
  module.def("layer_forward", &forward);
  module.def("layer_backward", &backward);
  module.def("layer_bytes_to_save", &bytes_to_save);
}

}  // namespace fovea::python
