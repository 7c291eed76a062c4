// Linear on the device against the reference on the host: every type, memory order and implementation; the same bits
// again, also from several threads and devices at once; captured in a graph; refused where a pointer is not the
// device's.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "cuda/measure/device_memory.h"
#include "cuda/runtime/check.h"
#include "linear_set.h"
#include "on_device.h"
#include "threads_at_once.h"

namespace fovea::cuda {
namespace {

int passed = 0, failed = 0;

void judge(const std::string& what, const std::string& fault) {
  (fault.empty() ? passed : failed) += 1;
  if (!fault.empty()) std::printf("LINEAR %s: %s\n", what.c_str(), fault.c_str());
}

void check_shape(const Shape& shape, DType dtype, DType result, Order order) {
  Set set(shape, dtype, result, order);
  const LinearForwardTensors forward = set.host_forward();
  const LinearBackwardTensors backward = set.host_backward();
  const auto y = verification::expect_linear_forward(forward, 1, DeviceKind::cuda);
  const auto gradients = verification::expect_linear_backward(backward, {}, 1, DeviceKind::cuda);
  for (const std::string name : {"cuda.cublaslt", "cuda.own"}) {
    const std::string what = name + " " + shape.words() + " type " + std::to_string(static_cast<int>(dtype)) + " to " +
                             std::to_string(static_cast<int>(result)) + " order " +
                             std::to_string(static_cast<int>(order));
    std::vector<std::vector<float>> first;
    for (int turn = 0; turn < 2; ++turn) {
      set.poison();
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

// Threads share the plans of products, and biases of their own: each on its stream of each device in turns.
void check_threads() {
  constexpr int kThreads = 8, kShapes = 10, kRounds = 10;
  std::vector<std::string> wrong(kThreads);
  const auto said = at_once(kThreads, [&](int thread) {
    std::vector<std::unique_ptr<Set>> sets;
    std::vector<std::vector<std::byte>> wanted;
    const DeviceStreams streams;
    const auto run = [&](int number, const char* name) {
      const CurrentDevice current(number % used_devices());
      const LinearOptions options{.implementation = name, .stream = streams.get(number % used_devices())};
      linear_forward(sets[static_cast<std::size_t>(number)]->forward(), options);
      linear_backward(sets[static_cast<std::size_t>(number)]->backward(), options);
    };
    for (int number = 0; number < kShapes; ++number) {
      const CurrentDevice current(number % used_devices());
      const DType dtype = number % 3 == 0 ? DType::fp32 : DType::bf16;
      sets.push_back(std::make_unique<Set>(Shape{1 + number % 2, 40 + number, 2, 32, 2, 24}, dtype, dtype,
                                           number % 4 < 2 ? Order::dense : Order::by_heads,
                                           static_cast<unsigned>(10 * thread)));
      sets.back()->poison();  // gaps between rows count, too
      check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      run(number, "cuda.cublaslt");
      // Copies do not wait for these streams, nor these streams for what overwrites results.
      check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      wanted.push_back(sets.back()->results());
      sets.back()->poison();
      check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    }
    for (int round = 0; round < kRounds; ++round)
      for (int number = 0; number < kShapes; ++number) run(number, "cuda.cublaslt");
    for (int number = 0; number < kShapes; ++number) {
      const CurrentDevice current(number % used_devices());
      check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      if (sets[static_cast<std::size_t>(number)]->results() != wanted[static_cast<std::size_t>(number)])
        wrong[static_cast<std::size_t>(thread)] = "other bits, shape " + std::to_string(number);
    }
  });
  for (std::size_t thread = 0; thread < said.size(); ++thread)
    judge("threads at once", said[thread].empty() ? wrong[thread] : said[thread]);
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
  // Gradients of weights, whose split-K sums lost a term.
  for (const std::int64_t rows : {65, 127}) {
    check_shape({rows, rows, 1, 64, 1, 16}, DType::bf16, DType::fp32, Order::dense);
    check_shape({rows, rows, 1, 8, 1, 8}, DType::bf16, DType::bf16, Order::dense);
  }
  check_accumulation();
  check_capture();
  check_threads();
  check_refusal();
  std::printf("linear: %d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace fovea::cuda
