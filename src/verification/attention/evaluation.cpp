// Both kinds of evaluation share one loop over the heads of a sample.
#include "verification/attention/evaluation.h"

#include <algorithm>
#include <set>
#include <tuple>

#include "attention/reference/head.h"
#include "core/float16.h"
#include "core/random.h"
#include "verification/blocks.h"

namespace fovea::verification {
namespace {

constexpr double kCompleteFlops = 2e9;
constexpr std::int64_t kCompleteElements = std::int64_t{1} << 23;
constexpr std::int64_t kSampledRows = 256, kSampledHeads = 4;
constexpr double kKeyMultiplications = 4e9;

using HeadIndex = std::pair<std::int64_t, std::int64_t>;  // batch, head

class ReferenceHead {
 public:
  template <class Tensors>
  ReferenceHead(const AttentionProblem& p, const Tensors& tensors, const HeadIndex& at)
      : memory_(static_cast<std::size_t>(reference::Head::doubles(p))),
        head_(p, tensors, at.first, at.second, memory_.data()) {}
  double forward_row(std::int64_t i, double* out) { return head_.forward_row(i, out); }
  void query_gradient(std::int64_t i, double* dq) { head_.query_gradient(i, dq); }
  void add_key_gradients(std::int64_t j, double* dk, double* dv) { head_.add_key_gradients(j, dk, dv); }

