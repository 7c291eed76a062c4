// Device buffers of random numbers, repeated and very large calls, hashes of the answers.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

#include "cuda/measure/device_memory.h"
#include "cuda/runtime/check.h"
#include "fovea/attention.h"
#include "fovea/error.h"
#include "on_device.h"
#include "tensor_set.h"
#include "verification/attention/case.h"

namespace fovea::cuda {
namespace {

// Roughly normal numbers, a different stream for every tensor.
template <class Element>
__global__ void fill_normal(Element* data, std::int64_t count, std::uint32_t seed) {
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x) {
    std::uint32_t x = static_cast<std::uint32_t>(i) * 0x9E3779B9u + seed;
    float sum = 0.0f;
    for (int n = 0; n < 4; ++n) {
      x ^= x >> 16, x *= 0x7feb352du, x ^= x >> 15, x *= 0x846ca68bu, x ^= x >> 16;
      sum += static_cast<float>(x & 0xffffu) + static_cast<float>(x >> 16);
    }
    data[i] = Element((sum - 4.0f * 65535.0f) * 1.8688e-5f);
  }
}

// Hash of a buffer that does not depend on the order of the threads.
__global__ void hash_words(const std::uint32_t* words, std::int64_t count, unsigned long long* hash) {
  unsigned long long sum = 0;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x)
    sum += (words[i] + 1ull) * (2ull * static_cast<unsigned long long>(i) + 0x9E3779B97F4A7C15ull);
  for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
  if (threadIdx.x % 32 == 0) atomicAdd(hash, sum);
}

// Keeps a stream busy, so that the thread blocks of the kernel under test start at other times on every launch.
__global__ void disturb(float* data, int rounds) {
  float x = data[threadIdx.x];
  for (int i = 0; i < rounds; ++i) x = fmaf(x, 0.999f, 0.001f);
  data[threadIdx.x] = x;
}

struct DeviceBuffer {
  MutableTensorView device;
  std::int64_t bytes = 0;
  DeviceBuffer(const Sizes& sizes, DType dtype, std::uint32_t seed) {
    const std::int64_t count = sizes[0] * sizes[1] * sizes[2] * sizes[3];
    bytes = std::max<std::int64_t>(count * size_of(dtype), 4);
    void* data = nullptr;
    check(cudaMalloc(&data, static_cast<std::size_t>(bytes)), "cudaMalloc");
    device = contiguous(data, dtype, sizes, {DeviceKind::cuda, 0});
    if (dtype == DType::fp32) fill_normal<<<1024, 256>>>(static_cast<float*>(data), count, seed);
    if (dtype == DType::bf16) fill_normal<<<1024, 256>>>(static_cast<__nv_bfloat16*>(data), count, seed);
    if (dtype == DType::fp16) fill_normal<<<1024, 256>>>(static_cast<__half*>(data), count, seed);
  }
  ~DeviceBuffer() { cudaFree(device.data); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
};

struct DeviceCase : TensorSet<DeviceBuffer> {
  verification::CasePass pass;
  explicit DeviceCase(const verification::AttentionCase& c) : TensorSet(c.problem), pass(c.pass) {
    options.implementation = "cuda.any";
  }
  void run_forward(cudaStream_t stream) {
    options.stream = stream;
    attention_forward(forward(), options);
  }
  void run_backward(cudaStream_t stream) {
    options.stream = stream;
    attention_backward(backward(), options);
  }
  void run(cudaStream_t stream) { pass == verification::CasePass::fwd ? run_forward(stream) : run_backward(stream); }
};

void add_hash(const DeviceBuffer& buffer, unsigned long long* hash, cudaStream_t stream) {
  hash_words<<<64, 256, 0, stream>>>(static_cast<const std::uint32_t*>(buffer.device.data), buffer.bytes / 4, hash);
}

}  // namespace

