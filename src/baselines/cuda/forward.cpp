// Forward, pass by pass, all enqueued on the caller's stream: for each strip P, piece by
// piece, then P V.
#include "baselines/cuda/forward.h"

#include <limits>
#include <span>

#include "baselines/cuda/passes.h"
#include "baselines/saved_state.h"

namespace fovea::cuda::baselines {
namespace {

using fovea::baselines::Form;

struct Run {
  const Piece& piece;
  Call call;  // of the piece
  Matrices scores, probabilities;
  LogSumExp* log_sum_exps;
  TensorRef lse;

  RowPass pass(bool masked, double factor) const {
    RowPass result = pass_over(piece, scores, masked, factor);
    result.lse = lse;
    result.log_sum_exps = log_sum_exps;
    return result;
  }

  // Enqueues the step that writes the probabilities.
  void finish(Step step, RowPass pass) const {
    pass.to = row_matrix(probabilities);
    enqueue(call, step, pass, call.problem.dtype, call.problem.dtype);
  }
};

void by_log_sum_exp(const Run& run, const RowPass& pass) {
  enqueue(run.call, Step::log_sum_exp, pass, DType::fp32, DType::fp32);
  run.finish(Step::exponentials, pass);
}

void softmax(const Run& run, const RowPass& pass) {
  if (run.call.problem.len_k > kLongestSoftmax) return by_log_sum_exp(run, pass);
  run.finish(Step::softmax, pass);
}

void naive_passes(const Run& run) {
  enqueue(run.call, Step::scale, run.pass(false, run.call.problem.scale), DType::fp32, DType::fp32);
  if (run.call.problem.mask != Mask::none) enqueue(run.call, Step::mask, run.pass(true, 1.0), DType::fp32, DType::fp32);
  softmax(run, run.pass(false, 1.0));
}

void find_probabilities(Form form, const Run& run) {
  if (form == Form::naive) naive_passes(run);
  if (form == Form::vectorized) by_log_sum_exp(run, run.pass(true, run.call.problem.scale));
  if (form == Form::fused) softmax(run, run.pass(true, run.call.problem.scale));
}

}  // namespace

void forward(const Plan& plan, const ForwardTensors& tensors, const core::RunContext& context) {
  const AttentionProblem& p = plan.problem;
  if (p.batch * p.heads_q * p.len_q == 0) return;
  const ForwardLayout& arrays = plan.forward;
  const auto at = [&](const Array& array) { return array.in(context.workspace); };
  const Buffer products{at(arrays.products), arrays.products.bytes};
  const Call call{p, context.stream, products};
  if (p.len_k == 0) {
    fill(call, tensors.out, 0.0f);
    if (tensors.lse) fill(call, tensors.lse, -std::numeric_limits<float>::infinity());
    return;
  }
  const ConstMatrices q = operand(call, tensors.q, at(arrays.q)), k = operand(call, tensors.k, at(arrays.k)),
                      v = operand(call, tensors.v, at(arrays.v));
  const Matrices probabilities = pairs(
      p, p.saved_state ? fovea::baselines::saved_probabilities(tensors.saved) : at(arrays.probabilities), p.dtype);
  for (const StripPlan& planned : plan.strips) {
    const Strip& strip = planned.strip;
    for (const Piece& piece : pieces_of(p, planned)) {
      const Matrices piece_probabilities = probabilities.from(piece.batch, piece.head_q).within(strip.query);
      const Run run{piece,
                    {piece.problem, context.stream, products},
                    scores_of(piece, static_cast<float*>(at(arrays.scores)), piece_probabilities),
                    piece_probabilities,
                    static_cast<LogSumExp*>(at(arrays.log_sum_exps)),
                    lse_of(piece, tensors.lse)};
      for (const Strip& part : planned.halves) {
        const AttentionProblem rows = rows_of(piece.problem, part);
        multiply_by_keys({rows, context.stream, products}, q.from(piece.batch, piece.head_q).within(part.query),
                         k.from(piece.batch, piece.head_kv), p.dim_qk, run.scores.within(part.query - strip.query));
      }
      find_probabilities(plan.form, run);
    }
    // In 16 bits P V is not halved: reading the masked zeros takes less time than another launch.
    const std::span<const Strip> whole(&strip, 1);
    for (const Strip& part : p.dtype == DType::fp32 ? std::span<const Strip>(planned.halves) : whole) {
      const AttentionProblem rows = rows_of(p, part);
      sum_over_keys({rows, context.stream, products}, 1.0f, probabilities.within(part.query), v, p.dim_v,
                    result(tensors.out).within(part.query), false);
    }
  }
}

}  // namespace fovea::cuda::baselines
