// Linear on the device against the reference on the host: every type, memory order and implementation; the same bits
// again; captured in a graph; refused where a pointer is not the device's.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "cuda/measure/device_memory.h"
#include "cuda/runtime/check.h"
#include "linear/linear_tensors.h"
#include "on_device.h"

namespace fovea::cuda {
namespace {

using linear::Order;
using linear::TestTensor;

int passed = 0, failed = 0;

void judge(const std::string& what, const std::string& fault) {
  (fault.empty() ? passed : failed) += 1;
  if (!fault.empty()) std::printf("LINEAR %s: %s\n", what.c_str(), fault.c_str());
}

// A host tensor and its copy on the device; NaN outside, and inside results.
class Placed {
 public:
  Placed(const Sizes& sizes, DType dtype, Order order, unsigned seed)
      : host(sizes, dtype, order, seed), memory_(host.bytes()) {
    memory_.upload(host.view.data);
    view = host.view;
    view.data = memory_.data();
    view.device = {DeviceKind::cuda, 0};
  }
  void poison() { memory_.poison(); }
  void set_zero() { check(cudaMemset(memory_.data(), 0, static_cast<std::size_t>(memory_.bytes())), "cudaMemset"); }
  MutableTensorView fetch() {
    memory_.download(host.view.data);
    return host.view;
  }
  std::vector<float> values() {
    fetch();
    return host.all();
  }

  TestTensor host;
  MutableTensorView view;

 private:
  DeviceMemory memory_;
};

struct Shape {
  std::int64_t batch, len, heads_in, dim_in, heads_out, dim_out;
  std::string words() const {
    return std::to_string(batch) + "x" + std::to_string(len) + " " + std::to_string(heads_in) + "x" +
           std::to_string(dim_in) + " " + std::to_string(heads_out) + "x" + std::to_string(dim_out);
  }
};

struct Set {
  Placed x, weight, bias, y, dy, dx, dweight, dbias;
  Set(const Shape& s, DType dtype, DType result, Order order)
      : x({s.batch, s.heads_in, s.len, s.dim_in}, dtype, order, 1),
        weight({1, 1, s.heads_out * s.dim_out, s.heads_in * s.dim_in}, dtype, Order::dense, 2),
        bias({1, 1, 1, s.heads_out * s.dim_out}, dtype, Order::dense, 3),
        y({s.batch, s.heads_out, s.len, s.dim_out}, result, order, 0),
        dy({s.batch, s.heads_out, s.len, s.dim_out}, dtype, order, 4),
        dx({s.batch, s.heads_in, s.len, s.dim_in}, result, order, 0),
        dweight({1, 1, s.heads_out * s.dim_out, s.heads_in * s.dim_in}, result, Order::dense, 0),
        dbias({1, 1, 1, s.heads_out * s.dim_out}, result, Order::dense, 0) {}

