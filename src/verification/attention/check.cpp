// Reference and bound of every tensor of a problem, and the verdict on an answer.
#include "verification/attention/check.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "attention/reference/head.h"
#include "core/float16.h"
#include "verification/attention/evaluation.h"
#include "verification/attention/plain_errors.h"
#include "verification/attention/probability_rounding.h"
#include "verification/attention/score_sizes.h"

namespace fovea::verification {
namespace {

constexpr double kForwardFactor = 2, kBackwardFactor = 3;
constexpr std::int64_t kTileReach = 1024;  // at least the length of every tile

std::vector<std::int64_t> non_finite_rows(const TensorView& view, std::int64_t b, std::int64_t h) {
  std::vector<std::int64_t> rows;
  for (std::int64_t i = 0; view && i < view.sizes[2]; ++i) {
    const std::int64_t first = b * view.strides[0] + h * view.strides[1] + i * view.strides[2];
    bool finite = true;
    for (std::int64_t c = 0; c < view.sizes[3]; ++c)
      finite = finite && std::isfinite(core::load_as_float(view.data, view.dtype, first + c));
    if (!finite) rows.push_back(i);
  }
  return rows;
}

// Tells which squares of kTileReach queries and keys hold a visible pair; searches a square when first asked.
class VisibleSquares {
 public:
  explicit VisibleSquares(const AttentionProblem& problem) : problem_(problem) {}

  // Whether a tile that holds (i, j) may hold a visible pair. It extends at most into the neighbouring squares.
  bool around(std::int64_t i, std::int64_t j) {
    for (std::int64_t row = i / kTileReach - 1; row <= i / kTileReach + 1; ++row) {
      for (std::int64_t column = j / kTileReach - 1; column <= j / kTileReach + 1; ++column) {
        if (row >= 0 && column >= 0 && holds_a_pair(row, column)) return true;
      }
    }
    return false;
  }

 private:
  bool holds_a_pair(std::int64_t row, std::int64_t column) {
    const auto [found, is_new] = known_.try_emplace({row, column}, false);
    if (is_new) found->second = search(row * kTileReach, column * kTileReach);
    return found->second;
  }
  bool search(std::int64_t first_row, std::int64_t first_key) const {
    for (std::int64_t i = first_row; i < std::min(first_row + kTileReach, problem_.len_q); ++i) {
      for (std::int64_t j = first_key; j < std::min(first_key + kTileReach, problem_.len_k); ++j) {
        if (reference::visible(problem_, i, j)) return true;
      }
    }
    return false;
  }

