// Backward, pass by pass, all enqueued on the caller's stream: dv from P; for each strip dS, piece by piece, and its
// rows of dq; then dk from all of dS.
#include "baselines/cuda/backward.h"

#include "baselines/cuda/passes.h"
#include "baselines/saved_state.h"

namespace fovea::cuda::baselines {
namespace {

using fovea::baselines::Form;

struct Run {
  const Plan& plan;
  const Call& call;
  const BackwardTensors& tensors;
  void* workspace;
  ConstMatrices q, k, v, dout;
  Matrices probabilities, gradients;  // P, dS

  float* floats(const Array& array) const { return static_cast<float*>(array.in(workspace)); }
};

// The work of one piece.
struct PieceRun {
  const Run& run;
  const StripPlan& planned;
  const Piece& piece;
  Call call{piece.problem, run.call.stream, run.call.products};

  template <class Pointer>
  BasicMatrices<Pointer> of_queries(const BasicMatrices<Pointer>& m) const {
    return m.from(piece.batch, piece.head_q).within(piece.query);
  }
  ConstMatrices of_keys(const ConstMatrices& m) const { return m.from(piece.batch, piece.head_kv); }
  Matrices scores(const Matrices& result) const {
    return scores_of(piece, run.floats(run.plan.backward.scores), of_queries(result));
  }
  RowPass pass(const Matrices& scores, bool masked, double factor) const {
    return pass_over(piece, scores, masked, factor);
  }
  // Enqueues the step that writes `result`, in the inputs' type.
  void finish(Step step, RowPass pass, const Matrices& result) const {
    pass.to = row_matrix(of_queries(result));
    enqueue(call, step, pass, piece.problem.dtype, piece.problem.dtype);
  }
};

void find_probabilities(const PieceRun& part) {
  const Run& run = part.run;
  const Matrices scores = part.scores(run.probabilities);
  multiply_by_keys(part.call, part.of_queries(run.q), part.of_keys(run.k), part.piece.problem.dim_qk, scores);
  RowPass pass = part.pass(scores, true, part.piece.problem.scale);
  pass.given_lse = lse_of(part.piece, run.tensors.lse);
  part.finish(Step::exponentials, pass, run.probabilities);
}

// With saved P, delta is rowsum(P * dP), as frameworks compute it. It is divided by rowsum(P), because P rounded to 16
// bits does not sum to 1 well enough.
bool delta_by_mean(const Run& run) { return run.call.problem.saved_state && !run.tensors.delta; }

// Computes dP, and dS from it.
void differentiate_scores(const PieceRun& part) {
  const Run& run = part.run;
  const AttentionProblem& p = part.piece.problem;
  const bool naive = run.plan.form == Form::naive;
  const Matrices gradients = part.scores(run.gradients);
  for (const Strip& half : part.planned.halves) {
    const AttentionProblem rows = rows_of(p, half);
    const std::int64_t first = half.query - part.planned.strip.query;
    multiply_by_keys({rows, part.call.stream, part.call.products}, part.of_queries(run.dout).within(first),
                     part.of_keys(run.v), p.dim_v, gradients.within(first));
  }
  RowPass pass = part.pass(gradients, !naive, run.plan.form == Form::fused ? p.scale : 1.0);
  pass.probabilities = row_matrix(ConstMatrices(part.of_queries(run.probabilities)));
  pass.delta = delta_by_mean(run) ? nullptr : run.floats(run.plan.backward.delta) + part.piece.row;
  pass.delta_stride = run.call.problem.len_q;
  if (!naive) return part.finish(Step::softmax_gradient, pass, run.gradients);
  enqueue(part.call, Step::softmax_gradient, pass, p.dtype, DType::fp32);
  part.finish(Step::scale, part.pass(gradients, false, p.scale), run.gradients);
}

// view = factor * sum of pair_matrix^T rows over the query heads of a key head's group
void key_gradient(const Run& run, const MutableTensorView& view, float* sums, const ConstMatrices& pair_matrix,
                  const ConstMatrices& rows, float factor) {
  const AttentionProblem& p = run.call.problem;
  const std::int64_t dim = view.sizes[3];
  const bool separately = adds_members_separately(p, rows);
  const Matrices to = separately ? dense(sums, DType::fp32, view.sizes) : result(view);
  for (const StripPlan& planned : run.plan.strips) {
    const Strip& strip = planned.strip;
    const AttentionProblem part = columns_of(p, strip);
    if (part.len_k == 0) continue;
    sum_over_queries({part, run.call.stream, run.call.products}, factor,
                     pair_matrix.within(strip.query, strip.keys_before), rows.within(strip.query), dim,
                     to.within(strip.keys_before), !separately && p.accumulate);
  }
  if (separately) copy(run.call, to, view, p.accumulate);
}

void query_gradient(const Run& run, const Strip& strip, float factor) {
  const AttentionProblem& p = run.call.problem;
  const AttentionProblem part = rows_of(p, strip);
  sum_over_keys({part, run.call.stream, run.call.products}, factor, run.gradients.within(strip.query), run.k, p.dim_qk,
                result(run.tensors.dq).within(strip.query), p.accumulate);
}

void answer_without_pairs(const Call& call, const BackwardTensors& tensors) {
  if (call.problem.accumulate) return;
  for (const MutableTensorView& gradient : {tensors.dq, tensors.dk, tensors.dv})
    if (gradient) fill(call, gradient, 0.0f);
}

}  // namespace

void backward(const Plan& plan, const BackwardTensors& tensors, const core::RunContext& context) {
  const AttentionProblem& p = plan.problem;
  const BackwardLayout& arrays = plan.backward;
  const auto at = [&](const Array& array) { return array.in(context.workspace); };
  const Call call{p, context.stream, {at(arrays.products), arrays.products.bytes}};
  if (p.batch * p.heads_q * p.len_q * p.len_k == 0) return answer_without_pairs(call, tensors);
  void* const probabilities =
      p.saved_state ? fovea::baselines::saved_probabilities(tensors.saved) : at(arrays.probabilities);
  const Run run{plan,
                call,
                tensors,
                context.workspace,
                operand(call, tensors.q, at(arrays.q)),
                operand(call, tensors.k, at(arrays.k)),
                operand(call, tensors.v, at(arrays.v)),
                operand(call, tensors.dout, at(arrays.dout)),
                pairs(p, probabilities, p.dtype),
                pairs(p, at(arrays.gradients), p.dtype)};
  if (!p.saved_state)
    for (const StripPlan& strip : plan.strips)
      for (const Piece& piece : pieces_of(p, strip)) find_probabilities({run, strip, piece});
  if (p.wants_dv) key_gradient(run, tensors.dv, run.floats(arrays.dv), run.probabilities, run.dout, 1.0f);
  if (!p.wants_dq && !p.wants_dk) return;
  if (!delta_by_mean(run)) enqueue_delta(call, tensors.out, tensors.dout, tensors.delta, run.floats(arrays.delta));
  // In the vectorized form the products scale.
  const float factor = plan.form == Form::vectorized ? static_cast<float>(p.scale) : 1.0f;
  for (const StripPlan& strip : plan.strips) {
    for (const Piece& piece : pieces_of(p, strip)) differentiate_scores({run, strip, piece});
    if (p.wants_dq) query_gradient(run, strip.strip, factor);
  }
  if (p.wants_dk) key_gradient(run, tensors.dk, run.floats(arrays.dk), run.gradients, run.q, factor);
}

}  // namespace fovea::cuda::baselines
