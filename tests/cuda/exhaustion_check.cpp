// Calls on a device that has no memory left.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "cuda/runtime/check.h"
#include "cuda/runtime/launch.h"
#include "device_call.h"
#include "fovea/attention.h"
#include "fovea/error.h"
#include "on_device.h"
#include "refusal_verdicts.h"

namespace fovea::cuda {
namespace {

using namespace refusals;

// All of the device's memory but so much; other programs may take some meanwhile.
DeviceMemory all_but(std::int64_t bytes) {
  for (int left = 10;; --left) {
    try {
      return DeviceMemory(free_device_bytes() - bytes);
    } catch (const Error&) {
      if (left == 0) throw;
    }
  }
}

void device_memory_full() {
  DeviceCall call(case_of("pass=bwd b=4 hq=64 hkv=64 lq=32768 d=1 dtype=bf16 mask=causal"));
  const std::int64_t wanted = workspace_bytes(describe(call.backward, call.options), "cuda.any");
  {
    const DeviceMemory hog = all_but(wanted / 2);
    expect_refused("device memory full", call, {core::binary_size(wanted), " free of "},
                   [&call] { attention_backward(call.backward, call.options); });
  }
  std::string wrong;
  try {
    attention_forward(call.forward, call.options);
    attention_backward(call.backward, call.options);
  } catch (const Error& error) {
    wrong = error.what();
  }
  judge("device memory free again", wrong);
}

// All that the device still gives.
std::vector<DeviceMemory> everything_left() {
  std::vector<DeviceMemory> all;
  for (std::int64_t bytes = std::int64_t{1} << 34; bytes >= 1 << 12;) {
    try {
      all.emplace_back(bytes);
    } catch (const Error&) {
      bytes /= 2;
    }
  }
  return all;
}

// Empty, or what is wrong with how a call without memory was refused.
std::string wrong_refusal(const Error& error) {
  const std::string said = error.what();
  return error.status() == Status::out_of_memory && said.find(" free of ") != std::string::npos ? "" : said;
}

// Kernels are loaded at their first use, which takes memory of the driver's: a type's first calls, with not a byte
// left, are refused before anything is written, or give what they give with memory. After a refusal the driver may
// never load the kernel again, and the call says so.
void first_calls_without_memory() {
  for (const char* line : {"pass=bwd b=1 hq=1 hkv=1 lq=64 lk=16384 d=32 dtype=fp16 mask=none",
                           "pass=bwd b=1 hq=1 hkv=1 lq=16 lk=65536 d=256 dtype=fp32 mask=none"}) {
    DeviceCall call(case_of(line));
    const DeviceMemory workspace(std::int64_t{1} << 30);  // enough; to ask how much would load the kernels
    call.options.workspace = {workspace.data(), workspace.bytes()};
    std::vector<DeviceMemory> taken = everything_left();
    for (const bool is_forward : {true, false}) {
      const auto made = [&] {
        is_forward ? attention_forward(call.forward, call.options) : attention_backward(call.backward, call.options);
        return call.bytes();
      };
      const auto before = call.bytes();
      std::vector<std::byte> got;  // empty: refused
      std::string wrong;
      try {
        got = made();
      } catch (const Error& error) {
        wrong = wrong_refusal(error);
        if (call.bytes() != before) wrong += "; wrote before it refused";
      }
      taken.clear();
      call.poison(is_forward ? Pass::forward : Pass::backward);
      const std::string title = std::string("first ") + (is_forward ? "forward" : "backward");
      try {
        if (const auto wanted = made(); !got.empty() && got != wanted) wrong = "other bits than with memory";
      } catch (const Error& error) {
        if (!got.empty() || error.details().problem != kNotLaunched) throw;
        std::printf("%s, %s: the driver does not load the refused kernel again\n", title.c_str(), line);
      }
      judge(title + " with not a byte left, " + line, wrong);
      if (is_forward) taken = everything_left();  // for backward, which wants forward's results
    }
  }
}

// With not a byte left, calls that want workspace are refused, or right from what the pool still had. Kernels are
// loaded by a call with a workspace of its own, which goes first.
void not_a_byte_left() {
  for (const char* line : {"pass=bwd b=1 hq=1 hkv=1 lq=16 lk=65536 d=128 dtype=bf16 mask=none",
                           "pass=bwd b=1 hq=16 hkv=16 lq=4096 d=64 dtype=fp32 mask=causal"}) {
    DeviceCall call(case_of(line));
    const std::int64_t wanted = std::max(workspace_bytes(describe(call.forward, call.options), "cuda.any"),
                                         workspace_bytes(describe(call.backward, call.options), "cuda.any"));
    {
      const DeviceMemory workspace(wanted);
      call.options.workspace = {workspace.data(), wanted};
      attention_forward(call.forward, call.options);
      attention_backward(call.backward, call.options);
      call.options.workspace = {};
    }
    const auto answer = call.bytes();
    const std::vector<DeviceMemory> taken = everything_left();
    for (const bool is_forward : {true, false}) {
      std::string wrong;
      try {
        is_forward ? attention_forward(call.forward, call.options) : attention_backward(call.backward, call.options);
      } catch (const Error& error) {
        wrong = wrong_refusal(error);
      }
      if (wrong.empty() && call.bytes() != answer) wrong = "other bits than with memory";
      judge(std::string(is_forward ? "forward" : "backward") + " with not a byte left, " + line, wrong);
    }
  }
}

}  // namespace

int check_exhaustion() {
  passed = failed = 0;
  int integrated = 0;
  check(cudaDeviceGetAttribute(&integrated, cudaDevAttrIntegrated, 0), "cudaDeviceGetAttribute");
  if (integrated != 0) {  // its memory is the host's, which a full device would starve
    std::printf("exhaustion: not run, the device has no memory of its own: 0 passed, 0 failed\n");
    return 0;
  }
  first_calls_without_memory();
  not_a_byte_left();
  device_memory_full();
  std::printf("exhaustion: %d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace fovea::cuda
