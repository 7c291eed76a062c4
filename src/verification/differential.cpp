// Inputs, run, judgement.
#include "verification/differential.h"

#include <cstring>
#include <utility>

#include "core/float16.h"
#include "fovea/error.h"
#include "attention/reference/reference.h"
#include "verification/evaluation.h"

namespace fovea::verification {
namespace {

using core::CasePass;

std::vector<std::byte> bytes_of(const HostTensor& tensor) {
  const auto& view = tensor.view();
  if (!view) return {};
  const auto* const data = static_cast<const std::byte*>(view.data);
  return {data, data + view.buffer_bytes};
}

DType result_of(const core::Case& c, const Variation& v) { return v.fp32_results ? DType::fp32 : c.problem.dtype; }

}  // namespace

Differential::Differential(const core::Case& c, const Variation& variation, const AttentionCalls& calls)
    : case_(c), variation_(variation), calls_(calls), forward_(c.problem), backward_(c.problem) {
  const DType result = result_of(c, variation);
  forward_.pass = Pass::forward;
  forward_.result_dtype = result;
  backward_.pass = Pass::backward;
  backward_.result_dtype = result;
  backward_.accumulate = variation.accumulate;
  backward_.wants_dq = variation.dq;
  backward_.wants_dk = variation.dk;
  backward_.wants_dv = variation.dv;
  tensors_ = make_tensors(c, result);
  if (c.pass == CasePass::fwd) return;
  before_dq_ = HostTensor(tensors_.dq.view().sizes, result, c, true);
  before_dk_ = HostTensor(tensors_.dk.view().sizes, result, c, true);
  before_dv_ = HostTensor(tensors_.dv.view().sizes, result, c, true);
  fill_input(c, Role::dq, before_dq_.view());
  fill_input(c, Role::dk, before_dk_.view());
  fill_input(c, Role::dv, before_dv_.view());
  forward_by_reference();
  given_out_ = tensors_.out;
  given_lse_ = tensors_.lse;
  tensors_.out = HostTensor(given_out_.view().sizes, result, c, true);
  tensors_.lse = HostTensor(given_lse_.view().sizes, DType::fp32, c, true);
  if (!variation.outside_delta) return;
  const Sample all = sample_of(backward_, 0);
  tensors_.delta = HostTensor(given_lse_.view().sizes, DType::fp32, c, true);
  const RowValues out = read_rows(given_out_.view(), all.queries), dout = read_rows(tensors_.dout.view(), all.queries);
  const auto& delta = tensors_.delta.view();
  for (std::size_t n = 0; n < all.queries.size(); ++n) {
    double sum = 0;
    for (std::size_t at = n * out.columns; at < (n + 1) * out.columns; ++at) sum += out.values[at] * dout.values[at];
    const auto& [b, h, i] = all.queries[n];
    static_cast<float*>(delta.data)[b * delta.strides[0] + h * delta.strides[1] + i * delta.strides[2]] =
        static_cast<float>(sum);
  }
}

// What backward is given: every row, so a large problem's come from whoever is faster than the CPU.
void Differential::forward_by_reference() {
  const ForwardTensors t = tensors_.forward();
  if (!calls_.definition.forward || sample_of(forward_, 0).complete) {
    AttentionOptions options = options_of(case_);
    options.implementation = "reference";
    return attention_forward(t, options);
  }
  Sample all{.queries = {}, .keys = {}, .complete = false};
  for (std::int64_t b = 0; b < forward_.batch; ++b) {
    for (std::int64_t h = 0; h < forward_.heads_q; ++h) {
      for (std::int64_t i = 0; i < forward_.len_q; ++i) all.queries.push_back({b, h, i});
    }
  }
  const ForwardValues values = calls_.definition.forward(forward_, t, all);
  for (const auto& [view, rows] : {std::pair{t.out, &values.out}, {t.lse, &values.lse}}) {
    for (std::size_t n = 0; n < all.queries.size(); ++n) {
      const auto& [b, h, i] = all.queries[n];
      const std::int64_t at = b * view.strides[0] + h * view.strides[1] + i * view.strides[2];
      for (std::int64_t c = 0; c < rows->columns; ++c)
        core::store_from_float(view.data, view.dtype, at + c,
                               static_cast<float>(rows->values[n * static_cast<std::size_t>(rows->columns) + c]));
    }
  }
}

AttentionOptions Differential::options(const core::Implementation& implementation, const AttentionProblem& problem,
                                       int threads) {
  AttentionOptions options = options_of(case_);
  options.implementation = implementation.name;
  options.threads = threads;
  options.reproducible = problem.reproducible;
  const std::int64_t bytes = implementation.plan(problem).workspace_bytes;
  if (!variation_.own_workspace || bytes == 0) return options;
  core::Case guarded;  // the buffer's last byte is the last before a protected page
  guarded.place = "guarded";
  workspace_ = HostTensor({1, 1, 1, (bytes + 63) / 64 * 16}, DType::fp32, guarded, true);
  options.workspace = {workspace_.view().data, workspace_.view().buffer_bytes};
  return options;
}

Outcome Differential::judge(Verdict verdict) const {
  if (!verdict.ok) return {Outcome::Kind::failed, verdict.reason()};
  if (!tensors_.padding_intact()) return {Outcome::Kind::failed, "wrote outside an output"};
  return {};
}

// An Error's text, or empty.
std::string Differential::answer_forward(const core::Implementation& implementation, int threads, bool keeps_state) {
  AttentionProblem problem = forward_;
  problem.saved_state = keeps_state;
  problem.reproducible = implementation.reproducible;
  tensors_.out.poison();
  tensors_.lse.poison();
  tensors_.saved = keeps_state ? make_saved(implementation.plan(problem).saved_bytes) : HostTensor{};
  ForwardTensors tensors = tensors_.forward();
  if (!variation_.lse) tensors.lse = {};
  try {
    calls_.forward(tensors, options(implementation, problem, threads));
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

Outcome Differential::run_forward(const core::Implementation& implementation) {
  if (std::string error = answer_forward(implementation, variation_.threads, false); !error.empty())
    return {Outcome::Kind::failed, std::move(error)};
  if (!expected_forward_)
    expected_forward_ = expect_forward(forward_, tensors_.forward(), case_.seed, calls_.definition);
  ForwardTensors results = tensors_.forward();
  if (!variation_.lse) results.lse = {};
  Outcome outcome = judge(compare(*expected_forward_, results));
  if (outcome.kind != Outcome::Kind::passed || !variation_.other_threads || !implementation.reproducible)
    return outcome;
  const auto out = bytes_of(tensors_.out), lse = bytes_of(tensors_.lse);
  answer_forward(implementation, variation_.threads + 1, false);
  if (out != bytes_of(tensors_.out) || lse != bytes_of(tensors_.lse))
    return {Outcome::Kind::failed, "another number of threads gives other bits"};
  return {};
}

void Differential::fill_gradients() {
  for (HostTensor* tensor : {&tensors_.dq, &tensors_.dk, &tensors_.dv}) tensor->poison();
  if (!variation_.accumulate) return;
  fill_input(case_, Role::dq, tensors_.dq.view());
  fill_input(case_, Role::dk, tensors_.dk.view());
  fill_input(case_, Role::dv, tensors_.dv.view());
}

BackwardTensors Differential::backward_tensors() const {
  BackwardTensors tensors = tensors_.backward();
  tensors.accumulate = variation_.accumulate;
  if (!variation_.dq) tensors.dq = {};
  if (!variation_.dk) tensors.dk = {};
  if (!variation_.dv) tensors.dv = {};
  if (tensors.delta) tensors.out = {};
  return tensors;
}

std::string Differential::answer_backward(const core::Implementation& implementation, int threads) {
  AttentionProblem problem = backward_;
  problem.saved_state = bool(tensors_.saved.view());
  problem.reproducible = implementation.reproducible;
  fill_gradients();
  try {
    calls_.backward(backward_tensors(), options(implementation, problem, threads));
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

Outcome Differential::run_backward(const core::Implementation& implementation) {
  // e2e goes on from the implementation's own forward and the state that it saves; bwd from the reference's forward.
  const bool own_forward = case_.pass == CasePass::e2e;
  AttentionProblem saving = forward_;
  saving.saved_state = true;
  const bool keeps_state = own_forward && implementation.plan(saving).saved_bytes > 0;
  tensors_.saved = {};
  if (keeps_state) {
    if (std::string error = answer_forward(implementation, variation_.threads, true); !error.empty())
      return {Outcome::Kind::failed, "forward that saves its state: " + error};
  } else if (!own_forward) {
    tensors_.out = given_out_;
    tensors_.lse = given_lse_;
  }
  if (std::string error = answer_backward(implementation, variation_.threads); !error.empty())
    return {Outcome::Kind::failed, std::move(error)};
  if (own_forward || !expected_backward_) {
    BackwardTensors inputs = backward_tensors();
    if (keeps_state) inputs.out = inputs.lse = inputs.delta = {};
    Gradients before;
    if (variation_.accumulate) before = {before_dq_.view(), before_dk_.view(), before_dv_.view()};
    expected_backward_ = expect_backward(backward_, inputs, case_.seed, before, calls_.definition);
  }
  if (Outcome outcome = judge(compare(*expected_backward_, backward_tensors())); outcome.kind != Outcome::Kind::passed)
    return outcome;
  if (variation_.other_threads && implementation.reproducible) {
    const auto dq = bytes_of(tensors_.dq), dk = bytes_of(tensors_.dk), dv = bytes_of(tensors_.dv);
    answer_backward(implementation, variation_.threads + 1);
    if (dq != bytes_of(tensors_.dq) || dk != bytes_of(tensors_.dk) || dv != bytes_of(tensors_.dv))
      return {Outcome::Kind::failed, "another number of threads gives other bits"};
  }
  if (expected_backward_->unjudged) return {Outcome::Kind::exempt, std::string(kUnjudged)};
  return {};
}

Outcome Differential::run(const core::Implementation& implementation) {
  const bool forward = case_.pass != CasePass::bwd, backward = case_.pass != CasePass::fwd;
  for (AttentionProblem problem : {forward_, backward_}) {
    if (problem.pass == Pass::forward ? !forward : !backward) continue;
    problem.reproducible = implementation.reproducible;
    if (std::string reason = implementation.refusal(problem); !reason.empty())
      return {Outcome::Kind::refused, std::move(reason)};
  }
  if (case_.data == "nonfinite" && !implementation.reproducible)
    return {Outcome::Kind::exempt, "baselines are exempt from the rules for NaN and infinity"};
  const auto q = bytes_of(tensors_.q), k = bytes_of(tensors_.k), v = bytes_of(tensors_.v),
             dout = bytes_of(tensors_.dout);
  Outcome outcome;
  if (forward) outcome = run_forward(implementation);
  if (backward && outcome.kind == Outcome::Kind::passed) outcome = run_backward(implementation);
  if (outcome.kind != Outcome::Kind::failed && (q != bytes_of(tensors_.q) || k != bytes_of(tensors_.k) ||
                                                v != bytes_of(tensors_.v) || dout != bytes_of(tensors_.dout)))
    return {Outcome::Kind::failed, "changed an input"};
  return outcome;
}

}  // namespace fovea::verification
