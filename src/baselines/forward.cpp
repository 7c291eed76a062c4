// Forward, pass by pass; each pass runs over all rows before the next one starts.
#include "baselines/forward.h"

#include <limits>

#include "baselines/blocks.h"
#include "baselines/conversions.h"
#include "baselines/operands.h"
#include "baselines/row_passes.h"
#include "baselines/saved_state.h"
#include "baselines/scores.h"
#include "linear/blas/blas.h"

namespace fovea::baselines {
namespace {

struct Run {
  const Plan& plan;
  const ForwardTensors& tensors;
  const core::RunContext& context;
  float* scores;  // the whole matrix
  void* kept;     // 16-bit probabilities for backward; null if the matrix itself is saved, or nothing
  const AttentionProblem& problem = plan.problem;
  const ScoreShape& shape = plan.shape;
  const RowPasses& passes = row_passes();

  std::int64_t heads_per_key_head() const { return problem.heads_q / problem.heads_kv; }

  // One pass over the matrix: calls task(row of scores, its visible keys, block, index of the row).
  template <class Task>
  void pass(Task task) const {
    const AttentionProblem& p = problem;
    for_each_block(context, p.batch, p.heads_q, p.len_q, [&](const RowBlock& block) {
      for (std::int64_t row = block.first; row < block.first + block.rows; ++row)
        task(scores + shape.index(block.batch, block.head, row), shape.visible_keys(row), block, row);
    });
  }

  void finish_row(float* row_of_scores, float lse, const RowBlock& block, std::int64_t row) const {
    if (tensors.lse) static_cast<float*>(tensors.lse.data)[row_index(tensors.lse, block.batch, block.head, row)] = lse;
    if (kept != nullptr)
      narrow_row(kept, problem.dtype, shape.index(block.batch, block.head, row), row_of_scores, problem.len_k);
    else if (problem.dtype == DType::bf16)
      narrow_in_place(DType::bf16, row_of_scores, problem.len_k);
  }

  PairMatrix probabilities() const {
    if (kept != nullptr && problem.dtype == DType::bf16) return {kept, DType::bf16, problem.len_k};
    return shape.pairs_in(scores);
  }
};

void score_product(const Run& run, const Operand& q, const Operand& k) {
  const AttentionProblem& p = run.problem;
  for_each_block(run.context, p.batch, p.heads_q, p.len_q, [&](const RowBlock& block) {
    linear::blas::multiply_fastest(
        {.m = block.rows,
         .n = p.len_k,
         .k = p.dim_qk,
         .a = q.matrix(block.batch, block.head).from(block.first, 0),
         .b = k.matrix(block.batch, block.head / run.heads_per_key_head()).transpose(),
         .c = {run.scores + run.shape.index(block.batch, block.head, block.first), DType::fp32, p.len_k}});
  });
}

void output_product(const Run& run, const Operand& v, const Result& out) {
  const AttentionProblem& p = run.problem;
  const PairMatrix probabilities = run.probabilities();
  for_each_block(run.context, p.batch, p.heads_q, p.len_q, [&](const RowBlock& block) {
    linear::blas::multiply_fastest({.m = block.rows,
                                    .n = p.dim_v,
                                    .k = p.len_k,
                                    .a = run.shape.matrix(probabilities, block.batch, block.head).from(block.first, 0),
                                    .b = v.matrix(block.batch, block.head / run.heads_per_key_head()),
                                    .c = out.rows(block.batch, block.head, block.first)});
  });
}

void naive_passes(const Run& run) {
  const AttentionProblem& p = run.problem;
  const auto factor = static_cast<float>(p.scale);
  run.pass(
      [&](float* scores, VisibleKeys, const RowBlock&, std::int64_t) { run.passes.scale(scores, p.len_k, factor); });
  if (p.mask != Mask::none) {
    run.pass([&](float* scores, VisibleKeys keys, const RowBlock&, std::int64_t) {
      run.passes.hide(scores, p.len_k, keys.begin, keys.end);
    });
  }
  run.pass([&](float* scores, VisibleKeys, const RowBlock& block, std::int64_t row) {
    run.finish_row(scores, run.passes.softmax(scores, p.len_k), block, row);
  });
}

void vectorized_passes(const Run& run, LogSumExp* lse) {
  const AttentionProblem& p = run.problem;
  const auto factor = static_cast<float>(p.scale);
  const auto at = [&](const RowBlock& block, std::int64_t row) {
    return (block.batch * p.heads_q + block.head) * p.len_q + row;
  };
  run.pass([&](float* scores, VisibleKeys keys, const RowBlock& block, std::int64_t row) {
    lse[at(block, row)] = run.passes.log_sum_exp(scores, keys.begin, keys.end, factor);
  });
  run.pass([&](float* scores, VisibleKeys keys, const RowBlock& block, std::int64_t row) {
    run.passes.exponentials(scores, p.len_k, keys.begin, keys.end, factor, lse[at(block, row)]);
    run.finish_row(scores, lse[at(block, row)].value(factor), block, row);
  });
}

void fused_pass(const Run& run) {
  const AttentionProblem& p = run.problem;
  const auto factor = static_cast<float>(p.scale);
  run.pass([&](float* scores, VisibleKeys keys, const RowBlock& block, std::int64_t row) {
    run.finish_row(scores, run.passes.masked_softmax(scores, p.len_k, keys.begin, keys.end, factor), block, row);
  });
}

void answer_without_keys(const AttentionProblem& p, const ForwardTensors& tensors, const core::RunContext& context) {
  fill_zero(context, tensors.out);
  if (!tensors.lse) return;
  for_each_block(context, p.batch, p.heads_q, p.len_q, [&](const RowBlock& block) {
    for (std::int64_t row = block.first; row < block.first + block.rows; ++row) {
      static_cast<float*>(tensors.lse.data)[row_index(tensors.lse, block.batch, block.head, row)] =
          -std::numeric_limits<float>::infinity();
    }
  });
}

}  // namespace

void forward(const Plan& plan, const ForwardTensors& tensors, const core::RunContext& context) {
  const AttentionProblem& p = plan.problem;
  if (p.batch * p.heads_q * p.len_q == 0) return;
  if (p.len_k == 0) return answer_without_keys(p, tensors, context);
  const ForwardLayout& arrays = plan.forward;
  void* const workspace = context.workspace;
  void* saved = p.saved_state ? saved_probabilities(tensors.saved) : nullptr;
  float* const scores = arrays.scores.in(workspace);
  const bool in_place = scores == nullptr;
  const Run run{plan, tensors, context, in_place ? static_cast<float*>(saved) : scores, in_place ? nullptr : saved};
  score_product(run, operand(context, tensors.q, arrays.q.in(workspace)),
                operand(context, tensors.k, arrays.k.in(workspace)));
  if (plan.form == Form::naive) naive_passes(run);
  if (plan.form == Form::vectorized) vectorized_passes(run, reinterpret_cast<LogSumExp*>(arrays.lse.in(workspace)));
  if (plan.form == Form::fused) fused_pass(run);
  const Result out = result(tensors.out, arrays.out.in(workspace), false);
  output_product(run, operand(context, tensors.v, arrays.v.in(workspace)), out);
  deliver(context, out, tensors.out, false);
}

}  // namespace fovea::baselines
