// Every forward tile of cuda.sm90 against the reference: heads packed or not; without splits, with splits that combine
// in memory, and in clusters. Thread blocks are so few that each works on many tiles. The plans of this GPU never
// choose some of these.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cuda/attention/sm90/instances.h"
#include "cuda/attention/sm90/run.h"
#include "cuda/measure/device_memory.h"
#include "cuda/runtime/check.h"
#include "cuda/runtime/device_info.h"
#include "cuda/runtime/launch.h"
#include "device_call.h"
#include "fovea/error.h"
#include "on_device.h"
#include "verification/attention/case.h"
#include "verification/attention/check.h"

namespace fovea::cuda {
namespace {

using sm90::Division, sm90::ForwardInstance, sm90::ForwardTile;

constexpr int kThreadBlocks = 3;
constexpr int kPrinted = 10;  // failures

using Dims = std::pair<int, int>;  // of q and k, of v
Dims dims_of(const ForwardTile& tile) { return {tile.dim_qk, tile.dim_v}; }

// Lengths of no whole tile. In the second case most query tiles see no key, one after another; in the fourth, rows of
// heads fill one tile; in the last, later splits see no key.
std::vector<verification::AttentionCase> cases_of(const Dims& of_tile, const std::string& dtype) {
  const auto [dim_qk, dim_v] = of_tile;
  const std::string dims = " d=" + std::to_string(dim_qk) + " dv=" + std::to_string(dim_v);
  const std::string less = " d=" + std::to_string(dim_qk - 24) + " dv=" + std::to_string(dim_v - 8);
  const std::string common = "pass=fwd device=cuda hq=3 hkv=1 dtype=" + dtype;
  return {verification::attention_case(common + " lq=150 lk=301 mask=none" + dims),
          verification::attention_case(common + " lq=1333 lk=30 mask=causal_bottom_right" + less),
          verification::attention_case(common + " lq=233 lk=301 mask=window_bottom_right left=70 right=9" + dims),
          verification::attention_case(common + " lq=5 lk=1100 mask=none layout=blhd" + less),
          verification::attention_case(common + " lq=70 lk=700 mask=causal_top_left" + dims)};
}

// Answers of one problem, all compared with one expectation.
class Problem {
 public:
  Problem(const verification::AttentionCase& c, DType result)
      : line_(verification::line_of(c) + (result == DType::fp32 ? ", fp32 results" : "")),
        problem_(c.problem),
        call_(c, result) {
    problem_.result_dtype = result;
    expected_ = verification::expect_forward(problem_, call_.host().forward(), c.seed);
  }

  // Empty, or what is wrong.
  std::string wrong_answer(const ForwardInstance& one, const Division& division) {
    try {
      resident_clusters(one.function, one.tile.threads(), one.shared_bytes, static_cast<int>(division.splits), 0);
      const auto plan = sm90::plan_forward(problem_, {.kernel = &one, .division = division}, kThreadBlocks);
      DeviceMemory workspace(std::max<std::int64_t>(plan->workspace_bytes, 256));
      workspace.poison();
      call_.poison(Pass::forward);
      sm90::forward(*plan, call_.forward, {.workspace = workspace.data()});
      check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      const verification::Verdict verdict = verification::compare(expected_, call_.fetch().forward());
      return verdict.ok ? "" : "wrong: " + verdict.reason();
    } catch (const Error& error) {
      return error.what();
    }
  }

  const std::string& line() const { return line_; }

 private:
  std::string line_;
  AttentionProblem problem_;
  DeviceCall call_;
  verification::Expectation expected_;
};

struct Count {
  int passed = 0, failed = 0;

  // Every division by one instance. Prints the first failures.
  void add(const ForwardInstance& one, Problem& problem) {
    for (const int heads : {1, 3}) {
      for (const int splits : {1, 2, 5}) add(one, {.packed_heads = heads, .splits = splits}, problem);
      for (const int splits : {2, 3, 8, 16})
        add(one, {.packed_heads = heads, .splits = splits, .in_cluster = true}, problem);
    }
  }
  void add(const ForwardInstance& one, const Division& division, Problem& problem) {
    const std::string wrong = problem.wrong_answer(one, division);
    ++(wrong.empty() ? passed : failed);
    if (!wrong.empty() && failed <= kPrinted)
      std::printf("HOPPER TILE %dx%d, %d packed heads, %d %s, %s: %s\n", one.tile.rows(), one.tile.keys,
                  static_cast<int>(division.packed_heads), static_cast<int>(division.splits),
                  division.in_cluster ? "splits in a cluster" : "splits", problem.line().c_str(), wrong.c_str());
  }

  // With results of the inputs' type and of fp32.
  void add(std::span<const ForwardInstance> instances, const std::string& dtype) {
    std::set<Dims> all_dims;
    for (const ForwardInstance& one : instances) all_dims.insert(dims_of(one.tile));
    for (const Dims& dims : all_dims) {
      for (const verification::AttentionCase& c : cases_of(dims, dtype)) {
        for (const DType result : {c.problem.dtype, DType::fp32}) {
          Problem problem(c, result);
          for (const ForwardInstance& one : instances) {
            if (dims_of(one.tile) == dims && one.shared_bytes <= usable_shared_memory(0)) add(one, problem);
          }
        }
      }
    }
  }
};

}  // namespace

int check_hopper_tiles() {
  Count count;
  const DeviceInfo& device = device_info(0);
  try {
    if (device.major == 9 && device.minor == 0) {
      count.add(sm90::forward_bf16(), "bf16");
      count.add(sm90::forward_fp16(), "fp16");
    }
  } catch (const Error& error) {  // no memory, or a kernel before broke the context
    ++count.failed;
    std::printf("HOPPER TILES: %s\n", error.what());
  }
  std::printf("hopper_tiles: %d passed, %d failed\n", count.passed, count.failed);
  return count.failed == 0 ? 0 : 1;
}

}  // namespace fovea::cuda