 private:
  std::vector<double> memory_;
  reference::Head head_;
};

RowValues empty_values(const std::vector<RowIndex>& rows, std::int64_t columns) {
  return {rows, columns, std::vector<double>(rows.size() * static_cast<std::size_t>(columns), 0.0)};
}

double* row_of(RowValues& values, std::size_t row) {
  return values.values.data() + row * static_cast<std::size_t>(values.columns);
}

// The range [begin, end) of one head's rows in an ordered list.
std::pair<std::size_t, std::size_t> range_of(const std::vector<RowIndex>& rows, const HeadIndex& at) {
  const auto before = [](const RowIndex& row, const HeadIndex& head) { return HeadIndex{row.batch, row.head} < head; };
  const auto begin = std::lower_bound(rows.begin(), rows.end(), at, before);
  const auto end = std::lower_bound(begin, rows.end(), HeadIndex{at.first, at.second + 1}, before);
  return {static_cast<std::size_t>(begin - rows.begin()), static_cast<std::size_t>(end - rows.begin())};
}

// The heads of the rows, in the same order.
std::vector<HeadIndex> heads_of(const std::vector<RowIndex>& rows) {
  std::vector<HeadIndex> heads;
  for (const auto& row : rows) {
    if (heads.empty() || heads.back() != HeadIndex{row.batch, row.head}) heads.emplace_back(row.batch, row.head);
  }
  return heads;
}

// Calls work(head) for every head, on several threads, because a sample has few but long heads. Each head writes only
// its own rows, so the values do not depend on the threads.
template <class Work>
void for_each_head(const std::vector<HeadIndex>& heads, bool few_and_long, const Work& work) {
  const double multiply_adds = few_and_long ? kCompleteFlops : 0;  // a sample is worth threads
  for_each_block(std::ssize(heads), 1, multiply_adds,
                 [&](std::int64_t n, std::int64_t) { work(heads[static_cast<std::size_t>(n)]); });
}

template <class MakeHead>
ForwardValues evaluate_forward(const AttentionProblem& p, const Sample& sample, MakeHead make_head) {
  ForwardValues values{empty_values(sample.queries, p.dim_v), empty_values(sample.queries, 1)};
  for_each_head(heads_of(sample.queries), !sample.complete, [&](const HeadIndex& at) {
    auto head = make_head(at);
    const auto [begin, end] = range_of(sample.queries, at);
    for (std::size_t n = begin; n < end; ++n)
      *row_of(values.lse, n) = head.forward_row(sample.queries[n].index, row_of(values.out, n));
  });
  return values;
}

template <class MakeHead>
BackwardValues evaluate_backward(const AttentionProblem& p, const Sample& sample, MakeHead make_head,
                                 const Gradients& initial = {}) {
  const auto starting_from = [](const TensorView& view, const std::vector<RowIndex>& rows, std::int64_t columns) {
    return view ? read_rows(view, rows) : empty_values(rows, columns);
  };
  BackwardValues values;
  if (p.wants_dq) values.dq = starting_from(initial.dq, sample.queries, p.dim_qk);
  values.dk = starting_from(initial.dk, sample.keys, p.dim_qk);
  values.dv = starting_from(initial.dv, sample.keys, p.dim_v);
  const std::int64_t group = p.heads_q == 0 ? 1 : p.heads_q / p.heads_kv;
  std::vector<HeadIndex> key_heads = heads_of(sample.keys);
  for (const auto& [batch, head] : heads_of(sample.queries)) key_heads.emplace_back(batch, head / group);
  std::sort(key_heads.begin(), key_heads.end());
  key_heads.erase(std::unique(key_heads.begin(), key_heads.end()), key_heads.end());
  for_each_head(key_heads, !sample.complete, [&](const HeadIndex& at) {
    const auto& [batch, key_head] = at;
    const auto [first_key, end_key] = range_of(sample.keys, {batch, key_head});
    const bool wants_keys = (p.wants_dk || p.wants_dv) && first_key != end_key;
    for (std::int64_t h = key_head * group; h < (key_head + 1) * group && h < p.heads_q; ++h) {
      const auto [first_row, end_row] = range_of(sample.queries, {batch, h});
      const bool wants_rows = p.wants_dq && first_row != end_row;
      if (!wants_keys && !wants_rows) continue;
      auto head = make_head(HeadIndex{batch, h});
      for (std::size_t n = first_row; wants_rows && n < end_row; ++n)
        head.query_gradient(sample.queries[n].index, row_of(values.dq, n));
      for (std::size_t n = first_key; wants_keys && n < end_key; ++n)
        head.add_key_gradients(sample.keys[n].index, row_of(values.dk, n), row_of(values.dv, n));
    }
  });
  if (!p.wants_dk) values.dk = {};
  if (!p.wants_dv) values.dv = {};
  return values;
}

// `count` random indices below `size`, and the indices at tile edges.
std::set<std::int64_t> sampled_indices(std::int64_t size, std::int64_t count, std::uint64_t seed,
                                       std::uint64_t stream) {
  std::set<std::int64_t> chosen;
  for (std::int64_t edge = 16; edge <= 512; edge *= 2) {
    for (const std::int64_t index : {edge - 1, edge, size - 1 - size % edge}) {
      if (index >= 0 && index < size) chosen.insert(index);
    }
  }
  for (const std::int64_t index : {std::int64_t{0}, size - 1}) {
    if (index >= 0 && index < size) chosen.insert(index);
  }
  for (std::int64_t n = 0; n < count && size > 0; ++n) {
    const core::RandomBlock block = core::philox(seed, stream, static_cast<std::uint64_t>(n));
    chosen.insert(
        static_cast<std::int64_t>((std::uint64_t{block[0]} << 32 | block[1]) % static_cast<std::uint64_t>(size)));
  }
  return chosen;
}

void add_before(const TensorView& before, RowValues& values, bool rounds) {
  if (!before || values.rows.empty()) return;
  const RowValues initial = read_rows(before, values.rows);
  for (std::size_t n = 0; n < values.values.size(); ++n) {
    values.values[n] += initial.values[n];
    if (rounds) values.values[n] = static_cast<float>(values.values[n]);
  }
}

}  // namespace

std::vector<RowIndex> every_query(const AttentionProblem& p) {
  std::vector<RowIndex> rows;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    for (std::int64_t h = 0; h < p.heads_q; ++h) {
      for (std::int64_t i = 0; i < p.len_q; ++i) rows.push_back({b, h, i});
    }
  }
  return rows;
}

void round_to(DType type, RowValues& values) {
  constexpr std::int64_t kBlock = std::int64_t{1} << 14;
  for_each_block(std::ssize(values.values), kBlock, 8.0 * static_cast<double>(values.values.size()),
                 [&](std::int64_t first, std::int64_t count) {
                   double* const begin = values.values.data() + first;
                   std::transform(begin, begin + count, begin,
                                  [type](double value) { return rounded_to(type, static_cast<float>(value)); });
                 });
}

void add_before(const Gradients& before, BackwardValues& values, bool rounds) {
  add_before(before.dq, values.dq, rounds);
  add_before(before.dk, values.dk, rounds);
  add_before(before.dv, values.dv, rounds);
}

