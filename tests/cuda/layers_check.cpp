// Layers on the device against their formulas on the host: every kind and type; the same bits again and in graphs; with
// weights that do not lie densely; refused where a pointer is not the device's.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cuda/measure/device_memory.h"
#include "cuda/runtime/check.h"
#include "layers/expected_layer.h"
#include "on_device.h"

namespace fovea::cuda {
namespace {

using layers::LayerCall;
using layers::Shape;

int passed = 0, failed = 0;

void judge(const std::string& what, const std::string& fault) {
  (fault.empty() ? passed : failed) += 1;
  if (!fault.empty()) std::printf("LAYERS %s: %s\n", what.c_str(), fault.c_str());
}

// A call on the host, its tensors copied to the device.
class DeviceLayer {
 public:
  explicit DeviceLayer(const Shape& shape) : host(shape), saved_(host.forward.saved.bytes), options(host.options) {
    for (const auto& [name, tensor] : host.tensors()) {
      DeviceMemory& memory = memory_[tensor->view.data] = DeviceMemory(tensor->bytes());
      memory.upload(tensor->view.data);
    }
    forward = host.forward, backward = host.backward;
    for (TensorView* const view : {&forward.x, &forward.x_kv, &backward.x, &backward.x_kv, &backward.dy}) place(*view);
    for (MutableTensorView* const view : {&forward.y, &backward.dx, &backward.dx_kv}) place(*view);
    for (const layers::Slot slot : layers::kAllSlots) {
      for (LayerParameters* const all : {&forward.parameters, &backward.parameters})
        place(layers::at(*all, slot).weight), place(layers::at(*all, slot).bias);
      place(layers::at(backward.gradients, slot).weight), place(layers::at(backward.gradients, slot).bias);
    }
    for (const layers::Norm norm : layers::kAllNorms) {
      place(layers::at(forward.norms, norm)), place(layers::at(backward.norms, norm));
      place(layers::at(backward.norm_gradients, norm));
    }
    forward.saved = backward.saved = {saved_.data(), saved_.bytes()};
  }

  void run() const { layer_forward(forward, options), layer_backward(backward, options); }

  // NaN in all results, on the device.
  void poison() {
    for (const auto& [name, values] : host.results()) memory_.at(host.tensor(name).view.data).poison();
  }
  // Brings the results to the host's tensors.
  const LayerCall& fetch() {
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    for (const auto& [name, values] : host.results()) {
      void* const data = host.tensor(name).view.data;
      memory_.at(data).download(data);
    }
    return host;
  }

  LayerCall host;

 private:
  template <class Pointer>
  void place(BasicTensorView<Pointer>& view) {
    if (!view) return;
    view.data = memory_.at(view.data).data();
    view.device = {DeviceKind::cuda, 0};
  }

  std::map<const void*, DeviceMemory> memory_;
  DeviceMemory saved_;

