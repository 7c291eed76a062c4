// Equal shares of the batch, of the key heads or of a group, whichever is small enough.
#include "baselines/cuda/pieces.h"

#include <algorithm>

namespace fovea::cuda::baselines {
namespace {

constexpr std::int64_t kPieceBytes = std::int64_t{32} << 20;  // of the 50 MiB and more of a Hopper

// The size of equal shares of `count` of which none has more than `most`.
std::int64_t share(std::int64_t count, std::int64_t most) {
  const std::int64_t shares = (count + most - 1) / most;
  return (count + shares - 1) / shares;
}

struct Shares {
  std::int64_t batches, heads_kv, members;
};

Shares shares_of(const AttentionProblem& p) {
  const std::int64_t group = p.heads_kv == 0 ? 1 : p.heads_q / p.heads_kv;
  if (p.dtype == DType::fp32 || p.batch * p.heads_q * p.len_q * p.len_k == 0) return {p.batch, p.heads_kv, group};
  const auto bytes = static_cast<std::int64_t>(sizeof(float)) * p.len_q * p.len_k;
  const std::int64_t heads = std::max<std::int64_t>(1, kPieceBytes / bytes);
  if (heads >= p.heads_q) return {share(p.batch, heads / p.heads_q), p.heads_kv, group};
  if (heads >= group) return {1, share(p.heads_kv, heads / group), group};
  return {1, 1, share(group, heads)};
}

AttentionProblem part_of(const AttentionProblem& p, const Shares& shares) {
  AttentionProblem part = p;
  part.batch = shares.batches;
  part.heads_kv = shares.heads_kv;
  part.heads_q = shares.heads_kv * shares.members;
  return part;
}

}  // namespace

AttentionProblem largest_piece(const AttentionProblem& p) { return part_of(p, shares_of(p)); }

std::vector<Piece> pieces_of(const AttentionProblem& p) {
  std::vector<Piece> result;
  if (p.batch * p.heads_q * p.len_q * p.len_k == 0) return result;
  const std::int64_t group = p.heads_q / p.heads_kv;
  const Shares most = shares_of(p);
  for (std::int64_t batch = 0; batch < p.batch; batch += most.batches) {
    for (std::int64_t head = 0; head < p.heads_kv; head += most.heads_kv) {
      for (std::int64_t member = 0; member < group; member += most.members) {
        const Shares here{std::min(most.batches, p.batch - batch), std::min(most.heads_kv, p.heads_kv - head),
                          std::min(most.members, group - member)};
        const std::int64_t head_q = head * group + member;
        result.push_back({part_of(p, here), batch, head_q, head, (batch * p.heads_q + head_q) * p.len_q});
      }
    }
  }
  return result;
}

}  // namespace fovea::cuda::baselines
