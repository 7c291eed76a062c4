// Makes the inputs, runs the passes and judges the results.
#include "verification/differential.h"

#include <algorithm>
#include <new>
#include <utility>

#include "core/random.h"
#include "fovea/error.h"

namespace fovea::verification {
namespace {

bool passed(const Outcome& outcome) { return outcome.kind == Outcome::Kind::passed; }

}  // namespace

Trial trial_of(const Case& c) {
  const core::RandomBlock block = core::philox(c.seed(), 0x7A1, 0);
  constexpr int kThreads[] = {1, 1, 2, 3};
  return {.own_workspace = block[0] % 3 == 0, .other_threads = block[1] % 4 == 0, .threads = kThreads[block[2] % 4]};
}

std::string text_of(const Case& c, const Trial& trial) {
  std::string text;
  for (const std::string& word : c.variation) text += word + " ";
  if (trial.own_workspace) text += "own_workspace ";
  if (trial.other_threads) text += "other_threads ";
  return text + "threads=" + std::to_string(trial.threads);
}

bool Differential::Tensor::is_written(Pass pass) const {
  return pass == Pass::backward ? spec.role == Role::gradient : spec.role == Role::output || spec.role == Role::saved;
}

Differential::Differential(const Case& c, const Trial& trial, MakeDeviceCall make_device_call)
    : case_(c), trial_(trial), make_device_call_(std::move(make_device_call)) {
  if (c.pass() == CasePass::bwd) case_ = without_saved_state(c);
  for (TensorSpec& spec : c.operation->tensors(c)) {
    HostTensor memory(spec, c.place(), c.seed());
    if (is_read(spec.role)) fill(c, spec, memory.view());
    if (spec.role == Role::gradient && c.operation->accumulates(c)) {
      before_.push_back({spec, HostTensor(spec, c.place(), c.seed())});
      fill(c, spec, before_.back().memory.view());
    }
    tensors_.push_back({std::move(spec), std::move(memory)});
  }
  if (!c.forwards()) c.operation->run_reference(c, set());
}

TensorSet Differential::set() const {
  TensorSet set;
  for (const Tensor& one : tensors_) set.add(one.spec.name, one.memory.view());
  return set;
}

TensorSet Differential::results(Pass pass) const {
  TensorSet set;
  for (const Tensor& one : tensors_) {
    if (one.is_written(pass)) set.add(one.spec.name, one.memory.view());
  }
  return set;
}

// A backward that reads its own saved state needs no outputs: the reference computes them from the inputs.
TensorSet Differential::given_to_backward(bool keeps_state) const {
  TensorSet set;
  for (const Tensor& one : tensors_) {
    const bool from_forward = one.is_written(Pass::forward);
    if (is_read(one.spec.role) || (from_forward && !keeps_state)) set.add(one.spec.name, one.memory.view());
  }
  for (const Tensor& one : before_) set.add(one.spec.name, one.memory.view());
  return set;
}

Differential::Bytes Differential::bytes_of(const std::function<bool(const Tensor&)>& wanted) const {
  Bytes bytes;
  for (const Tensor& one : tensors_) {
    if (!wanted(one)) continue;
    const auto& view = one.memory.view();
    const auto* const data = static_cast<const std::byte*>(view.data);
    bytes.emplace_back(data, data + view.buffer_bytes);
  }
  return bytes;
}

Outcome Differential::judge(const Verdict& verdict) const {
  if (!verdict.ok) return {Outcome::Kind::failed, verdict.reason()};
  const bool intact = std::all_of(tensors_.begin(), tensors_.end(), [](const Tensor& one) {
    return is_read(one.spec.role) || one.memory.padding_intact();
  });
  if (!intact) return {Outcome::Kind::failed, "wrote outside an output"};
  return {};
}

void Differential::clear_results(Pass pass) {
  for (Tensor& one : tensors_) {
    if (!one.is_written(pass)) continue;
    one.memory.poison();
    if (one.spec.role == Role::gradient && case_.operation->accumulates(case_))
      fill(case_, one.spec, one.memory.view());
  }
}

void Differential::call(Pass pass, const CallSettings& settings) const {
  const auto run = [&](const TensorSet& tensors, const CallSettings& there) {
    const Call prepared = case_.operation->prepare(case_, tensors, there);
    if (prepared.begin) prepared.begin();
    pass == Pass::forward ? prepared.forward() : prepared.backward();
    if (prepared.end) prepared.end();
  };
  const TensorSet host = set();
  if (!make_device_call_) return run(host, settings);
  std::vector<std::string> written;
  for (const Tensor& one : tensors_) {
    if (one.is_written(pass)) written.push_back(one.spec.name);
  }
  const auto on_device = make_device_call_(host, written, pass, settings);
  run(on_device->tensors(), on_device->settings(settings));
  on_device->copy_back();
}

Outcome Differential::answer(Pass pass, const ImplementationFacts& implementation, std::int64_t workspace_bytes,
                             int threads) {
  clear_results(pass);
  try {
    workspace_ = trial_.own_workspace ? host_buffer(workspace_bytes, true) : HostTensor{};
    call(pass, {.implementation = implementation.name,
                .threads = threads,
                .workspace = buffer_of(workspace_),
                .saved = buffer_of(saved_)});
  } catch (const Error& error) {
    const bool no_memory = error.status() == Status::out_of_memory;
    return {no_memory ? Outcome::Kind::out_of_memory : Outcome::Kind::failed, error.what()};
  }
  return {};
}

Outcome Differential::repeat(Pass pass, const ImplementationFacts& implementation, std::int64_t workspace_bytes) {
  if (!trial_.other_threads || !implementation.reproducible) return {};
  const auto written = [pass](const Tensor& one) { return one.is_written(pass); };
  const Bytes bytes = bytes_of(written);
  Outcome ended = answer(pass, implementation, workspace_bytes, trial_.threads + 1);
  if (!passed(ended) || bytes == bytes_of(written)) return ended;
  return {Outcome::Kind::failed, "another number of threads gives other bits"};
}

Outcome Differential::run_forward(const ImplementationFacts& implementation) {
  const std::int64_t workspace = case_.operation->plan(case_.with("pass", "fwd"), implementation.name).workspace_bytes;
  saved_ = {};
  if (Outcome ended = answer(Pass::forward, implementation, workspace, trial_.threads); !passed(ended)) return ended;
  if (!expected_forward_) expected_forward_ = case_.operation->expect(case_, Pass::forward, set());
  if (Outcome outcome = judge(compare(*expected_forward_, results(Pass::forward))); !passed(outcome)) return outcome;
  if (Outcome repeated = repeat(Pass::forward, implementation, workspace); !passed(repeated)) return repeated;
  if (!expected_forward_->unjudged.empty()) return {Outcome::Kind::exempt, expected_forward_->unjudged};
  return {};
}

// e2e continues from the implementation's own forward and its saved state; bwd starts from the reference's forward.
Outcome Differential::run_backward(const ImplementationFacts& implementation, const CasePlan& plan) {
  const bool keeps_state = plan.saved_bytes > 0;
  saved_ = host_buffer(plan.saved_bytes);
  if (keeps_state) {
    const Outcome ended = answer(Pass::forward, implementation, plan.workspace_bytes, trial_.threads);
    if (!passed(ended)) return {ended.kind, "forward that saves its state: " + ended.reason};
  }
  if (Outcome ended = answer(Pass::backward, implementation, plan.workspace_bytes, trial_.threads); !passed(ended))
    return ended;
  if (case_.forwards() || !expected_backward_)
    expected_backward_ = case_.operation->expect(case_, Pass::backward, given_to_backward(keeps_state));
  if (Outcome outcome = judge(compare(*expected_backward_, results(Pass::backward))); !passed(outcome)) return outcome;
  if (Outcome repeated = repeat(Pass::backward, implementation, plan.workspace_bytes); !passed(repeated))
    return repeated;
  if (!expected_backward_->unjudged.empty()) return {Outcome::Kind::exempt, expected_backward_->unjudged};
  return {};
}

Outcome Differential::run(const ImplementationFacts& implementation) {
  const CasePlan plan = case_.operation->plan(case_, implementation.name);
  if (std::string reason = plan.refusal(); !reason.empty()) return {Outcome::Kind::refused, std::move(reason)};
  if (case_.data() == "nonfinite" && !implementation.reproducible)
    return {Outcome::Kind::exempt, "baselines are exempt from the rules for NaN and infinity"};
  const auto is_input = [](const Tensor& one) { return is_read(one.spec.role); };
  const Bytes inputs = bytes_of(is_input);
  Outcome outcome;
  try {
    if (case_.forwards()) outcome = run_forward(implementation);
    if (case_.backwards() && passed(outcome)) outcome = run_backward(implementation, plan);
  } catch (const std::bad_alloc&) {
    return {Outcome::Kind::out_of_memory, "no memory for the call's buffers and the check of its results"};
  }
  if (outcome.kind != Outcome::Kind::failed && inputs != bytes_of(is_input))
    return {Outcome::Kind::failed, "changed an input"};
  return outcome;
}

}  // namespace fovea::verification
