// The two-pass prediction: the preprocess, then both kernels; the second only fills SMs as the first ends.
#include "cuda/attention/sm90/two_pass_estimate.h"

#include <algorithm>

#include "cuda/attention/sm90/visits.h"

namespace fovea::cuda::sm90 {
namespace {

// Fitted to the 964 calls of more than 128 columns that both implementations took in results/h200/hopper_sweep.csv.xz,
// on one H200.
constexpr double kLaunches = 2.0e-6;      // of all kernels, up to the first product, and the end of the last grid
constexpr double kMemoryRate = 2.05e12;   // bytes per second of the preprocess
constexpr double kTail = 0.35;            // share of the longest thread block's time in which the last ones run alone
constexpr double kProductRate = 3.86e12;  // multiply-adds per second of an SM
constexpr double kStep = 0.29e-6;         // seconds of a step, beside its products
constexpr double kColumn = 13.5e-9;       // seconds of a thread block, per column of K and V, beside its steps

struct KernelWork {
  TileVisits visits;  // of one sequence
  double sequences;
  double heads = 1;   // query heads that a thread block walks; it makes a step for each visit and head
  double step, tile;  // seconds
};

double seconds_of(const KernelWork& work, double sms) {
  const double tiles = static_cast<double>(work.visits.tiles) * work.sequences, ctas = std::min(tiles, sms);
  const double longest = work.visits.longest * work.heads * work.step + work.tile;
  const double all = work.visits.all * work.sequences * work.heads * work.step + tiles * work.tile;
  if (tiles <= ctas) return longest;
  return std::max(longest, all / ctas + kTail * longest);
}

}  // namespace

double seconds_of(const AttentionProblem& p, const TwoPassInstance& kernels, int sms) {
  const KeyWindow window = key_window(p);
  const double dim_qk = kernels.dim_qk, dim_v = kernels.dim_v, pairs = kTwoPassRows * kTwoPassRows;
  const auto heads_q = static_cast<double>(p.heads_q), heads_kv = static_cast<double>(p.heads_kv);
  const auto batch = static_cast<double>(p.batch);
  const double tile = kColumn * (dim_qk + dim_v);
  const KernelWork dkdv{.visits = visits_of({.stationary = p.len_k,
                                             .stationary_tile = kTwoPassRows,
                                             .streamed = p.len_q,
                                             .streamed_tile = kTwoPassRows,
                                             .window = query_window(window)}),
                        .sequences = batch * heads_kv,
                        .heads = heads_q / heads_kv,
                        .step = kStep + pairs * 2 * (dim_qk + dim_v) / kProductRate,
                        .tile = tile};
  const KernelWork dq{.visits = visits_of({.stationary = p.len_q,
                                           .stationary_tile = kDqRows,
                                           .streamed = p.len_k,
                                           .streamed_tile = kTwoPassRows,
                                           .window = window}),
                      .sequences = batch * heads_q,
                      .step = kStep + 2 * pairs * (2 * dim_qk + dim_v) / kProductRate,
                      .tile = tile};
  const double rows = batch * heads_q * static_cast<double>(p.len_q);
  const auto all_sms = static_cast<double>(sms);
  double seconds = kLaunches + rows * static_cast<double>(p.dim_v) * 4.0 / kMemoryRate;
  if (p.wants_dk || p.wants_dv) seconds += seconds_of(dkdv, all_sms);
  if (p.wants_dq) seconds += seconds_of(dq, all_sms);
  return seconds;
}

}  // namespace fovea::cuda::sm90
