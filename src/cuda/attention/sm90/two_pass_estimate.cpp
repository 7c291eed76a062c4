// The two-pass prediction: the preprocess, then both kernels; the second only fills SMs as the first ends.
#include "cuda/attention/sm90/two_pass_estimate.h"

#include <algorithm>

#include "cuda/attention/sm90/arch_spec.h"
#include "cuda/attention/sm90/visits.h"

namespace fovea::cuda::sm90 {
namespace {

constexpr const TwoPassCosts& kCosts = kH200.two_pass;

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
  return std::max(longest, all / ctas + kCosts.tail * longest);
}

}  // namespace

double seconds_of(const AttentionProblem& p, const TwoPassInstance& kernels, int sms) {
  const KeyWindow window = key_window(p);
  const double dim_qk = kernels.dim_qk, dim_v = kernels.dim_v, pairs = kTwoPassRows * kTwoPassRows;
  const auto heads_q = static_cast<double>(p.heads_q), heads_kv = static_cast<double>(p.heads_kv);
  const auto batch = static_cast<double>(p.batch);
  const double tile = kCosts.column * (dim_qk + dim_v);
  const KernelWork dkdv{.visits = visits_of({.stationary = p.len_k,
                                             .stationary_tile = kTwoPassRows,
                                             .streamed = p.len_q,
                                             .streamed_tile = kTwoPassRows,
                                             .window = query_window(window)}),
                        .sequences = batch * heads_kv,
                        .heads = heads_q / heads_kv,
                        .step = kCosts.step + pairs * 2 * (dim_qk + dim_v) / kCosts.product_rate,
                        .tile = tile};
  const KernelWork dq{.visits = visits_of({.stationary = p.len_q,
                                           .stationary_tile = kDqRows,
                                           .streamed = p.len_k,
                                           .streamed_tile = kTwoPassRows,
                                           .window = window}),
                      .sequences = batch * heads_q,
                      .step = kCosts.step + 2 * pairs * (2 * dim_qk + dim_v) / kCosts.product_rate,
                      .tile = tile};
  const double rows = batch * heads_q * static_cast<double>(p.len_q);
  const auto all_sms = static_cast<double>(sms);
  double seconds = kCosts.launches + rows * static_cast<double>(p.dim_v) * 4.0 / kCosts.memory_rate;
  if (p.wants_dk || p.wants_dv) seconds += seconds_of(dkdv, all_sms);
  if (p.wants_dq) seconds += seconds_of(dq, all_sms);
  return seconds;
}

}  // namespace fovea::cuda::sm90