int repeat_bitwise(int count) {
  constexpr int kResults = 3;
  cudaStream_t noise = nullptr, stream = nullptr;
  check(cudaStreamCreateWithFlags(&noise, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  float* noisy = nullptr;
  check(cudaMalloc(&noisy, 4096), "cudaMalloc");
  std::vector<unsigned long long> hashes(static_cast<std::size_t>(count) * kResults);
  unsigned long long* on_device = nullptr;
  check(cudaMalloc(&on_device, hashes.size() * sizeof(hashes[0])), "cudaMalloc");
  int failed = 0, passed = 0;
  // Lengths for tiles of few rows, for whole tiles, and for split tiles.
  for (const verification::AttentionCase& c :
       verification::attention_sweep("op=attention pass=fwd,bwd b=1 hq=2 hkv=1 lq=200,777,1500 "
                                     "d=24,40,128,256 dtype=bf16,fp16,fp32 mask=causal")) {
    DeviceCase one(c);
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");  // its numbers are made on the default stream
    one.run_forward(stream);
    check(cudaMemsetAsync(on_device, 0, hashes.size() * sizeof(hashes[0]), stream), "cudaMemsetAsync");
    const std::vector<const DeviceBuffer*> results = c.pass == verification::CasePass::fwd
                                                         ? std::vector<const DeviceBuffer*>{&one.out, &one.lse}
                                                         : std::vector<const DeviceBuffer*>{&one.dq, &one.dk, &one.dv};
    for (int i = 0; i < count; ++i) {
      disturb<<<1 + i % 131, 256, 0, noise>>>(noisy, 200 + i * 37 % 5000);
      one.run(stream);
      for (std::size_t n = 0; n < results.size(); ++n)
        add_hash(*results[n], on_device + static_cast<std::size_t>(i) * kResults + n, stream);
    }
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    check(cudaMemcpy(hashes.data(), on_device, hashes.size() * sizeof(hashes[0]), cudaMemcpyDeviceToHost),
          "cudaMemcpy");
    int differing = 0;
    for (std::size_t i = 0; i < hashes.size(); ++i) differing += hashes[i] != hashes[i % kResults];
    if (differing > 0) std::printf("DIFFERS %d times: %s\n", differing, verification::line_of(c).c_str());
    ++(differing > 0 ? failed : passed);
  }
  cudaFree(on_device), cudaFree(noisy), cudaStreamDestroy(noise), cudaStreamDestroy(stream);
  std::printf("repeat, %d launches each: %d passed, %d failed\n", count, passed, failed);
  return failed == 0 ? 0 : 1;
}

namespace {

// The last `count` of a dimension; those before it have one element each.
template <class View>
View tail_of(View view, std::int64_t count, std::size_t dimension = 2) {
  const std::int64_t skipped = view.sizes[dimension] - count;
  view.sizes[dimension] = count;
  view.data = static_cast<char*>(const_cast<void*>(static_cast<const void*>(view.data))) +
              skipped * view.strides[dimension] * size_of(view.dtype);
  return view;
}

std::vector<float> values_of(const TensorView& view) {
  const auto count = static_cast<std::size_t>(view.sizes[0] * view.sizes[1] * view.sizes[2] * view.sizes[3]);
  std::vector<float> values(count);
  if (view.dtype == DType::fp32) {
    check(cudaMemcpy(values.data(), view.data, count * 4, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return values;
  }
  std::vector<__nv_bfloat16> stored(count);
  check(cudaMemcpy(stored.data(), view.data, count * 2, cudaMemcpyDeviceToHost), "cudaMemcpy");
  for (std::size_t i = 0; i < count; ++i) values[i] = __bfloat162float(stored[i]);
  return values;
}

// Two roundings to bf16 of sums in another order are far closer than this; a wrong row is far off.
bool same_values(const char* name, const TensorView& got, const TensorView& wanted) {
  const std::vector<float> a = values_of(got), b = values_of(wanted);
  float worst = 0, largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float difference = std::abs(a[i] - b[i]);
    worst = std::isnan(difference) ? HUGE_VALF : std::max(worst, difference);
    largest = std::max(largest, std::abs(b[i]));
  }
  const bool ok = worst <= 0.01f * largest && largest > 0;
  std::printf("the last of %s: difference %g of %g%s\n", name, static_cast<double>(worst), static_cast<double>(largest),
              ok ? "" : ", WRONG");
  return ok;
}

constexpr std::int64_t kLong = (std::int64_t{1} << 25) + 1007, kTail = 1024;  // rows; times 64 is beyond 2^31
constexpr std::int64_t kBatches = (std::int64_t{1} << 15) + 9;                // times 8 heads, 128 rows and 64 as well

verification::AttentionCase long_case(std::int64_t len_q, std::int64_t len_k) {
  verification::AttentionCase c =
      verification::attention_case("op=attention pass=bwd b=1 hq=1 hkv=1 lq=128 lk=128 d=64 dtype=bf16 mask=none");
  c.problem.len_q = len_q;
  c.problem.len_k = len_k;
  return c;
}

// Query rows do not depend on each other: the last ones alone must come out the same.
int wrong_with_long_queries() {
  DeviceCase whole(long_case(kLong, 128)), tail(long_case(kTail, 128));
  whole.run_forward(nullptr), whole.run_backward(nullptr);
  AttentionOptions options = whole.options;
  attention_forward({.q = tail_of(whole.q.device, kTail),
                     .k = whole.k.device,
                     .v = whole.v.device,
                     .out = tail.out.device,
                     .lse = tail.lse.device},
                    options);
  attention_backward({.q = tail_of(whole.q.device, kTail),
                      .k = whole.k.device,
                      .v = whole.v.device,
                      .out = tail.out.device,
                      .lse = tail.lse.device,
                      .dout = tail_of(whole.dout.device, kTail),
                      .dq = tail.dq.device},
                     options);
  return !same_values("out", tail_of(whole.out.device, kTail), tail.out.device) +
         !same_values("lse", tail_of(whole.lse.device, kTail), tail.lse.device) +
         !same_values("dq", tail_of(whole.dq.device, kTail), tail.dq.device);
}

// Nor do gradients of keys, once lse and out are given.
int wrong_with_long_keys() {
  DeviceCase whole(long_case(128, kLong)), tail(long_case(128, kTail));
  whole.run_forward(nullptr), whole.run_backward(nullptr);
  attention_backward({.q = whole.q.device,
                      .k = tail_of(whole.k.device, kTail),
                      .v = tail_of(whole.v.device, kTail),
                      .out = whole.out.device,
                      .lse = whole.lse.device,
                      .dout = whole.dout.device,
                      .dk = tail.dk.device,
                      .dv = tail.dv.device},
                     whole.options);
  return !same_values("dk", tail_of(whole.dk.device, kTail), tail.dk.device) +
         !same_values("dv", tail_of(whole.dv.device, kTail), tail.dv.device);
}

// Nor do batches: here a row's offset within its head is small, and that of the batch is beyond 2^31.
int wrong_with_many_batches() {
  verification::AttentionCase c =
      verification::attention_case("op=attention pass=bwd b=2 hq=8 hkv=1 lq=128 lk=128 d=64 dtype=bf16 mask=causal");
  DeviceCase tail(c);
  c.problem.batch = kBatches;
  DeviceCase whole(c);
  whole.run_forward(nullptr), whole.run_backward(nullptr);
  const auto last = [](const DeviceBuffer& buffer) { return tail_of(buffer.device, 2, 0); };
  attention_forward(
      {.q = last(whole.q), .k = last(whole.k), .v = last(whole.v), .out = tail.out.device, .lse = tail.lse.device},
      whole.options);
  attention_backward({.q = last(whole.q),
                      .k = last(whole.k),
                      .v = last(whole.v),
                      .out = last(whole.out),
                      .lse = last(whole.lse),
                      .dout = last(whole.dout),
                      .dq = tail.dq.device,
                      .dk = tail.dk.device,
                      .dv = tail.dv.device},
                     whole.options);
  return !same_values("out of many batches", last(whole.out), tail.out.device) +
         !same_values("lse of many batches", last(whole.lse), tail.lse.device) +
         !same_values("dq of many batches", last(whole.dq), tail.dq.device) +
         !same_values("dk of many batches", last(whole.dk), tail.dk.device) +
         !same_values("dv of many batches", last(whole.dv), tail.dv.device);
}

}  // namespace

// Four of the longest tensors are there at once, and beside them no more than a fifth.
int check_large() {
  constexpr std::int64_t kRoom = 5 * kLong * 64 * size_of(DType::bf16);
  if (const std::int64_t free = free_device_bytes(); free < kRoom) {
    std::printf("large: not run, %lld bytes are wanted and %lld free: 0 passed, 0 failed\n",
                static_cast<long long>(kRoom), static_cast<long long>(free));
    return 0;
  }
  const int failed = wrong_with_long_queries() + wrong_with_long_keys() + wrong_with_many_batches();
  std::printf("large, from %lld elements a tensor on: %d passed, %d failed\n", static_cast<long long>(kLong * 64),
              10 - failed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace fovea::cuda
