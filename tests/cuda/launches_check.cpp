// What `fovea bench` times: a call's launches alone, as --timing host repeats them, give the call's answer; a run
// whose time may hold the host's is told.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <string>
#include <vector>

#include "cuda/measure/call_timer.h"
#include "cuda/measure/captured_graph.h"
#include "cuda/measure/device_memory.h"
#include "cuda/measure/stream_marks.h"
#include "cuda/measure/stream_timer.h"
#include "cuda/runtime/check.h"
#include "device_call.h"
#include "fovea/error.h"
#include "on_device.h"
#include "verification/attention/case.h"

namespace fovea::cuda {
namespace {

// Empty, or what is wrong.
std::string wrong_launches(const verification::AttentionCase& c) {
  DeviceCall t(c);
  const CallTimer timer(false);
  const DeviceMemory workspace(std::max<std::int64_t>(workspace_bytes(c.problem, "cuda.any"), 1));
  t.options.workspace = {workspace.data(), workspace.bytes()};
  t.options.stream = timer.stream();
  auto* const stream = static_cast<cudaStream_t>(timer.stream());
  const bool is_forward = c.problem.pass == Pass::forward;
  if (!is_forward) {
    AttentionOptions options = t.options;
    options.workspace = {};
    attention_forward(t.forward, options);
  }
  const auto call = [&] {
    is_forward ? attention_forward(t.forward, t.options) : attention_backward(t.backward, t.options);
  };
  call();
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  const std::vector<std::byte> wanted = t.bytes();
  t.poison(c.problem.pass);
  const LaunchList launches(CapturedGraph(stream, call, 1));
  launches.enqueue(stream);
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  std::printf("launches: %zu of %s\n", launches.size(), verification::line_of(c).c_str());
  return t.bytes() == wanted ? "" : "another answer than the call's";
}

// Runs that wait for the device are all marked host_bound: the device started each before the host had enqueued all of
// it. A run of one small kernel is not marked, because it is enqueued long before the writes ahead of it end. The host
// may be interrupted, so one unmarked sample of 20 is enough.
std::string wrong_samples(Timing timing) {
  StreamTimer timer(timing);
  auto* const stream = static_cast<cudaStream_t>(timer.stream());
  const DeviceMemory memory(4096);
  const auto kernel = [&] { check(cudaMemsetAsync(memory.data(), 0, 4096, stream), "cudaMemsetAsync"); };
  const auto waiting = [&] {
    kernel();
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  };
  const StreamTimer::Samples samples = timer.sample(kernel, 20, 1), told = timer.sample(waiting, 5, 1);
  if (samples.seconds.size() != 20 || samples.host_bound.size() != 20) return "not 20 samples";
  if (samples.host_bound == std::vector<bool>(20, true)) return "one kernel is said to hold the host's time";
  return told.host_bound == std::vector<bool>(5, true) ? "" : "a run that waits for the device is not told";
}

// A longer part takes longer, and marks begin anew.
std::string wrong_marks() {
  StreamMarks marks;
  const DeviceMemory memory(std::int64_t{64} << 20);
  for (int round = 0; round < 2; ++round) {
    marks.mark();
    for (const int writes : {1, 20}) {
      for (int i = 0; i < writes; ++i)
        check(cudaMemsetAsync(memory.data(), 0, static_cast<std::size_t>(memory.bytes()), nullptr), "cudaMemsetAsync");
      marks.mark();
    }
    const std::vector<double> at = marks.take();
    if (at.size() != 3 || at[0] != 0 || at[1] <= 0) return "marks are not counted from the first";
    if (at[2] - at[1] < 5 * at[1]) return "twenty writes do not take longer than one";
  }
  return marks.take().empty() ? "" : "marks are left";
}

}  // namespace

int check_launches() {
  int passed = 0, failed = 0;
  const std::string wrong = wrong_marks();
  if (!wrong.empty()) std::printf("MARKS: %s\n", wrong.c_str());
  ++(wrong.empty() ? passed : failed);
  for (const Timing timing : {Timing::cold, Timing::hot}) {
    const std::string wrong = wrong_samples(timing);
    if (!wrong.empty()) std::printf("SAMPLES: %s\n", wrong.c_str());
    ++(wrong.empty() ? passed : failed);
  }
  for (const char* line : {"pass=fwd lq=128 d=64 dtype=bf16 mask=causal", "pass=fwd lq=512 d=64 dtype=bf16 mask=causal",
                           "pass=fwd lq=4k d=128 dtype=fp16 mask=none", "pass=fwd lq=2k d=64 dtype=fp32 mask=causal",
                           "pass=bwd lq=512 d=64 dtype=bf16 mask=causal", "pass=bwd lq=2k d=128 dtype=fp32 mask=none",
                           "pass=bwd b=2 hq=4 hkv=2 lq=1k d=64 dtype=bf16 mask=causal"}) {
    verification::AttentionCase c = verification::attention_case(line);
    c.problem.device = {DeviceKind::cuda, 0};
    c.problem.pass = c.pass == verification::CasePass::fwd ? Pass::forward : Pass::backward;
    std::string wrong;
    try {
      wrong = wrong_launches(c);
    } catch (const Error& error) {
      wrong = error.what();
    }
    if (!wrong.empty()) std::printf("LAUNCHES %s: %s\n", line, wrong.c_str());
    ++(wrong.empty() ? passed : failed);
  }
  std::printf("launches: %d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace fovea::cuda
