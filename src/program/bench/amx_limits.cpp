// The limits of the CPU engine on a processor with AMX, in bf16 and beside PyTorch.
#include <algorithm>
#include <set>

#include "fovea/threads.h"
#include "program/bench/limits.h"

namespace fovea::program {
namespace {

constexpr int kMostThreads = 16;

std::vector<Limit> tile_limits() {
  using enum Measure;
  return {
      {"AMX forward d=64", peak, "hq=4 lq=2k,4k d=64 dtype=bf16", "cpu.amx", 1, .30, .55},
      {"AMX forward d=128", peak, "hq=4 lq=2k,4k d=128 dtype=bf16", "cpu.amx", 1, .45, .70},
      {"AMX backward d=64", peak, "pass=bwd hq=4 lq=2k,4k d=64 dtype=bf16", "cpu.amx", 1, .20, .45,
       "pass=bwd hq=4 lq=2k d=64 dtype=bf16"},
      {"AMX backward d=128", peak, "pass=bwd hq=4 lq=2k,4k d=128 dtype=bf16", "cpu.amx", 1, .30, .55,
       "pass=bwd hq=4 lq=2k d=128 dtype=bf16"},
      {"AMX", baselines, "pass=fwd,bwd hq=4 lq=512,1k,2k d=64,128 dtype=bf16 mask=none,causal", "cpu.amx", 1, 1.0, 1.0,
       "pass=fwd,bwd hq=4 lq=512 d=64,128 dtype=bf16 mask=none,causal"},
  };
}

std::vector<Limit> pytorch_limits(int threads) {
  const std::string end = threads == 1 ? "" : ", " + std::to_string(threads) + " threads";
  const auto row = [&](const std::string& title, const std::string& words, double must) {
    const std::string more = words + " hq=8 d=64,128 mask=none,causal lq=512";
    return Limit{title + end, Measure::pytorch, more + ",2k,4k", "flash", threads, must, must, more + ",2k"};
  };
  return {row("bf16 forward", "pass=fwd dtype=bf16", 1.5), row("bf16 backward", "pass=bwd dtype=bf16", 3.0),
          row("fp32 forward", "pass=fwd", 1.15), row("fp32 backward", "pass=bwd", 1.2)};
}

}  // namespace

const std::vector<Limit>& amx_limits() {
  static const std::vector<Limit> all = [] {
    std::vector<Limit> limits = tile_limits();
    const std::set<int> threads{1, std::min(kMostThreads, default_threads())};
    for (const int count : threads) {
      for (const Limit& limit : pytorch_limits(count)) limits.push_back(limit);
    }
    return limits;
  }();
  return all;
}

}  // namespace fovea::program
