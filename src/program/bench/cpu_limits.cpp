// The limits of the CPU engine on cores with AVX-512 and AVX512_BF16. `must` and `aim` are shares, factors or seconds.
#include "program/bench/limits.h"

namespace fovea::program {
namespace {

constexpr double kMicro = 1e-6;

std::vector<Limit> forward_limits() {
  using enum Measure;
  return {
      {"fp32 forward d=64", peak, "hq=4 lq=2k,4k d=64", "flash", 1, .90, .92},
      {"fp32 forward d=128", peak, "hq=4 lq=2k,4k d=128", "flash", 1, .92, .94},
      {"fp32 forward d=256", peak, "hq=4 lq=2k,4k d=256", "flash", 1, .92, .94, "hq=4 lq=2k d=256"},
      {"fp32 forward d=64, blhd", peak, "hq=4 lq=2k,4k d=64 layout=blhd", "flash", 1, .88, .90},
      {"fp32 forward d=128, blhd", peak, "hq=4 lq=2k,4k d=128 layout=blhd", "flash", 1, .90, .92},
      {"fp32 forward d=16", peak, "hq=4 lq=2k d=16", "flash", 1, .75, .80},
      {"fp32 forward d=32", peak, "hq=4 lq=2k d=32", "flash", 1, .84, .88},
      {"fp32 causal d=64, 4k", peak, "hq=4 lq=4k d=64 mask=causal", "flash", 1, .85, .88},
      {"fp32 causal d=128, 4k", peak, "hq=4 lq=4k d=128 mask=causal", "flash", 1, .88, .91},
      {"fp32 causal d=64, 1k", peak, "hq=4 lq=1k d=64 mask=causal", "flash", 1, .79, .82},
      {"fp32 causal d=128, 1k", peak, "hq=4 lq=1k d=128 mask=causal", "flash", 1, .83, .86},
      {"bf16 forward d=64", peak, "hq=4 lq=2k,4k d=64 dtype=bf16", "flash", 1, .84, .87},
      {"bf16 forward d=128", peak, "hq=4 lq=2k,4k d=128 dtype=bf16", "flash", 1, .88, .91},
      {"bf16 causal d=64, 4k", peak, "hq=4 lq=4k d=64 dtype=bf16 mask=causal", "flash", 1, .80, .87},
      {"bf16 causal d=128, 4k", peak, "hq=4 lq=4k d=128 dtype=bf16 mask=causal", "flash", 1, .84, .91},
      {"fp16 forward", points_of_fp32, "hq=4 lq=2k d=64,128 dtype=fp16", "flash", 1, .04, .03},
      {"AVX2 forward d=64", peak_of_avx2, "hq=4 lq=2k d=64", "cpu.avx2", 1, .80, .85},
      {"AVX2 forward d=128", peak_of_avx2, "hq=4 lq=2k d=128", "cpu.avx2", 1, .78, .83},
      {"8 heads a group, 4-16 rows", peak, "hq=8 hkv=1 lq=4,8,16 lk=2k,4k,8k d=64,128 dtype=fp32,bf16", "flash", 1, .70,
       .75, "hq=8 hkv=1 lq=4,16 lk=4k d=64,128 dtype=fp32,bf16"},
  };
}

std::vector<Limit> backward_limits() {
  using enum Measure;
  return {
      {"fp32 backward d=64", peak, "pass=bwd hq=4 lq=2k,4k d=64", "flash", 1, .90, .92, "pass=bwd hq=4 lq=2k d=64"},
      {"fp32 backward d=128", peak, "pass=bwd hq=4 lq=2k,4k d=128", "flash", 1, .90, .93, "pass=bwd hq=4 lq=2k d=128"},
      {"fp32 backward causal d=64", peak, "pass=bwd hq=4 lq=4k d=64 mask=causal", "flash", 1, .84, .86},
      {"fp32 backward causal d=128", peak, "pass=bwd hq=4 lq=4k d=128 mask=causal", "flash", 1, .86, .88},
      {"fp32 backward, 512", peak, "pass=bwd hq=4 lq=512 d=64,128", "flash", 1, .87, .87},
      {"fp32 backward, 128 and 256", peak, "pass=bwd hq=4 lq=128,256 d=64,128", "flash", 1, .75, .75},
      {"bf16 backward d=64", peak, "pass=bwd hq=4 lq=2k,4k d=64 dtype=bf16", "flash", 1, .84, .87,
       "pass=bwd hq=4 lq=2k d=64 dtype=bf16"},
      {"bf16 backward d=128", peak, "pass=bwd hq=4 lq=2k,4k d=128 dtype=bf16", "flash", 1, .87, .90,
       "pass=bwd hq=4 lq=2k d=128 dtype=bf16"},
      {"bf16 backward, 512", peak, "pass=bwd hq=4 lq=512 d=64,128 dtype=bf16", "flash", 1, .80, .80},
      {"bf16 backward causal d=64", peak, "pass=bwd hq=4 lq=4k d=64 dtype=bf16 mask=causal", "flash", 1, .75, .87},
      {"bf16 backward causal d=128", peak, "pass=bwd hq=4 lq=4k d=128 dtype=bf16 mask=causal", "flash", 1, .80, .90},
      {"fp16 backward", points_of_fp32, "pass=bwd hq=4 lq=2k d=64,128 dtype=fp16", "flash", 1, .04, .03},
      {"AVX2 backward", peak_of_avx2, "pass=bwd hq=4 lq=2k d=64,128", "cpu.avx2", 1, .72, .75},
  };
}

std::vector<Limit> thread_limits() {
  using enum Measure;
  return {
      {"16 heads", threads, "pass=fwd,bwd hq=16 lq=2k d=64,128", "flash", 2, 1.9, 1.95,
       "pass=fwd,bwd hq=16 lq=2k d=64"},
      {"one head, 512", threads, "pass=fwd,bwd lq=512 d=64 dtype=fp32,bf16 mask=none,causal", "flash", 2, 1.7, 1.9},
      {"one head, 2k", threads, "pass=fwd,bwd lq=2k d=64 dtype=fp32,bf16 mask=none,causal", "flash", 2, 1.85, 1.9},
      {"one head, 128, fp32", seconds, "lq=128 d=64", "flash", 2, 27 * kMicro, 22 * kMicro},
  };
}

// Up to 16 query rows read one key head.
std::vector<Limit> few_queries_limits() {
  std::vector<Limit> limits;
  for (const int threads : {1, 2}) {
    for (const char* const heads : {"hq=8 hkv=8 lq=1,4,16", "hq=8 hkv=2 lq=1,2,4", "hq=32 hkv=8 lq=1,4"}) {
      const std::string rows(heads);
      const std::string title = "few queries " + rows.substr(3, rows.find(" hkv") - 3) + ":" +
                                rows.substr(rows.find("hkv=") + 4, rows.find(" lq") - rows.find("hkv=") - 4) +
                                (threads == 1 ? "" : ", 2 threads");
      const auto cells = [&](const char* more) { return rows + " " + more; };
      limits.push_back({title, Measure::baselines, cells("lk=1k,4k,16k,64k d=64,128 dtype=fp32,bf16,fp16"), "flash",
                        threads, 0.98, 1.0, cells("lk=1k,16k d=128 dtype=fp32,bf16,fp16")});
      limits.push_back({title, Measure::bound, cells("lk=16k,64k d=64,128 dtype=fp32,bf16,fp16"), "flash", threads,
                        0.80, 0.90, cells("lk=16k d=128 dtype=fp32,bf16,fp16")});
    }
  }
  return limits;
}

}  // namespace

const std::vector<Limit>& cpu_limits() {
  static const std::vector<Limit> all = [] {
    std::vector<Limit> limits = forward_limits();
    for (const auto& more : {backward_limits(), thread_limits(), few_queries_limits()})
      limits.insert(limits.end(), more.begin(), more.end());
    return limits;
  }();
  return all;
}

}  // namespace fovea::program
