// Tensors of a linear layer on a device, random inputs and results full of NaN, with their copies on the host.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <string>
#include <vector>

#include "cuda/measure/device_memory.h"
#include "cuda/runtime/check.h"
#include "linear/linear_tensors.h"
#include "threads_at_once.h"

namespace fovea::cuda {

using linear::Order;
using linear::TestTensor;

// A host tensor and its copy on the current device; NaN outside, and inside results.
class Placed {
 public:
  Placed(const Sizes& sizes, DType dtype, Order order, unsigned seed)
      : host(sizes, dtype, order, seed), memory_(host.bytes()) {
    memory_.upload(host.view.data);
    view = host.view;
    view.data = memory_.data();
    view.device = {DeviceKind::cuda, current_device()};
  }
  void poison() { memory_.poison(); }
  void set_zero() { check(cudaMemset(memory_.data(), 0, static_cast<std::size_t>(memory_.bytes())), "cudaMemset"); }
  MutableTensorView fetch() {
    memory_.download(host.view.data);
    return host.view;
  }
  std::vector<std::byte> bytes() const {
    std::vector<std::byte> all(static_cast<std::size_t>(memory_.bytes()));
    memory_.download(all.data());
    return all;
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
  Set(const Shape& s, DType dtype, DType result, Order order, unsigned seed = 0)
      : x({s.batch, s.heads_in, s.len, s.dim_in}, dtype, order, seed + 1),
        weight({1, 1, s.heads_out * s.dim_out, s.heads_in * s.dim_in}, dtype, Order::dense, seed + 2),
        bias({1, 1, 1, s.heads_out * s.dim_out}, dtype, Order::dense, seed + 3),
        y({s.batch, s.heads_out, s.len, s.dim_out}, result, order, 0),
        dy({s.batch, s.heads_out, s.len, s.dim_out}, dtype, order, seed + 4),
        dx({s.batch, s.heads_in, s.len, s.dim_in}, result, order, 0),
        dweight({1, 1, s.heads_out * s.dim_out, s.heads_in * s.dim_in}, result, Order::dense, 0),
        dbias({1, 1, 1, s.heads_out * s.dim_out}, result, Order::dense, 0) {}

  void poison() {
    for (Placed* one : {&y, &dx, &dweight, &dbias}) one->poison();
  }
  std::vector<std::byte> results() const {
    std::vector<std::byte> all;
    for (const Placed* one : {&y, &dx, &dweight, &dbias}) {
      const std::vector<std::byte> part = one->bytes();
      all.insert(all.end(), part.begin(), part.end());
    }
    return all;
  }

  LinearForwardTensors forward() const { return {x.view, weight.view, bias.view, y.view}; }
  LinearBackwardTensors backward() const { return {x.view, weight.view, dy.view, dx.view, dweight.view, dbias.view}; }
  LinearForwardTensors host_forward() const { return {x.host.view, weight.host.view, bias.host.view, y.host.view}; }
  LinearBackwardTensors host_backward() const {
    return {x.host.view, weight.host.view, dy.host.view, dx.host.view, dweight.host.view, dbias.host.view};
  }
};

}  // namespace fovea::cuda
