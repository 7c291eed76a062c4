// Strips end at the mask's edge. Pieces are equal portions of the batch, of the key heads or of a group, whichever is
// small enough.
#include "baselines/cuda/pieces.h"

#include <algorithm>

#include "baselines/counts.h"

namespace fovea::cuda::baselines {
namespace {

using fovea::baselines::counts_of;
using fovea::baselines::Form;

// The fp32 scores of a piece. Pieces small enough for the L2 cache were slower, because of the additional launches.
constexpr std::int64_t kPieceBytes = std::int64_t{128} << 20;
constexpr std::int64_t kTile = 128;               // tile of a matrix product
constexpr std::int64_t kLeastRows = 2 * kTile;    // of a strip, per head
constexpr std::int64_t kStripRows = 128 * kTile;  // of a strip, over all heads: about one tile per SM
constexpr std::int64_t kMostStrips = 64;

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Splits `count` into the fewest equal portions of at most `most`; returns a portion's size.
std::int64_t portion(std::int64_t count, std::int64_t most) {
  const std::int64_t portions = (count + most - 1) / most;
  return (count + portions - 1) / portions;
}

PieceSizes piece_sizes_of(const AttentionProblem& p) {
  const std::int64_t group = p.heads_kv == 0 ? 1 : p.heads_q / p.heads_kv;
  if (p.dtype == DType::fp32 || p.batch * p.heads_q * p.len_q * p.len_k == 0) return {p.batch, p.heads_kv, group};
  const auto bytes = static_cast<std::int64_t>(sizeof(float)) * p.len_q * p.len_k;
  const std::int64_t heads = std::max<std::int64_t>(1, kPieceBytes / bytes);
  if (heads >= p.heads_q) return {portion(p.batch, heads / p.heads_q), p.heads_kv, group};
  if (heads >= group) return {1, portion(p.heads_kv, heads / group), group};
  return {1, 1, portion(group, heads)};
}

AttentionProblem part_of(const AttentionProblem& p, const PieceSizes& sizes) {
  AttentionProblem part = p;
  part.batch = sizes.batches;
  part.heads_kv = sizes.heads_kv;
  part.heads_q = sizes.heads_kv * sizes.members;
  return part;
}

// The keys of all tiles that rows before `query` see, at least one tile.
std::int64_t keys_seen(const AttentionProblem& p, std::int64_t query) {
  return std::min(p.len_k, round_up(std::max<std::int64_t>(query - 1 + key_window(p).end, 1), kTile));
}

bool skips_masked_tiles(Form form, const AttentionProblem& p) {
  return form == Form::fused && p.mask != Mask::none && p.heads_q == p.heads_kv;
}

// Rows of a strip whose products are large enough to fill the GPU.
std::int64_t least_rows(const AttentionProblem& p) {
  const std::int64_t heads = std::max<std::int64_t>(1, p.batch * p.heads_q);
  return round_up(std::max(kLeastRows, kStripRows / heads), kTile);
}

std::int64_t rows_of_strip(Form form, const AttentionProblem& p) {
  if (!skips_masked_tiles(form, p)) return p.len_q;
  const std::int64_t rows = std::max(least_rows(p), round_up(p.len_q / kMostStrips, kTile));
  const bool saves_little = 3 * keys_seen(p, rows) > p.len_k;  // then the additional launches cost more
  return saves_little ? p.len_q : rows;
}

}  // namespace

std::vector<Strip> strips_of(Form form, const AttentionProblem& p) {
  std::vector<Strip> strips;
  const std::int64_t rows = rows_of_strip(form, p);
  for (std::int64_t query = 0, before = 0; query < p.len_q; query += rows) {
    const std::int64_t queries = std::min(rows, p.len_q - query), end = query + queries;
    const std::int64_t keys = end == p.len_q ? p.len_k : keys_seen(p, end);
    strips.push_back({query, queries, before, keys});
    before = keys;
  }
  return strips;
}

std::vector<Strip> halves_of(Form form, const AttentionProblem& p, const Strip& strip) {
  const std::int64_t rows = round_up((p.len_q + 1) / 2, kTile);
  if (!skips_masked_tiles(form, p) || strip.queries < p.len_q || rows >= p.len_q || rows < least_rows(p))
    return {strip};
  const std::int64_t keys = keys_seen(p, rows);
  if (3 * keys > 2 * p.len_k) return {strip};
  return {{0, rows, 0, keys}, {rows, p.len_q - rows, keys, p.len_k}};
}

AttentionProblem rows_of(const AttentionProblem& p, const Strip& strip) {
  AttentionProblem part = p;
  part.len_q = strip.queries;
  part.len_k = strip.keys;
  return part;
}

AttentionProblem columns_of(const AttentionProblem& p, const Strip& strip) {
  AttentionProblem part = p;
  part.len_q = p.len_q - strip.query;
  part.len_k = strip.keys - strip.keys_before;
  return part;
}

std::vector<StripPlan> strip_plans(Form form, const AttentionProblem& p) {
  std::vector<StripPlan> all;
  for (const Strip& strip : strips_of(form, p)) {
    const AttentionProblem rows = rows_of(p, strip);
    all.push_back({strip, halves_of(form, p, strip), rows, piece_sizes_of(rows)});
  }
  return all;
}

std::int64_t most_pairs(const std::vector<StripPlan>& strips) {
  std::int64_t most = 0;
  for (const StripPlan& one : strips) most = std::max(most, counts_of(part_of(one.rows, one.piece)).pairs);
  return most;
}

std::vector<Piece> pieces_of(const AttentionProblem& p, const StripPlan& plan) {
  const auto& [strip, halves, rows, most] = plan;
  std::vector<Piece> result;
  if (counts_of(rows).pairs == 0) return result;
  const std::int64_t group = p.heads_q / p.heads_kv;
  const std::int64_t window_end = key_window(p).end + strip.query;
  for (std::int64_t batch = 0; batch < p.batch; batch += most.batches) {
    for (std::int64_t head = 0; head < p.heads_kv; head += most.heads_kv) {
      for (std::int64_t member = 0; member < group; member += most.members) {
        const PieceSizes here{std::min(most.batches, p.batch - batch), std::min(most.heads_kv, p.heads_kv - head),
                              std::min(most.members, group - member)};
        const std::int64_t head_q = head * group + member;
        result.push_back({part_of(rows, here), batch, head_q, head, strip.query,
                          (batch * p.heads_q + head_q) * p.len_q + strip.query, window_end});
      }
    }
  }
  return result;
}

}  // namespace fovea::cuda::baselines
