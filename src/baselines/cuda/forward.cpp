// Forward, pass by pass, all enqueued on the caller's stream.
#include "baselines/cuda/forward.h"

#include <limits>

#include "baselines/cuda/memory_plan.h"
#include "baselines/cuda/passes.h"
#include "baselines/saved_state.h"

namespace fovea::cuda::baselines {
namespace {

using fovea::baselines::Form;

struct Run {
  const Call& call;
  float* scores;
  void* kept;  // 16-bit probabilities for backward; null where the matrix itself is kept or none is
  LogSumExp* statistics;
  TensorRef lse;

  RowPass pass(bool masked, double factor) const {
    RowPass result = pass_over(call.problem, scores, masked, factor);
    result.lse = lse;
    result.statistics = statistics;
    return result;
  }

  // The step's result is the probabilities.
  void finish(Step step, const RowPass& pass) const {
    enqueue(call, step, narrowed(call.problem, pass, kept), call.problem.dtype, call.problem.dtype);
  }

  Matrices probabilities() const {
    const AttentionProblem& p = call.problem;
    const bool within_scores = kept == nullptr && p.dtype != DType::fp32;
    return dense(kept != nullptr ? kept : scores, p.dtype,
                 {p.batch, p.heads_q, p.len_q, within_scores ? 2 * p.len_k : p.len_k});
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
  if (run.call.problem.mask != Mask::none) enqueue(run.call, Step::hide, run.pass(true, 1.0), DType::fp32, DType::fp32);
  softmax(run, run.pass(false, 1.0));
}

}  // namespace

void forward(Form form, const AttentionProblem& p, const ForwardTensors& tensors, const core::RunContext& context) {
  if (p.batch * p.heads_q * p.len_q == 0) return;
  const ForwardMemory memory = forward_memory(p, context.workspace);
  const Call call{p, context.stream, memory.products};
  if (p.len_k == 0) {
    fill(call, tensors.out, 0.0f);
    if (tensors.lse) fill(call, tensors.lse, -std::numeric_limits<float>::infinity());
    return;
  }
  void* saved = p.saved_state ? fovea::baselines::saved_probabilities(tensors.saved) : nullptr;
  const bool in_place = memory.scores == nullptr;
  const Run run{call, in_place ? static_cast<float*>(saved) : memory.scores, in_place ? nullptr : saved, memory.lse,
                tensors.lse ? ref(tensors.lse) : TensorRef{}};
  multiply_by_keys(call, operand(call, tensors.q, memory.q), operand(call, tensors.k, memory.k), p.dim_qk,
                   dense(run.scores, DType::fp32, {p.batch, p.heads_q, p.len_q, p.len_k}));
  if (form == Form::naive) naive_passes(run);
  if (form == Form::vectorized) by_log_sum_exp(run, run.pass(true, p.scale));
  if (form == Form::fused) softmax(run, run.pass(true, p.scale));
  sum_over_keys(call, 1.0f, run.probabilities(), operand(call, tensors.v, memory.v), p.dim_v, result(tensors.out),
                false);
}

}  // namespace fovea::cuda::baselines
