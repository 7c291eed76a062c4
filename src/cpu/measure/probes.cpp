// Each round runs on all threads and is timed as a whole. The best round counts, because any disturbance makes a round
// slower.
#include "cpu/measure/probes.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "cpu/measure/probe_table.h"
#include "cpu/threads.h"

namespace fovea::cpu {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The best work per second of at least three rounds, for about `seconds`. round() returns its work.
template <class Round>
double best_rate(double seconds, const Round& round) {
  const double end = now() + seconds;
  double best = 0;
  for (int n = 0; n < 3 || now() < end; ++n) {
    const double start = now(), work = round();
    best = std::max(best, work / (now() - start));
  }
  return best;
}

double peak(double (*probe)(std::int64_t), int threads, double seconds) {
  constexpr std::int64_t kIterations = 200'000;
  return best_rate(seconds, [&] {
    for_each_item(nullptr, threads, threads, [&](std::int64_t, int) {
      probe(kIterations);
      return true;
    });
    return threads * probe(1) * static_cast<double>(kIterations);
  });
}

const Probes& probes_of(Isa isa) {
#if defined(__x86_64__)
  if (isa == Isa::avx2) return kAvx2Probes;
  if (isa == Isa::avx512) return kAvx512Probes;
  if (isa == Isa::avx512_bf16) return kAvx512Bf16Probes;
  if (isa == Isa::amx) return kAmxProbes;
#endif
  return kScalarProbes;
}

}  // namespace

Isa best_isa() {
  for (const Isa isa : {Isa::avx512_bf16, Isa::avx512, Isa::avx2}) {
    if (missing(isa).empty()) return isa;
  }
  return Isa::scalar;
}

double fma_flops_per_second(Isa isa, int threads, double seconds) {
  if (!missing(isa).empty()) return 0;
  return peak(probes_of(isa).fma_peak, threads, seconds);
}

double bf16_dot_flops_per_second(int threads, double seconds) {
  if (!missing(Isa::avx512_bf16).empty()) return 0;
  return peak(probes_of(Isa::avx512_bf16).dot_peak, threads, seconds);
}

double bf16_tile_flops_per_second(int threads, double seconds) {
  if (!missing(Isa::amx).empty() || !tile_registers_refusal().empty()) return 0;
  return peak(probes_of(Isa::amx).dot_peak, threads, seconds);
}

double read_bandwidth(int threads, double seconds, std::int64_t bytes) {
  float (*const read)(const float*, std::int64_t) = probes_of(best_isa()).read;
  const std::int64_t count = bytes / 4, share = count / threads;
  std::vector<float> memory(static_cast<std::size_t>(count), 1.0f);
  return best_rate(seconds, [&] {
    for_each_item(nullptr, threads, threads, [&](std::int64_t item, int) {
      // The comparison keeps the compiler from removing the reads.
      return read(memory.data() + item * share, share) >= 0;
    });
    return static_cast<double>(share * threads * 4);
  });
}

}  // namespace fovea::cpu
