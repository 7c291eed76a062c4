// Every forward tile of cuda.sm90 against the reference: heads packed or not, with splits and without, on so few thread
// blocks that each works on many tiles; also where the plans of this GPU never choose them.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <string>
#include <vector>

#include "cuda/attention/sm90/instances.h"
#include "cuda/attention/sm90/run.h"
#include "cuda/measure/device_memory.h"
#include "cuda/runtime/check.h"
#include "cuda/runtime/device_info.h"
#include "device_call.h"
#include "fovea/error.h"
#include "on_device.h"
#include "verification/attention/case.h"
#include "verification/attention/check.h"

namespace fovea::cuda {
namespace {

using sm90::Division, sm90::ForwardInstance;

constexpr int kThreadBlocks = 3;

// Lengths of no whole tile. In the second case most query tiles see no key, one after another; in the fourth, rows of
// heads fill one tile; in the last, later splits see no key.
std::vector<verification::AttentionCase> cases_of(const ForwardInstance& one, const std::string& dtype) {
  const std::string dims = " d=" + std::to_string(one.tile.dim_qk) + " dv=" + std::to_string(one.tile.dim_v);
  const std::string less = " d=" + std::to_string(one.tile.dim_qk - 24) + " dv=" + std::to_string(one.tile.dim_v - 8);
  const std::string common = "pass=bwd hq=3 hkv=1 dtype=" + dtype;
  return {verification::attention_case(common + " lq=150 lk=301 mask=none" + dims),
          verification::attention_case(common + " lq=1333 lk=30 mask=causal_bottom_right" + less),
          verification::attention_case(common + " lq=233 lk=301 mask=window_bottom_right left=70 right=9" + dims),
          verification::attention_case(common + " lq=5 lk=1100 mask=none layout=blhd" + less),
          verification::attention_case(common + " lq=70 lk=700 mask=causal_top_left" + dims)};
}

// Empty, or what is wrong. `result`: of out.
std::string wrong_answer(const ForwardInstance& one, const Division& division, verification::AttentionCase c,
                         DType result) {
  try {
    DeviceCall call(c, result);
    c.problem.device = {DeviceKind::cuda, 0};
    c.problem.pass = Pass::forward;
    c.problem.result_dtype = result;
    const auto plan = sm90::plan_forward(c.problem, {.kernel = &one, .division = division}, kThreadBlocks);
    DeviceMemory workspace(std::max<std::int64_t>(plan->workspace_bytes, 256));
    workspace.poison();
    sm90::forward(*plan, call.forward, {.workspace = workspace.data()});
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    const verification::Verdict verdict = verification::check_forward(c.problem, call.fetch().forward(), c.seed);
    return verdict.ok ? "" : "wrong: " + verdict.reason();
  } catch (const Error& error) {
    return error.what();
  }
}

struct Count {
  int passed = 0, failed = 0;

  void add(const ForwardInstance& one, const std::string& dtype) {
    for (const verification::AttentionCase& c : cases_of(one, dtype)) {
      for (const std::int64_t heads : {1, 3}) {
        for (const std::int64_t splits : {1, 2, 5}) {
          const DType result = (passed + failed) % 2 == 0 ? c.problem.dtype : DType::fp32;
          const std::string wrong = wrong_answer(one, {.packed_heads = heads, .splits = splits}, c, result);
          ++(wrong.empty() ? passed : failed);
          if (!wrong.empty())
            std::printf("HOPPER TILE %dx%d, %d packed heads, %d splits, results %s, %s: %s\n", one.tile.rows(),
                        one.tile.keys, static_cast<int>(heads), static_cast<int>(splits),
                        result == DType::fp32 ? "fp32" : dtype.c_str(), verification::line_of(c).c_str(),
                        wrong.c_str());
        }
      }
    }
  }
};

}  // namespace

int check_hopper_tiles() {
  Count count;
  const DeviceInfo& device = device_info(0);
  if (device.major == 9 && device.minor == 0) {
    for (const ForwardInstance& one : sm90::forward_bf16()) count.add(one, "bf16");
    for (const ForwardInstance& one : sm90::forward_fp16()) count.add(one, "fp16");
  }
  std::printf("hopper_tiles: %d passed, %d failed\n", count.passed, count.failed);
  return count.failed == 0 ? 0 : 1;
}

}  // namespace fovea::cuda
