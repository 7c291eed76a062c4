// The tensors of a timed kernel: on the device, and copies on the host for the reference.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "cuda/runtime/check.h"
#include "fovea/attention.h"
#include "tensor_set.h"

namespace fovea::cuda::any {

// One tensor on the device, with its host copy.
struct Buffer {
  std::vector<char> host;
  MutableTensorView device, on_host;

  Buffer(const Sizes& sizes, DType dtype, unsigned seed) {
    const auto count = static_cast<std::size_t>(sizes[0] * sizes[1] * sizes[2] * sizes[3]);
    host.resize(std::max<std::size_t>(count * static_cast<std::size_t>(size_of(dtype)), 16));
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    const std::size_t drawn = std::min<std::size_t>(count, 1 << 20);
    for (std::size_t i = 0; i < drawn; ++i) {
      const float value = normal(random);
      if (dtype == DType::fp32) {
        std::memcpy(&host[i * 4], &value, 4);
      } else {
        const __nv_bfloat16 rounded = __float2bfloat16(value);
        std::memcpy(&host[i * 2], &rounded, 2);
      }
    }
    const std::size_t bytes = drawn * static_cast<std::size_t>(size_of(dtype));
    for (std::size_t at = bytes; at < host.size(); at += bytes)
      std::memcpy(&host[at], host.data(), std::min(bytes, host.size() - at));
    void* data = nullptr;
    check(cudaMalloc(&data, host.size()), "cudaMalloc");
    check(cudaMemcpy(data, host.data(), host.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
    device = contiguous(data, dtype, sizes, {DeviceKind::cuda, 0});
    on_host = contiguous(host.data(), dtype, sizes, {DeviceKind::cpu, 0});
  }
  ~Buffer() { cudaFree(device.data); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  void clear() { check(cudaMemset(device.data, 0xff, host.size()), "cudaMemset"); }
  std::vector<float> fetch() const {
    std::vector<char> raw(host.size());
    check(cudaMemcpy(raw.data(), device.data, raw.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return widened(raw);
  }
  std::vector<float> host_values() const { return widened(host); }

 private:
  std::vector<float> widened(const std::vector<char>& raw) const {
    const bool wide = device.dtype == DType::fp32;
    std::vector<float> values(raw.size() / (wide ? 4 : 2));
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (wide) {
        std::memcpy(&values[i], &raw[i * 4], 4);
      } else {
        __nv_bfloat16 value;
        std::memcpy(&value, &raw[i * 2], 2);
        values[i] = __bfloat162float(value);
      }
    }
    return values;
  }
};

struct Tensors : TensorSet<Buffer> {
  using TensorSet::TensorSet;
  // The answers of a kernel.
  std::vector<Buffer*> results() {
    if (p.pass == Pass::forward) return {&out, &lse};
    if (p.wants_dq) return {&dq};
    return {&dk, &dv};
  }
  void run_reference() {
    options.implementation = "reference";
    attention_forward({.q = q.on_host, .k = k.on_host, .v = v.on_host, .out = out.on_host, .lse = lse.on_host},
                      options);
    if (p.pass == Pass::forward) return;
    attention_backward({.q = q.on_host,
                        .k = k.on_host,
                        .v = v.on_host,
                        .out = out.on_host,
                        .lse = lse.on_host,
                        .dout = dout.on_host,
                        .dq = dq.on_host,
                        .dk = dk.on_host,
                        .dv = dv.on_host},
                       options);
  }
};

}  // namespace fovea::cuda::any
