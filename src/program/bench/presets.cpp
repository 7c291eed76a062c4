// The table of presets, written as problem lines.
#include "program/bench/presets.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <random>

#include "core/check.h"
#include "core/problem_line.h"
#include "program/bench/limits.h"
#include "verification/problem_line.h"

namespace fovea::program {

namespace {

std::vector<Preset> report_presets() {
  const std::vector<std::string> all{"naive", "vectorized", "fused", "flash"};
  return {
      {"quick",
       "parts of the published reports; at most three minutes on two cores",
       all,
       {"pass=fwd,bwd,e2e d=64 lq=128,256,512,1024 dtype=fp32,bf16 mask=causal",
        "pass=fwd,bwd b=8 d=64 lq=256,1024 dtype=fp32 mask=none",
        "pass=fwd hq=12 d=64,128 lq=512,1024 dtype=fp16 mask=causal",
        "pass=fwd b=8 hq=12 d=64 lq=512 dtype=fp16 mask=causal",
        "pass=fwd b=2 hq=24 d=256 lq=512 dtype=fp16 mask=causal",
        "op=mha_fused pass=fwd,bwd,e2e b=2 hq=3 lq=512 d=64 dtype=bf16 mask=none",
        "op=model pass=fwd b=1 lq=128 model=report-d1:sm dtype=fp32"},
       {},
       120},
      {"report-a",
       "short sequences, one head, causal; forward, backward, and both together",
       all,
       {"pass=fwd,bwd,e2e d=16,32,64,128 lq=128,256,512 dtype=bf16,fp32 mask=causal"},
       {"pass=fwd,bwd,e2e d=64,128 lq=128,256,512 dtype=bf16,fp32 mask=causal"}},
      {"report-b",
       "one head, causal; forward, backward, and both together",
       all,
       {"pass=fwd,bwd,e2e d=16,32,64,128 lq=128,256,512,1k,2k,4k,8k dtype=bf16,fp32 mask=causal"},
       {"pass=fwd,bwd,e2e d=64,128 lq=512,2k,4k dtype=bf16,fp32 mask=causal"}},
      {"report-d2",
       "eight sequences of one head, fp32, no mask; all three gradients; memory in use before backward",
       all,
       {"pass=fwd,bwd b=8 d=16,32,64,128 lq=256,1k,4k,8k,16k dtype=fp32 mask=none"},
       {"pass=fwd,bwd b=8 d=16,64 lq=256,1k,4k dtype=fp32 mask=none"}},
      {"report-d3",
       "long sequences, one head, causal; forward, backward, and both together",
       all,
       {"pass=fwd,bwd,e2e d=16,32,64 lq=128,256,512,1k,2k,4k,8k,16k,32k dtype=bf16,fp32 mask=causal"},
       {"pass=fwd,bwd,e2e d=64 lq=512,2k,8k dtype=bf16,fp32 mask=causal"}},
      {"report-e",
       "many heads, fp16, causal; forward only",
       all,
       {"pass=fwd b=1,8 hq=12 d=64 lq=512,1k,2k,4k,8k,16k dtype=fp16 mask=causal",
        "pass=fwd hq=12 d=128 lq=512,1k,2k,4k,8k,16k dtype=fp16 mask=causal",
        "pass=fwd b=2 hq=24 d=256 lq=512,1k,2k,4k,8k,16k dtype=fp16 mask=causal"},
       {"pass=fwd b=1,8 hq=12 d=64 lq=512,1k,2k dtype=fp16 mask=causal",
        "pass=fwd hq=12 d=128 lq=512,1k,2k dtype=fp16 mask=causal",
        "pass=fwd b=2 hq=24 d=256 lq=512,1k dtype=fp16 mask=causal"}},
  };
}

Preset h200_dense() {
  return {"h200-dense",
          "16384 query rows a batch, 2048 channels, bf16: the grid of a large card; forward and backward",
          {"flash"},
          {"pass=fwd,bwd device=cuda b=32 lq=512 dtype=bf16 mask=none,causal hq=32 d=64",
           "pass=fwd,bwd device=cuda b=16 lq=1k dtype=bf16 mask=none,causal hq=32 d=64",
           "pass=fwd,bwd device=cuda b=8 lq=2k dtype=bf16 mask=none,causal hq=32 d=64",
           "pass=fwd,bwd device=cuda b=4 lq=4k dtype=bf16 mask=none,causal hq=32 d=64",
           "pass=fwd,bwd device=cuda b=2 lq=8k dtype=bf16 mask=none,causal hq=32 d=64",
           "pass=fwd,bwd device=cuda b=1 lq=16k dtype=bf16 mask=none,causal hq=32 d=64",
           "pass=fwd,bwd device=cuda b=32 lq=512 dtype=bf16 mask=none,causal hq=16 d=128",
           "pass=fwd,bwd device=cuda b=16 lq=1k dtype=bf16 mask=none,causal hq=16 d=128",
           "pass=fwd,bwd device=cuda b=8 lq=2k dtype=bf16 mask=none,causal hq=16 d=128",
           "pass=fwd,bwd device=cuda b=4 lq=4k dtype=bf16 mask=none,causal hq=16 d=128",
           "pass=fwd,bwd device=cuda b=2 lq=8k dtype=bf16 mask=none,causal hq=16 d=128",
           "pass=fwd,bwd device=cuda b=1 lq=16k dtype=bf16 mask=none,causal hq=16 d=128",
           "pass=fwd,bwd device=cuda b=32 lq=512 dtype=bf16 mask=none,causal hq=8 d=256",
           "pass=fwd,bwd device=cuda b=16 lq=1k dtype=bf16 mask=none,causal hq=8 d=256",
           "pass=fwd,bwd device=cuda b=8 lq=2k dtype=bf16 mask=none,causal hq=8 d=256",
           "pass=fwd,bwd device=cuda b=4 lq=4k dtype=bf16 mask=none,causal hq=8 d=256",
           "pass=fwd,bwd device=cuda b=2 lq=8k dtype=bf16 mask=none,causal hq=8 d=256",
           "pass=fwd,bwd device=cuda b=1 lq=16k dtype=bf16 mask=none,causal hq=8 d=256"},
          {"pass=fwd,bwd device=cuda b=8 lq=2k dtype=bf16 mask=none,causal hq=32 d=64",
           "pass=fwd,bwd device=cuda b=8 lq=2k dtype=bf16 mask=none,causal hq=16 d=128",
           "pass=fwd,bwd device=cuda b=8 lq=2k dtype=bf16 mask=none,causal hq=8 d=256"}};
}

// The dense grid, one head, and random problems.
Preset choice_preset() {
  constexpr int kRandom = 100;
  const std::string one_head = "pass=fwd,bwd device=cuda dtype=bf16 mask=causal";
  Preset preset{.name = "choice",
                .conditions = "the choice between the kernels for NVIDIA GPUs: each of them timed, and the regret",
                .implementations = {"flash", "cuda.any", "cuda.sm90"},
                .full = h200_dense().full,
                .quick = {one_head + " lq=512,4k d=64,128"}};
  preset.full.push_back(one_head + " lq=128,256,512,1k,2k,4k,8k,16k,32k d=16,32,64,128");
  std::mt19937_64 random(30);  // not std's distributions: they differ between libraries
  const auto below = [&random](std::uint64_t end) { return random() % end; };
  for (int n = 0; n < kRandom; ++n) {
    constexpr int kDims[] = {64, 80, 96, 128, 192, 256};
    const int batch = 1 << below(4), heads_kv = 1 << below(4), group = 1 << below(4);
    const std::uint64_t length = 64 + below(4096);
    const int dim = kDims[below(std::size(kDims))];
    preset.full.push_back(fmt::format("pass={} device=cuda b={} hq={} hkv={} lq={} d={} dtype={} mask={}",
                                      n % 2 == 0 ? "fwd" : "bwd", batch, heads_kv * group, heads_kv, length, dim,
                                      n % 5 == 0 ? "fp16" : "bf16", below(2) == 0 ? "none" : "causal"));
  }
  return preset;
}

Preset limits_preset(const char* name, const char* conditions, const std::vector<Limit>& (*limits)()) {
  Preset preset{.name = name, .conditions = conditions, .implementations = {}, .full = {}, .quick = {}};
  preset.limits = limits;
  for (const Limit& limit : limits()) {
    preset.full.push_back(limit.line);
    preset.quick.push_back(limit.quick.empty() ? limit.line : limit.quick);
  }
  return preset;
}

// The report names neither type nor mask. Passes come first and vary fastest, so that all passes of a problem share its
// reference.
Preset report_c() {
  return {"report-c",
          "fifteen attention layers, bf16, without mask and causal; forward, backward, and both together",
          {"naive", "fused", "flash"},
          {"op=mha_fused pass=fwd,bwd,e2e b=2 lq=2k hq=12 d=64 dtype=bf16 mask=none,causal",
           "op=mha_fused pass=fwd,bwd,e2e b=1 lq=4k hq=32 d=128 dtype=bf16 mask=none,causal",
           "op=mha_fused pass=fwd,bwd,e2e b=1 lq=2k hq=40 d=128 dtype=bf16 mask=none,causal",
           "op=mha pass=fwd,bwd,e2e b=2 lq=2k hq=12 d=64 dtype=bf16 mask=none,causal",
           "op=mha pass=fwd,bwd,e2e b=1 lq=4k hq=32 d=128 dtype=bf16 mask=none,causal",
           "op=mha pass=fwd,bwd,e2e b=1 lq=2k hq=40 d=128 dtype=bf16 mask=none,causal",
           "op=gqa pass=fwd,bwd,e2e b=2 lq=2k hq=32 hkv=8 d=64 dtype=bf16 mask=none,causal",
           "op=gqa pass=fwd,bwd,e2e b=1 lq=4k hq=32 hkv=8 d=128 dtype=bf16 mask=none,causal",
           "op=gqa pass=fwd,bwd,e2e b=1 lq=2k hq=40 hkv=8 d=128 dtype=bf16 mask=none,causal",
           "op=mqa pass=fwd,bwd,e2e b=2 lq=2k hq=16 d=64 dtype=bf16 mask=none,causal",
           "op=mqa pass=fwd,bwd,e2e b=1 lq=4k hq=32 d=128 dtype=bf16 mask=none,causal",
           "op=mqa pass=fwd,bwd,e2e b=1 lq=2k hq=40 d=128 dtype=bf16 mask=none,causal",
           "op=mla pass=fwd,bwd,e2e b=2 lq=2k hq=32 d=128 latent=512 dtype=bf16 mask=none,causal",
           "op=mla pass=fwd,bwd,e2e b=1 lq=4k hq=64 d=128 latent=1k dtype=bf16 mask=none,causal",
           "op=mla pass=fwd,bwd,e2e b=1 lq=2k hq=128 d=128 latent=2k dtype=bf16 mask=none,causal"},
          {"op=mha_fused pass=fwd,bwd,e2e b=2 lq=512 hq=3 d=64 dtype=bf16 mask=none,causal",
           "op=mha_fused pass=fwd,bwd,e2e b=1 lq=512 hq=8,10 d=128 dtype=bf16 mask=none,causal",
           "op=mha pass=fwd,bwd,e2e b=2 lq=512 hq=3 d=64 dtype=bf16 mask=none,causal",
           "op=mha pass=fwd,bwd,e2e b=1 lq=512 hq=8,10 d=128 dtype=bf16 mask=none,causal",
           "op=gqa pass=fwd,bwd,e2e b=2 lq=512 hq=8 hkv=2 d=64 dtype=bf16 mask=none,causal",
           "op=gqa pass=fwd,bwd,e2e b=1 lq=512 hq=8,10 hkv=2 d=128 dtype=bf16 mask=none,causal",
           "op=mqa pass=fwd,bwd,e2e b=2 lq=512 hq=4 d=64 dtype=bf16 mask=none,causal",
           "op=mqa pass=fwd,bwd,e2e b=1 lq=512 hq=8,10 d=128 dtype=bf16 mask=none,causal",
           "op=mla pass=fwd,bwd,e2e b=2 lq=512 hq=8 d=128 latent=128 dtype=bf16 mask=none,causal",
           "op=mla pass=fwd,bwd,e2e b=1 lq=512 hq=16 d=128 latent=256 dtype=bf16 mask=none,causal",
           "op=mla pass=fwd,bwd,e2e b=1 lq=512 hq=32 d=128 latent=512 dtype=bf16 mask=none,causal"}};
}

}  // namespace

const std::vector<Preset>& presets() {
  static const std::vector<Preset> table = [] {
    std::vector<Preset> presets = report_presets();
    presets.insert(presets.begin() + 3, report_c());
    presets.push_back(h200_dense());
    presets.push_back(choice_preset());
    presets.push_back(limits_preset(
        "cpu-limits", "what the CPU engine must reach on one and two threads, beside what it reaches", cpu_limits));
    presets.push_back(limits_preset(
        "amx-limits", "what the CPU engine must reach on a processor with AMX, beside what it reaches", amx_limits));
    return presets;
  }();
  return table;
}

const Preset& find_preset(std::string_view name) {
  std::vector<std::string> known;
  for (const Preset& preset : presets()) {
    if (preset.name == name) return preset;
    known.push_back(preset.name);
  }
  std::string list;
  for (const std::string& one : known) list += (list.empty() ? "" : ", ") + one;
  const std::string near = core::nearest_word(name, known);
  core::fail({.status = Status::invalid_argument,
              .argument = "preset",
              .problem = "there is no preset of this name",
              .got = std::string(name),
              .wanted = "one of " + list,
              .hint = near.empty() ? "" : "did you mean `" + near + "`?"});
}

std::vector<verification::Case> preset_cases(std::string_view name, Scale scale) {
  const Preset& preset = find_preset(name);
  const bool cut = scale == Scale::quick && !preset.quick.empty();
  std::vector<verification::Case> cases;
  for (const std::string& line : cut ? preset.quick : preset.full) {
    for (verification::Case& one : verification::parse_sweep(line)) {
      if (std::find(cases.begin(), cases.end(), one) == cases.end()) cases.push_back(std::move(one));
    }
  }
  return cases;
}

}  // namespace fovea::program