 public:
  LayerOptions options;
  LayerForwardTensors forward;
  LayerBackwardTensors backward;
};

std::string words_of(const Shape& s) {
  return std::string(to_string(s.kind)) + " width " + std::to_string(s.width) + " type " +
         std::to_string(static_cast<int>(s.dtype)) + " to " + std::to_string(static_cast<int>(s.result)) +
         (s.cross ? " cross" : "") + (s.rotary ? " rotary" : "") + (s.qk_norm ? " qk_norm" : "") +
         (s.latent_norm ? " latent_norm" : "") + (s.dim_shared > 0 ? " shared key" : "") + " order " +
         std::to_string(static_cast<int>(s.order));
}

void check_shape(const Shape& shape) {
  DeviceLayer layer(shape);
  layer.run();
  const auto first = layer.fetch().results();
  judge(words_of(shape), layers::fault_of(layer.host));
  judge(words_of(shape) + " gaps", layer.host.gaps_written() == 0 ? "" : "written");
  layer.poison();
  layer.run();
  judge(words_of(shape) + " again", layer.fetch().results() == first ? "" : "other bits");
}

void launch_captured(const std::function<void(cudaStream_t)>& enqueue) {
  cudaStream_t stream = nullptr;
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  enqueue(stream);
  check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  for (int turn = 0; turn < 2; ++turn) check(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

// With the caller's workspace, and with one that becomes memory of the graph.
void check_capture(const Shape& shape) {
  DeviceLayer layer(shape);
  layer.run();
  const auto wanted = layer.fetch().results();
  DeviceMemory forward(workspace_bytes(describe(layer.forward, layer.options))),
      backward(workspace_bytes(describe(layer.backward, layer.options)));
  for (const bool given : {true, false}) {
    layer.poison();
    launch_captured([&](cudaStream_t stream) {
      layer.options.stream = stream;
      if (given) layer.options.workspace = {forward.data(), forward.bytes()};
      layer_forward(layer.forward, layer.options);
      if (given) layer.options.workspace = {backward.data(), backward.bytes()};
      layer_backward(layer.backward, layer.options);
    });
    layer.options.stream = nullptr, layer.options.workspace = {};
    judge(words_of(shape) + (given ? " captured" : " captured with its own memory"),
          layer.fetch().results() == wanted ? "" : "other bits than the call");
  }
}

template <class View>
View rows_of(View view, std::int64_t first, std::int64_t count) {
  using Byte = std::conditional_t<std::is_same_v<View, TensorView>, const char, char>;
  view.data = static_cast<Byte*>(view.data) + first * view.strides[2] * size_of(view.dtype);
  view.sizes[2] = count;
  return view;
}

// With a cache, whose rows are NaN until they are written, steps equal the whole sequence.
void check_steps(const Shape& shape) {
  DeviceLayer whole(shape), stepped(shape);
  layer_forward(whole.forward, whole.options);
  const std::int64_t capacity = shape.len_q + 3;
  const auto rows = [&](std::int64_t columns) { return Sizes{shape.batch, 1, capacity, columns}; };
  const Sizes sizes[] = {rows(shape.heads_kv * shape.dim_qk), rows(shape.heads_kv * shape.dim_v),
                         rows(std::max<std::int64_t>(shape.latent_kv + shape.dim_shared, 1))};
  std::vector<DeviceMemory> memory;
  std::vector<MutableTensorView> views;
  for (const Sizes& one : sizes) {
    memory.emplace_back(one[0] * one[2] * one[3] * size_of(shape.dtype));
    memory.back().poison();
    views.push_back(contiguous(memory.back().data(), shape.dtype, one, {DeviceKind::cuda, 0}));
  }
  LayerCache cache{.k = views[0], .v = views[1]};
  if (shape.kind == LayerKind::mla) cache = {.latent = views[2]};
  LayerOptions options = stepped.options;
  if (options.mask == Mask::causal) options.mask = Mask::causal_bottom_right;
  for (const std::int64_t count : {std::int64_t{5}, std::int64_t{1}, shape.len_q - 6}) {
    LayerForwardTensors step = stepped.forward;
    step.x = rows_of(step.x, cache.length, count), step.y = rows_of(step.y, cache.length, count);
    step.saved = {}, step.cache = cache;
    layer_forward(step, options);
    cache.length += count;
  }
  const std::vector<float> wanted = whole.fetch().values("y"), got = stepped.fetch().values("y");
  double largest = 0, worst = 0;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    largest = std::max(largest, std::abs(static_cast<double>(wanted[i])));
    const double off = std::abs(static_cast<double>(wanted[i]) - static_cast<double>(got[i]));
    worst = std::isnan(off) ? HUGE_VAL : std::max(worst, off);
  }
  const double tolerance = shape.dtype == DType::fp32 ? 3e-6 : shape.dtype == DType::fp16 ? 2e-3 : 1.6e-2;
  judge(words_of(shape) + " in steps", worst <= tolerance * largest ? "" : "off by " + std::to_string(worst));
}

// Each of these would be reached by the last part only.
void check_refusals() {
  const auto expect_refused = [](const std::string& argument, const std::function<void(DeviceLayer&)>& spoil) {
    DeviceLayer layer({.kind = LayerKind::gqa, .heads_kv = 2, .dtype = DType::bf16, .result = DType::bf16});
    layer_forward(layer.forward, layer.options);
    layer.poison();
    const std::map<std::string, std::vector<float>> before = layer.fetch().results();
    spoil(layer);
    for (const bool forward : {true, false}) {
      std::string fault = "not refused";
      try {
        forward ? layer_forward(layer.forward, layer.options) : layer_backward(layer.backward, layer.options);
      } catch (const Error& error) {
        fault = error.details().argument == argument ? "" : error.what();
      }
      judge("a host pointer for " + argument + (forward ? " forward" : " backward"), fault);
    }
    for (const auto& [name, values] : layer.fetch().results())
      for (const float value : values)
        if (!std::isnan(value)) return judge(argument, "wrote " + name);
  };
  expect_refused("out", [](DeviceLayer& layer) {
    layer.forward.parameters.out = layer.host.forward.parameters.out;
    layer.forward.parameters.out.weight.device = layer.forward.parameters.out.bias.device = {DeviceKind::cuda, 0};
    layer.backward.parameters = layer.forward.parameters;
  });
  expect_refused("saved",
                 [](DeviceLayer& layer) { layer.forward.saved = layer.backward.saved = layer.host.forward.saved; });
}

// More tokens than thread blocks that sum the gradient of a norm; late positions; DeepSeek's head; weights that are not
// packed.
std::vector<Shape> large_shapes() {
  return {{.kind = LayerKind::mha,
           .batch = 1,
           .len_q = 4,
           .len_k = 4,
           .width = 2560,
           .width_kv = 2560,
           .heads_q = 20,
           .heads_kv = 20,
           .dim_qk = 128,
           .dim_v = 128},
          {.kind = LayerKind::mha_fused,
           .len_q = 600,
           .len_k = 600,
           .heads_q = 2,
           .heads_kv = 2,
           .dim_qk = 8,
           .dim_v = 8,
           .mask = Mask::causal,
           .rotary = Rotary{.position_q = 1 << 20, .position_k = 1 << 20},
           .qk_norm = true},
          {.kind = LayerKind::mha_fused,
           .batch = 9,
           .len_q = 300,
           .len_k = 300,
           .width = 240,
           .width_kv = 240,
           .heads_q = 6,
           .heads_kv = 6,
           .dim_qk = 40,
           .dim_v = 40,
           .mask = Mask::causal,
           .rotary = Rotary{}},
          {.kind = LayerKind::gqa,
           .len_q = 200,
           .len_k = 200,
           .width = 256,
           .width_kv = 256,
           .heads_kv = 2,
           .dim_qk = 128,
           .dim_v = 128,
           .mask = Mask::causal,
           .rotary = Rotary{.theta = 500000, .pairs = RotaryPairs::halves}},
          {.kind = LayerKind::mla,
           .batch = 1,
           .len_q = 130,
           .len_k = 130,
           .width = 256,
           .width_kv = 256,
           .dim_qk = 192,
           .dim_v = 128,
           .latent_q = 96,
           .latent_kv = 64,
           .mask = Mask::causal,
           .dim_shared = 64,
           .rotary = Rotary{},
           .latent_norm = true}};
}

}  // namespace

int check_layers() {
  std::vector<Shape> all = layers::shapes();
  for (const Shape& shape : large_shapes()) all.push_back(shape);
  all.push_back({.kind = LayerKind::mha,
                 .len_q = 200,
                 .len_k = 200,
                 .width = 256,
                 .width_kv = 256,
                 .heads_kv = 4,
                 .dim_qk = 64,
                 .dim_v = 64,
                 .mask = Mask::causal});
  all.push_back({.kind = LayerKind::mla,
                 .batch = 1,
                 .len_q = 130,
                 .len_k = 130,
                 .width = 512,
                 .width_kv = 512,
                 .dim_qk = 128,
                 .dim_v = 128,
                 .latent_q = 64,
                 .latent_kv = 64});
  for (Shape shape : all) {
    for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
      shape.dtype = shape.result = dtype;
      for (const auto order : {layers::Order::dense, layers::Order::gaps}) {
        shape.order = order;
        check_shape(shape);
      }
      check_capture(shape);
      if (!shape.cross && shape.len_q > 6 && shape.mask == Mask::causal) check_steps(shape);
      shape.result = DType::fp32;
      check_shape(shape);
    }
  }
  check_refusals();
  std::printf("layers: %d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace fovea::cuda