Sample sample_of(const AttentionProblem& p, std::uint64_t seed) {
  Sample sample;
  const std::int64_t group = p.heads_q == 0 ? 1 : p.heads_q / p.heads_kv, key_heads = p.batch * p.heads_kv;
  const std::int64_t elements =
      p.batch * (p.heads_q * p.len_q * std::max(p.dim_qk, p.dim_v) + p.heads_kv * p.len_k * (p.dim_qk + p.dim_v));
  sample.complete = flops(p) <= kCompleteFlops && elements <= kCompleteElements;
  std::set<std::int64_t> chosen;  // indices of (batch, key head)
  std::uint64_t n = 0;
  const std::int64_t wanted = sample.complete ? key_heads : std::min(key_heads, kSampledHeads);
  if (wanted > 0) chosen = {0, key_heads - 1};
  if (sample.complete) {
    for (std::int64_t head = 0; head < key_heads; ++head) chosen.insert(head);
  }
  while (static_cast<std::int64_t>(chosen.size()) < wanted)
    chosen.insert(static_cast<std::int64_t>(core::philox(seed, 50, n++)[0]) % key_heads);
  const double key_cost =
      2.0 * static_cast<double>(group) * static_cast<double>(p.len_q) * static_cast<double>(p.dim_qk + p.dim_v);
  const auto affordable = static_cast<std::int64_t>(kKeyMultiplications / std::max(key_cost, 1.0));
  const std::int64_t heads = std::max<std::int64_t>(wanted, 1), rows_each = (kSampledRows + heads - 1) / heads;
  const std::int64_t keys_each = std::clamp<std::int64_t>(affordable / heads, 4, rows_each);
  for (const std::int64_t at : chosen) {
    const std::int64_t batch = at / p.heads_kv, key_head = at % p.heads_kv;
    const auto stream = static_cast<std::uint64_t>(60 + at);
    const std::int64_t picked = key_head * group + static_cast<std::int64_t>(core::philox(seed, stream, 0)[2]) % group;
    for (std::int64_t h = key_head * group; h < (key_head + 1) * group && h < p.heads_q; ++h) {
      if (sample.complete) {
        for (std::int64_t i = 0; i < p.len_q; ++i) sample.queries.push_back({batch, h, i});
      } else if (h == picked) {
        for (const std::int64_t i : sampled_indices(p.len_q, rows_each, seed, stream))
          sample.queries.push_back({batch, h, i});
      }
    }
    if (sample.complete) {
      for (std::int64_t j = 0; j < p.len_k; ++j) sample.keys.push_back({batch, key_head, j});
    } else {
      for (const std::int64_t j : sampled_indices(p.len_k, keys_each, seed, stream + 1000))
        sample.keys.push_back({batch, key_head, j});
    }
  }
  return sample;
}

ForwardValues evaluate_reference(const AttentionProblem& p, const ForwardTensors& tensors, const Sample& sample) {
  return evaluate_forward(p, sample, [&](const HeadIndex& at) { return ReferenceHead(p, tensors, at); });
}

BackwardValues evaluate_reference(const AttentionProblem& p, const BackwardTensors& tensors, const Sample& sample) {
  return evaluate_backward(p, sample, [&](const HeadIndex& at) { return ReferenceHead(p, tensors, at); });
}

ForwardValues evaluate_plain(const AttentionProblem& p, const ForwardTensors& tensors, const Sample& sample,
                             PlainVariant variant) {
  ForwardValues values = evaluate_forward(
      p, sample, [&](const HeadIndex& at) { return PlainHead(p, tensors, at.first, at.second, variant); });
  round_to(p.result_dtype, values.out);
  round_to(DType::fp32, values.lse);
  return values;
}

BackwardValues evaluate_plain(const AttentionProblem& p, const BackwardTensors& tensors, const Sample& sample,
                              PlainVariant variant, const Gradients& before) {
  BackwardValues values = evaluate_backward(
      p, sample, [&](const HeadIndex& at) { return PlainHead(p, tensors, at.first, at.second, variant); },
      variant.fused ? before : Gradients{});
  for (RowValues* gradient : {&values.dq, &values.dk, &values.dv}) round_to(p.result_dtype, *gradient);
  if (!variant.fused) add_before(before, values, true);
  return values;
}

}  // namespace fovea::verification
