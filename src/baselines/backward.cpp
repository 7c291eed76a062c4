// Backward, pass by pass: dv from P, then dq and dk from dS.
#include "baselines/backward.h"

#include <algorithm>
#include <vector>

#include "baselines/blocks.h"
#include "baselines/conversions.h"
#include "baselines/operands.h"
#include "baselines/row_passes.h"
#include "baselines/saved_state.h"
#include "baselines/scores.h"
#include "linear/blas/blas.h"

namespace fovea::baselines {
namespace {

constexpr std::int64_t kKeysPerTask = 256;  // rows of dk or dv that one task computes

struct Run {
  const Plan& plan;
  const BackwardTensors& tensors;
  const core::RunContext& context;
  Operand q, k, v, dout;
  PairMatrix probabilities{};
  const AttentionProblem& problem = plan.problem;
  const ScoreShape& shape = plan.shape;
  const RowPasses& passes = row_passes();

  float* gradients() const { return plan.backward.gradients.in(context.workspace); }
  float* wide_probabilities() const { return plan.backward.probabilities.in(context.workspace); }
  float* delta() const { return plan.backward.delta.in(context.workspace); }
  std::int64_t group() const { return problem.heads_q / problem.heads_kv; }

  // Calls task(block) for all blocks of query rows of every head.
  template <class Task>
  void pass(Task task) const {
    for_each_block(context, problem.batch, problem.heads_q, problem.len_q, task);
  }
};

// Computes the block's rows of to = a b^T; a has one row per query, b one per key.
void query_key_product(const Run& run, const RowBlock& block, const Operand& a, const Operand& b, std::int64_t dim,
                       float* to) {
  const AttentionProblem& p = run.problem;
  linear::blas::multiply_fastest(
      {.m = block.rows,
       .n = p.len_k,
       .k = dim,
       .a = a.matrix(block.batch, block.head).from(block.first, 0),
       .b = b.matrix(block.batch, block.head / run.group()).transpose(),
       .c = {to + run.shape.index(block.batch, block.head, block.first), DType::fp32, p.len_k}});
}

void recompute_probabilities(const Run& run) {
  const AttentionProblem& p = run.problem;
  run.pass(
      [&](const RowBlock& block) { query_key_product(run, block, run.q, run.k, p.dim_qk, run.wide_probabilities()); });
  const TensorView& lse = run.tensors.lse;
  run.pass([&](const RowBlock& block) {
    for (std::int64_t row = block.first; row < block.first + block.rows; ++row) {
      const VisibleKeys keys = run.shape.visible_keys(row);
      float* scores = run.wide_probabilities() + run.shape.index(block.batch, block.head, row);
      run.passes.exponentials(
          scores, p.len_k, keys.begin, keys.end, static_cast<float>(p.scale),
          {0.0f, static_cast<const float*>(lse.data)[row_index(lse, block.batch, block.head, row)]});
      if (p.dtype == DType::bf16) narrow_in_place(DType::bf16, scores, p.len_k);
    }
  });
}

PairMatrix find_probabilities(const Run& run) {
  const AttentionProblem& p = run.problem;
  if (!p.saved_state) {
    recompute_probabilities(run);
    return run.shape.pairs_in(run.wide_probabilities());
  }
  const void* saved = saved_probabilities(run.tensors.saved);
  if (p.dtype != DType::fp16) return {saved, p.dtype, p.len_k};
  run.pass([&](const RowBlock& block) {
    const std::int64_t first = run.shape.index(block.batch, block.head, block.first);
    widen_row(run.wide_probabilities() + first, p.dtype, saved, first, block.rows * p.len_k);
  });
  return run.shape.pairs_in(run.wide_probabilities());
}

// Computes delta = rowsum(dout * out), unless it was given. Saved probabilities need no delta: see
// differentiate_softmax.
void find_delta(const Run& run) {
  const AttentionProblem& p = run.problem;
  const TensorView &given = run.tensors.delta, &out = run.tensors.out;
  if (p.saved_state && !given) return;
  run.pass([&](const RowBlock& block) {
    std::vector<float> wide_out(static_cast<std::size_t>(p.dim_v)), wide_dout(wide_out);
    float* delta = run.delta() + (block.batch * p.heads_q + block.head) * p.len_q;
    for (std::int64_t row = block.first; row < block.first + block.rows; ++row) {
      if (given) {
        delta[row] = static_cast<const float*>(given.data)[row_index(given, block.batch, block.head, row)];
        continue;
      }
      widen_row(wide_out.data(), out.dtype, out.data, row_index(out, block.batch, block.head, row), p.dim_v);
      const linear::MatrixBatch dout = run.dout.matrix(block.batch, block.head).from(row, 0);
      widen_row(wide_dout.data(), dout.dtype, dout.data, 0, p.dim_v);
      delta[row] = run.passes.dot(wide_dout.data(), wide_out.data(), p.dim_v);
    }
  });
}

// One row of probabilities as floats, converted into `memory` if they have another type.
const float* wide_row(const linear::MatrixBatch& row, std::vector<float>& memory) {
  if (row.dtype == DType::fp32) return static_cast<const float*>(row.data);
  widen_row(memory.data(), row.dtype, row.data, 0, std::ssize(memory));
  return memory.data();
}

// Turns dP into dS, in place. With saved P, delta is rowsum(P * dP), as frameworks compute it. It is divided by
// rowsum(P), because P rounded to 16 bits does not sum to 1 well enough.
void differentiate_softmax(const Run& run, Form form, const RowBlock& block) {
  const AttentionProblem& p = run.problem;
  const bool by_mean = p.saved_state && !run.tensors.delta;
  const auto scale = static_cast<float>(p.scale);
  std::vector<float> wide(static_cast<std::size_t>(run.probabilities.dtype == DType::fp32 ? 0 : p.len_k));
  const float* delta = run.delta() + (block.batch * p.heads_q + block.head) * p.len_q;
  const linear::MatrixBatch all = run.shape.matrix(run.probabilities, block.batch, block.head);
  for (std::int64_t row = block.first; row < block.first + block.rows; ++row) {
    float* gradients = run.gradients() + run.shape.index(block.batch, block.head, row);
    const float* probabilities = wide_row(all.from(row, 0), wide);
    // The fused form does not read masked pairs, whose gradients are zero. The others process all pairs, as frameworks
    // do.
    const VisibleKeys read = form == Form::fused ? run.shape.visible_keys(row) : VisibleKeys{0, p.len_k};
    const float mean =
        by_mean ? run.passes.weighted_mean(gradients + read.begin, probabilities + read.begin, read.end - read.begin)
                : delta[row];
    run.passes.softmax_gradient(gradients + read.begin, probabilities + read.begin, read.end - read.begin, mean,
                                form == Form::fused ? scale : 1.0f);
    std::fill(gradients, gradients + read.begin, 0.0f);
    std::fill(gradients + read.end, gradients + p.len_k, 0.0f);
    if (p.dtype == DType::bf16 && form != Form::naive) narrow_in_place(p.dtype, gradients, p.len_k);
  }
}

// The naive form scales in a separate pass.
void scale_gradients(const Run& run, const RowBlock& block) {
  const AttentionProblem& p = run.problem;
  for (std::int64_t row = block.first; row < block.first + block.rows; ++row) {
    float* gradients = run.gradients() + run.shape.index(block.batch, block.head, row);
    run.passes.scale(gradients, p.len_k, static_cast<float>(p.scale));
    if (p.dtype == DType::bf16) narrow_in_place(p.dtype, gradients, p.len_k);
  }
}

void score_gradients(const Run& run, Form form) {
  const auto product = [&run](const RowBlock& block) {
    query_key_product(run, block, run.dout, run.v, run.problem.dim_v, run.gradients());
  };
  const auto softmax = [&run, form](const RowBlock& block) { differentiate_softmax(run, form, block); };
  if (form == Form::fused) {  // runs the softmax while the product's rows are in the cache
    run.pass([&](const RowBlock& block) {
      product(block);
      softmax(block);
    });
    return;
  }
  run.pass(product);
  run.pass(softmax);
  if (form == Form::naive) run.pass([&run](const RowBlock& block) { scale_gradients(run, block); });
}

// dq = factor * gradients k
void query_gradient(const Run& run, float factor) {
  const AttentionProblem& p = run.problem;
  const PairMatrix gradients = run.shape.pairs_in(run.gradients());
  const Result dq = result(run.tensors.dq, run.plan.backward.dq.in(run.context.workspace), p.accumulate);
  run.pass([&](const RowBlock& block) {
    linear::blas::multiply_fastest({.m = block.rows,
                                    .n = p.dim_qk,
                                    .k = p.len_k,
                                    .alpha = factor,
                                    .a = run.shape.matrix(gradients, block.batch, block.head).from(block.first, 0),
                                    .b = run.k.matrix(block.batch, block.head / run.group()),
                                    .c = dq.rows(block.batch, block.head, block.first)});
  });
  deliver(run.context, dq, run.tensors.dq, p.accumulate);
}

// view = factor * sum of pair_matrix^T rows over the query heads of a key head's group
void key_gradient(const Run& run, const MutableTensorView& view, float* scratch, const PairMatrix& pair_matrix,
                  const Operand& rows, float factor) {
  const AttentionProblem& p = run.problem;
  const Result to = result(view, scratch, p.accumulate);
  const std::int64_t blocks = (p.len_k + kKeysPerTask - 1) / kKeysPerTask;
  run_tasks(run.context, p.batch * p.heads_kv * blocks, [&](std::int64_t index) {
    const std::int64_t plane = index / blocks, first = index % blocks * kKeysPerTask;
    const std::int64_t batch = plane / p.heads_kv, head = plane % p.heads_kv;
    for (std::int64_t member = 0; member < run.group(); ++member) {
      const std::int64_t query_head = head * run.group() + member;
      linear::blas::multiply_fastest({.m = std::min(kKeysPerTask, p.len_k - first),
                                      .n = view.sizes[3],
                                      .k = p.len_q,
                                      .alpha = factor,
                                      .a = run.shape.matrix(pair_matrix, batch, query_head).from(0, first).transpose(),
                                      .b = rows.matrix(batch, query_head),
                                      .beta = member == 0 ? 0.0f : 1.0f,
                                      .c = to.rows(batch, head, first)});
    }
  });
  deliver(run.context, to, view, p.accumulate);
}

void answer_without_pairs(const AttentionProblem& p, const BackwardTensors& tensors, const core::RunContext& context) {
  if (p.accumulate) return;
  for (const MutableTensorView& gradient : {tensors.dq, tensors.dk, tensors.dv})
    if (gradient) fill_zero(context, gradient);
}

}  // namespace

void backward(const Plan& plan, const BackwardTensors& tensors, const core::RunContext& context) {
  const AttentionProblem& p = plan.problem;
  if (p.batch * p.heads_q * p.len_q * p.len_k == 0) return answer_without_pairs(p, tensors, context);
  const BackwardLayout& arrays = plan.backward;
  void* const workspace = context.workspace;
  Run run{plan,
          tensors,
          context,
          operand(context, tensors.q, arrays.q.in(workspace)),
          operand(context, tensors.k, arrays.k.in(workspace)),
          operand(context, tensors.v, arrays.v.in(workspace)),
          operand(context, tensors.dout, arrays.dout.in(workspace))};
  run.probabilities = find_probabilities(run);
  if (p.wants_dv) key_gradient(run, tensors.dv, arrays.dv.in(workspace), run.probabilities, run.dout, 1.0f);
  if (!p.wants_dq && !p.wants_dk) return;
  find_delta(run);
  score_gradients(run, plan.form);
  // In the vectorized form the products scale.
  const float factor = plan.form == Form::vectorized ? static_cast<float>(p.scale) : 1.0f;
  if (p.wants_dq) query_gradient(run, factor);
  if (p.wants_dk)
    key_gradient(run, tensors.dk, arrays.dk.in(workspace), run.shape.pairs_in(run.gradients()), run.q, factor);
}

}  // namespace fovea::baselines
