// Backward, pass by pass, all enqueued on the caller's stream: dv from the probabilities, then dq and dk from the
// gradient of the scores.
#include "baselines/cuda/backward.h"

#include "baselines/cuda/memory_plan.h"
#include "baselines/cuda/passes.h"
#include "baselines/saved_state.h"

namespace fovea::cuda::baselines {
namespace {

using fovea::baselines::Form;

struct Run {
  const Call& call;
  const BackwardTensors& tensors;
  BackwardMemory memory;
  Matrices q, k, v, dout;
  Matrices probabilities{};

  Matrices scores(const float* data) const {
    const AttentionProblem& p = call.problem;
    return dense(data, DType::fp32, {p.batch, p.heads_q, p.len_q, p.len_k});
  }

  // What passes left of scores: in the type of the inputs, 16 bits at the beginnings of their fp32 rows.
  Matrices narrow(const float* data) const {
    const AttentionProblem& p = call.problem;
    return dense(data, p.dtype, {p.batch, p.heads_q, p.len_q, p.dtype == DType::fp32 ? p.len_k : 2 * p.len_k});
  }
};

void find_probabilities(Run& run) {
  const AttentionProblem& p = run.call.problem;
  if (p.saved_state) {
    run.probabilities = dense(fovea::baselines::saved_probabilities(run.tensors.saved), p.dtype,
                              {p.batch, p.heads_q, p.len_q, p.len_k});
    return;
  }
  multiply_by_keys(run.call, run.q, run.k, p.dim_qk, run.scores(run.memory.probabilities));
  RowPass pass = narrowed(p, pass_over(p, run.memory.probabilities, true, p.scale), nullptr);
  pass.lse = ref(run.tensors.lse);
  enqueue(run.call, Step::exponentials, pass, p.dtype, p.dtype);
  run.probabilities = run.narrow(run.memory.probabilities);
}

// From the gradient of the probabilities to that of the scores, in place. With saved probabilities delta is their mean
// of the gradients, as frameworks compute it, here divided by their sum: rounded to 16 bits, they miss 1 by too much.
void differentiate_softmax(const Run& run, Form form) {
  const AttentionProblem& p = run.call.problem;
  const bool naive = form == Form::naive, by_mean = p.saved_state && !run.tensors.delta;
  if (!by_mean) enqueue_delta(run.call, run.tensors.out, run.tensors.dout, run.tensors.delta, run.memory.delta);
  RowPass pass = pass_over(p, run.memory.gradients, !naive, form == Form::fused ? p.scale : 1.0);
  pass.weights = run.probabilities.data;
  pass.weights_stride = run.probabilities.row;
  pass.delta = by_mean ? nullptr : run.memory.delta;
  if (!naive) return enqueue(run.call, Step::differentiate, narrowed(p, pass, nullptr), p.dtype, p.dtype);
  enqueue(run.call, Step::differentiate, pass, p.dtype, DType::fp32);
  const RowPass scale = narrowed(p, pass_over(p, run.memory.gradients, false, p.scale), nullptr);
  enqueue(run.call, Step::scale, scale, p.dtype, p.dtype);
}

// view = factor * sum over the heads of a key head's group of weights^T rows
void key_gradient(const Run& run, const MutableTensorView& view, float* sums, const Matrices& weights,
                  const Matrices& rows, float factor) {
  const AttentionProblem& p = run.call.problem;
  const std::int64_t dim = view.sizes[3];
  if (!adds_members_apart(p, rows))
    return sum_over_queries(run.call, factor, weights, rows, dim, result(view), p.accumulate);
  const Matrices to = dense(sums, DType::fp32, view.sizes);
  sum_over_queries(run.call, factor, weights, rows, dim, to, false);
  copy(run.call, to, view, p.accumulate);
}

void answer_without_pairs(const Call& call, const BackwardTensors& tensors) {
  if (call.problem.accumulate) return;
  for (const MutableTensorView& gradient : {tensors.dq, tensors.dk, tensors.dv})
    if (gradient) fill(call, gradient, 0.0f);
}

}  // namespace

void backward(Form form, const AttentionProblem& p, const BackwardTensors& tensors, const core::RunContext& context) {
  const BackwardMemory memory = backward_memory(p, context.workspace);
  const Call call{p, context.stream, memory.products};
  if (p.batch * p.heads_q * p.len_q * p.len_k == 0) return answer_without_pairs(call, tensors);
  Run run{call,
          tensors,
          memory,
          operand(call, tensors.q, memory.q),
          operand(call, tensors.k, memory.k),
          operand(call, tensors.v, memory.v),
          operand(call, tensors.dout, memory.dout)};
  find_probabilities(run);
  if (p.wants_dv) key_gradient(run, tensors.dv, memory.dv, run.probabilities, run.dout, 1.0f);
  if (!p.wants_dq && !p.wants_dk) return;
  multiply_by_keys(call, run.dout, run.v, p.dim_v, run.scores(memory.gradients));
  differentiate_softmax(run, form);
  // The vectorized form leaves the scaling to the products.
  const float factor = form == Form::vectorized ? static_cast<float>(p.scale) : 1.0f;
  const Matrices gradients = run.narrow(memory.gradients);
  if (p.wants_dq) sum_over_keys(call, factor, gradients, run.k, p.dim_qk, result(tensors.dq), p.accumulate);
  if (p.wants_dk) key_gradient(run, tensors.dk, memory.dk, gradients, run.q, factor);
}

}  // namespace fovea::cuda::baselines