  const AttentionProblem& problem_;
  std::map<std::pair<std::int64_t, std::int64_t>, bool> known_;
};

// Marks rows of out that a hidden, non-finite row of v may poison, because their tile multiplies it by zero.
void mark_forward(const AttentionProblem& p, const ForwardTensors& t, const std::vector<RowIndex>& rows, Bound& bound) {
  bound.may_poison.assign(rows.size(), false);
  RowIndex head{-1, -1, 0};
  std::vector<std::int64_t> values;
  VisibleSquares squares(p);
  for (std::size_t n = 0; n < rows.size(); ++n) {
    const auto& [b, h, i] = rows[n];
    if (b != head.batch || h != head.head) {
      const std::int64_t key_head = h / (p.heads_q / p.heads_kv);
      values = non_finite_rows(t.v, b, key_head);
      if (!values.empty() || !non_finite_rows(t.k, b, key_head).empty() || !non_finite_rows(t.q, b, h).empty())
        bound.poisoned = true;
      head = {b, h, 0};
    }
    bound.may_poison[n] = std::any_of(values.begin(), values.end(), [&p, &squares, row = i](std::int64_t j) {
      return !reference::visible(p, row, j) && squares.around(row, j);
    });
  }
}

// Rows whose scaled scores may overflow fp32: an infinite score poisons the row.
std::vector<bool> overflowing(const AttentionProblem& p, const ForwardTensors& t, const std::vector<RowIndex>& rows) {
  const double overflow = std::nextafter(double{std::numeric_limits<float>::max()}, HUGE_VAL);
  std::vector<bool> marks(rows.size());
  std::optional<ScoreSizes> sizes;
  for (std::size_t n = 0; n < rows.size(); ++n) {
    const auto& [b, h, i] = rows[n];
    if (n == 0 || b != rows[n - 1].batch || h != rows[n - 1].head) sizes.emplace(p, t.q, t.k, b, h);
    marks[n] = sizes->reaches(i, overflow);
  }
  return marks;
}

// Makes values infinite that the type cannot hold.
void overflow(DType type, RowValues& reference) {
  RowValues stored = reference;
  round_to(type, stored);
  for (std::size_t n = 0; n < reference.values.size(); ++n) {
    if (std::isinf(stored.values[n])) reference.values[n] = stored.values[n];
  }
}

// Backward multiplies the zeros of hidden pairs by rows of every input, so one non-finite row may poison its head.
void mark_backward(const AttentionProblem& p, const BackwardTensors& t, bool of_keys, const std::vector<RowIndex>& rows,
                   Bound& bound) {
  const std::int64_t group = p.heads_q == 0 ? 1 : p.heads_q / p.heads_kv;
  bound.may_poison.assign(rows.size(), false);
  RowIndex head{-1, -1, 0};
  bool struck = false;
  for (std::size_t n = 0; n < rows.size(); ++n) {
    if (rows[n].batch != head.batch || rows[n].head != head.head) {
      head = rows[n];
      const std::int64_t key_head = of_keys ? head.head : head.head / group;
      struck =
          !non_finite_rows(t.k, head.batch, key_head).empty() || !non_finite_rows(t.v, head.batch, key_head).empty();
      const std::int64_t first = of_keys ? key_head * group : head.head, end = of_keys ? first + group : first + 1;
      for (std::int64_t h = first; h < end && h < p.heads_q; ++h)
        struck = struck || !non_finite_rows(t.q, head.batch, h).empty() ||
                 !non_finite_rows(t.dout, head.batch, h).empty() || !non_finite_rows(t.out, head.batch, h).empty();
      bound.poisoned = bound.poisoned || struck;
    }
    bound.may_poison[n] = struck;
  }
}

bool sees_a_key(const AttentionProblem& p, std::int64_t i) {
  std::int64_t j = 0;
  while (j < p.len_k && !reference::visible(p, i, j)) ++j;
  return j < p.len_k;
}
bool seen_by_a_query(const AttentionProblem& p, std::int64_t j) {
  std::int64_t i = 0;
  while (i < p.len_q && !reference::visible(p, i, j)) ++i;
  return i < p.len_q;
}

// Marks rows without a visible pair: they must be zero, or the gradient from before.
void mark_exact(const AttentionProblem& p, bool of_keys, const std::vector<RowIndex>& rows, Bound& bound) {
  bound.exact.assign(rows.size(), false);
  for (std::size_t n = 0; n < rows.size(); ++n)
    bound.exact[n] = of_keys ? !seen_by_a_query(p, rows[n].index) : !sees_a_key(p, rows[n].index);
}

// The plain evaluation of a large problem without lse gets the reference's lse, rounded: computing its own would take
// far longer than everything else.
std::vector<float> reference_lse(const AttentionProblem& p, const BackwardTensors& t, const Sample& sample,
                                 const ReferenceEvaluator& evaluator) {
  const std::int64_t group = p.heads_q / p.heads_kv;
  std::set<std::pair<std::int64_t, std::int64_t>> heads;
  for (const RowIndex& row : sample.queries) heads.insert({row.batch, row.head});
  for (const RowIndex& key : sample.keys) {
    for (std::int64_t h = key.head * group; h < (key.head + 1) * group; ++h) heads.insert({key.batch, h});
  }
  Sample all{.queries = {}, .keys = {}, .complete = false};
  for (const auto& [batch, head] : heads) {
    for (std::int64_t i = 0; i < p.len_q; ++i) all.queries.push_back({batch, head, i});
  }
  const ForwardTensors inputs{.q = t.q, .k = t.k, .v = t.v};
  const RowValues lse =
      (evaluator.forward ? evaluator.forward(p, inputs, all) : evaluate_reference(p, inputs, all)).lse;
  std::vector<float> values(static_cast<std::size_t>(p.batch * p.heads_q * p.len_q));
  for (std::size_t n = 0; n < lse.rows.size(); ++n) {
    const auto& [batch, head, i] = lse.rows[n];
    values[static_cast<std::size_t>((batch * p.heads_q + head) * p.len_q + i)] = static_cast<float>(lse.values[n]);
  }
  return values;
}

// Delta of every row from the given out. An implementation that reads its saved state never sees how out was rounded,
// so the sampled rows get theirs from the reference's out.
std::vector<float> deltas_of(const AttentionProblem& p, const BackwardTensors& t, const Sample& sample,
                             const ReferenceEvaluator& evaluator) {
  std::vector<float> deltas(static_cast<std::size_t>(p.batch * p.heads_q * p.len_q));
  const auto write = [&](const RowValues& out) {
    const RowValues dout = read_rows(t.dout, out.rows);
    const auto dim = static_cast<std::size_t>(p.dim_v);
    for (std::size_t n = 0; n < out.rows.size(); ++n) {
      double sum = 0;
      for (std::size_t c = n * dim; c < (n + 1) * dim; ++c) sum += out.values[c] * dout.values[c];
      const auto& [batch, head, i] = out.rows[n];
      deltas[static_cast<std::size_t>((batch * p.heads_q + head) * p.len_q + i)] = static_cast<float>(sum);
    }
  };
  write(read_rows(t.out, every_query(p)));
  const Sample rows{.queries = sample.queries, .keys = {}, .complete = false};
  const ForwardTensors inputs{.q = t.q, .k = t.k, .v = t.v};
  write((evaluator.forward ? evaluator.forward(p, inputs, rows) : evaluate_reference(p, inputs, rows)).out);
  return deltas;
}

}  // namespace

Expectation expect_forward(const AttentionProblem& p, const ForwardTensors& inputs, std::uint64_t seed,
                           const ReferenceEvaluator& evaluator) {
  const Sample sample = sample_of(p, seed);
  ForwardValues reference = !sample.complete && evaluator.forward ? evaluator.forward(p, inputs, sample)
                                                                  : evaluate_reference(p, inputs, sample);
  overflow(p.result_dtype, reference.out);
  overflow(DType::fp32, reference.lse);
  Bound bound{.factor = kForwardFactor, .stored = p.result_dtype};
  mark_forward(p, inputs, sample.queries, bound);
  mark_exact(p, false, sample.queries, bound);
  ExpectedTensor out{"out", reference.out, bound}, lse{"lse", reference.lse, bound};
  out.bound.derived = errors_of_one_rounding(p, inputs, reference.out);
  lse.bound.is_lse = true;
  lse.bound.may_poison = overflowing(p, inputs, sample.queries);
  for (std::size_t n = 0; n < sample.queries.size(); ++n)
    out.bound.may_poison[n] = out.bound.may_poison[n] || lse.bound.may_poison[n];
  Expectation expected{.sampled = !sample.complete, .tensors = {std::move(out), std::move(lse)}};
  measure_plain(p, inputs, sample, expected);
  return expected;
}

Expectation expect_backward(const AttentionProblem& p, const BackwardTensors& given, std::uint64_t seed,
                            const Gradients& before, const ReferenceEvaluator& evaluator) {
  const Sample drawn = sample_of(p, seed), sample = known_to_backward(p, given, drawn);
  BackwardTensors inputs = given;
  std::vector<float> deltas;
  if (p.saved_state && given.out && !sample.complete && p.heads_q > 0) {
    deltas = deltas_of(p, given, sample, evaluator);
    inputs.delta = contiguous(deltas.data(), {p.batch, p.heads_q, p.len_q, 1});
    inputs.out = {};
  }
  BackwardValues reference = !sample.complete && evaluator.backward ? evaluator.backward(p, inputs, sample)
                                                                    : evaluate_reference(p, inputs, sample);
  add_before(before, reference, false);
  for (RowValues* gradient : {&reference.dq, &reference.dk, &reference.dv}) overflow(p.result_dtype, *gradient);
  Expectation expected{.sampled = !sample.complete, .of_outputs = !sample.complete};
  const bool unjudged = (p.wants_dq && sample.queries.empty() && !drawn.queries.empty()) ||
                        ((p.wants_dk || p.wants_dv) && sample.keys.empty() && !drawn.keys.empty());
  if (unjudged) expected.unjudged = kUnjudged;
  const auto add = [&](const char* name, const RowValues& values, bool of_keys) {
    Bound bound{.factor = kBackwardFactor, .stored = p.result_dtype};
    mark_backward(p, inputs, of_keys, values.rows, bound);
    mark_exact(p, of_keys, values.rows, bound);
    expected.tensors.push_back({name, values, std::move(bound)});
  };
  if (p.wants_dq) add("dq", reference.dq, false);
  if (p.wants_dk) add("dk", reference.dk, true);
  if (p.wants_dv) add("dv", reference.dv, true);
  std::vector<float> lse;
  BackwardTensors plain_inputs = inputs;
  if (!sample.complete && !inputs.lse && p.heads_q > 0) {
    lse = reference_lse(p, inputs, sample, evaluator);
    plain_inputs.lse = contiguous(lse.data(), {p.batch, p.heads_q, p.len_q, 1});
  }
  measure_plain(p, plain_inputs, sample, before, std::move(lse), expected);
  return expected;
}

Verdict compare(const Expectation& expected, const ForwardTensors& results) {
  TensorSet set;
  set.add("out", results.out);
  if (results.lse) set.add("lse", results.lse);
  return compare(expected, set);
}

Verdict compare(const Expectation& expected, const BackwardTensors& results) {
  TensorSet set;
  set.add("dq", results.dq);
  set.add("dk", results.dk);
  set.add("dv", results.dv);
  return compare(expected, set);
}

Verdict check_forward(const AttentionProblem& problem, const ForwardTensors& tensors, std::uint64_t seed) {
  return compare(expect_forward(problem, tensors, seed), tensors);
}

Verdict check_backward(const AttentionProblem& problem, const BackwardTensors& tensors, std::uint64_t seed) {
  AttentionProblem asked = problem;
  asked.pass = Pass::backward;
  asked.wants_dq = bool(tensors.dq);
  asked.wants_dk = bool(tensors.dk);
  asked.wants_dv = bool(tensors.dv);
  BackwardTensors inputs = tensors;
  if (tensors.saved.data != nullptr && sample_of(asked, seed).complete) inputs.out = inputs.lse = inputs.delta = {};
  return compare(expect_backward(asked, inputs, seed), tensors);
}

}  // namespace fovea::verification