  LinearForwardTensors forward() const { return {x.view, weight.view, bias.view, y.view}; }
  LinearBackwardTensors backward() const { return {x.view, weight.view, dy.view, dx.view, dweight.view, dbias.view}; }
  LinearForwardTensors host_forward() const { return {x.host.view, weight.host.view, bias.host.view, y.host.view}; }
  LinearBackwardTensors host_backward() const {
    return {x.host.view, weight.host.view, dy.host.view, dx.host.view, dweight.host.view, dbias.host.view};
  }
};

void check_shape(const Shape& shape, DType dtype, DType result, Order order) {
  Set set(shape, dtype, result, order);
  const LinearForwardTensors forward = set.host_forward();
  const LinearBackwardTensors backward = set.host_backward();
  const auto y = verification::expect_linear_forward(forward, 1);
  const auto gradients = verification::expect_linear_backward(backward, {}, 1);
  for (const std::string name : {"cuda.cublaslt", "cuda.own"}) {
    const std::string what = name + " " + shape.words() + " type " + std::to_string(static_cast<int>(dtype)) + " to " +
                             std::to_string(static_cast<int>(result)) + " order " +
                             std::to_string(static_cast<int>(order));
    std::vector<std::vector<float>> first;
    for (int turn = 0; turn < 2; ++turn) {
      for (Placed* one : {&set.y, &set.dx, &set.dweight, &set.dbias}) one->poison();
      linear_forward(set.forward(), {.implementation = name});
      linear_backward(set.backward(), {.implementation = name});
      check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      const std::vector<std::vector<float>> now{set.y.values(), set.dx.values(), set.dweight.values(),
                                                set.dbias.values()};
      if (turn == 0) first = now;
      judge(what + " again", now == first || turn == 0 ? "" : "other bits");
    }
    judge(what, linear::fault_of(y, {{"y", set.y.fetch()}}));
    set.dx.fetch(), set.dweight.fetch(), set.dbias.fetch();
    judge(what, linear::fault_of(gradients, linear::gradients_of(backward)));
    for (Placed* one : {&set.y, &set.dx, &set.dweight, &set.dbias})
      judge(what + " gaps", one->host.gaps_written() == 0 ? "" : "written");
  }
}

void check_accumulation() {
  Set set({2, 30, 2, 16, 2, 24}, DType::bf16, DType::fp32, Order::by_heads);
  LinearBackwardTensors tensors = set.backward();
  linear_backward(tensors);
  const std::vector<float> once = set.dweight.values(), dx = set.dx.values(), dbias = set.dbias.values();
  tensors.accumulate = tensors.accumulate_dx = true;
  linear_backward(tensors);
  const auto doubled = [](const std::vector<float>& a, const std::vector<float>& b) -> std::string {
    for (std::size_t i = 0; i < a.size(); ++i)
      if (!(std::abs(2 * a[i] - b[i]) <= 1e-5f * (1 + std::abs(b[i])))) return "not added at " + std::to_string(i);
    return {};
  };
  judge("accumulated dweight", doubled(once, set.dweight.values()));
  judge("accumulated dx", doubled(dx, set.dx.values()));
  judge("accumulated dbias", doubled(dbias, set.dbias.values()));
}

// With the caller's workspace a call may be captured; the graph gives the same bits.
void check_capture() {
  Set set({2, 64, 4, 32, 4, 32}, DType::bf16, DType::bf16, Order::dense);
  linear_forward(set.forward());
  const std::vector<float> wanted = set.y.values();
  set.y.poison();
  DeviceMemory workspace(workspace_bytes(describe(set.forward())));
  cudaStream_t stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  linear_forward(set.forward(), {.stream = stream, .workspace = {workspace.data(), workspace.bytes()}});
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
  check(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
  check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  judge("captured", set.y.values() == wanted ? "" : "other bits than the call");
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  cudaStreamDestroy(stream);
}

void check_refusal() {
  Set set({1, 8, 1, 8, 1, 8}, DType::fp32, DType::fp32, Order::dense);
  LinearForwardTensors tensors = set.forward();
  tensors.weight.data = set.weight.host.view.data;
  try {
    linear_forward(tensors);
    judge("a host pointer", "not refused");
  } catch (const Error& error) {
    judge("a host pointer", error.details().argument == "weight" ? "" : error.what());
  }
}

}  // namespace

int check_linear() {
  const Shape shapes[] = {{1, 1, 1, 1, 1, 1},   {2, 5, 3, 8, 4, 6},     {1, 300, 1, 70, 1, 130},
                          {3, 1, 2, 33, 1, 17}, {2, 140, 4, 16, 2, 24}, {1, 37, 1, 128, 3, 64},
                          {4, 9, 1, 64, 5, 1},  {2, 600, 2, 32, 1, 64}};
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16})
    for (const Order order : {Order::dense, Order::by_heads, Order::gaps})
      for (const Shape& shape : shapes) check_shape(shape, dtype, dtype, order);
  check_shape({2, 60, 2, 16, 2, 24}, DType::bf16, DType::fp32, Order::by_heads);
  check_accumulation();
  check_capture();
  check_refusal();
  std::printf("linear: %d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace fovea::cuda
