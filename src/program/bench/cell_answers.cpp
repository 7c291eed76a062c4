// The answers of a cell: computed and checked before the timing, and checked again after the last sample.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/names.h"
#include "fovea/error.h"
#include "program/bench/cell.h"
#include "program/worker/commands.h"
#include "verification/problem_line.h"

namespace fovea::program {
namespace {

using Json = nlohmann::ordered_json;

Json prepare_command(const verification::Case& c, const std::string& implementation, bool saves,
                     const TensorPlaces& places, const CellSettings& settings) {
  Json tensors = Json::object();
  for (const auto& place : places.places) {
    tensors[place.tensor.name] = {{"offset", place.offset},
                                  {"sizes", place.tensor.sizes},
                                  {"strides", place.tensor.strides},
                                  {"dtype", core::name_of(place.tensor.dtype)},
                                  {"input", place.is_input()}};
  }
  return {{"command", "prepare"},
          {"problem", verification::line_of(c)},
          {"implementation", implementation},
          {"saves", saves},
          {"pass", c["pass"]},
          {"threads", settings.threads},
          {"timing", settings.timing},
          {"memory_limit", settings.memory_limit},
          {"input_bytes", places.input_bytes},
          {"output_bytes", places.output_bytes},
          {"tensors", tensors}};
}

}  // namespace

void CellBench::fail_allocation(Row& row, const Error& error) {
  const ErrorDetails& details = error.details();
  row.fail("oom", fmt::format("{}: {}, wanted {}", details.problem, details.got, details.wanted));
}

void CellBench::check(const verification::Case& c, Entry& entry, AnswerChecker& checker) {
  WorkerProcess& process = worker(entry.contender);
  entry.open = false;
  const Contender& contender = contenders_[entry.contender];
  const TensorPlaces& places = places_for(entry);
  try {
    const SpentTime spent(spent_.runs);
    process.outputs().resize(places.output_bytes);
    poison(process.outputs());
    process.call(prepare_command(c, entry.plan.asked, contender.saves, places, settings_), settings_.limits.timeout);
    const RunReply reply = run_once(process, settings_.limits.timeout);
    if (!reply.timer.empty()) entry.row.timer = reply.timer;
    entry.row.peer = contender.old_version.empty() ? reply.peer : "fovea " + contender.old_version;
    entry.row.workspace_bytes = reply.workspace_bytes;
    entry.row.saved_bytes = reply.saved_bytes;
    if (reply.saved_bytes) entry.row.memory_before_backward_bytes = forward_tensor_bytes(c) + *reply.saved_bytes;
  } catch (const WorkerFailure& failure) {
    // After an illegal memory access the process can no longer use the device.
    if (settings_.device == DeviceKind::cuda && failure.status == "error") process.kill();
    return entry.row.fail(failure.status, failure.reason);
  } catch (const Error& error) {
    return fail_allocation(entry.row, error);
  }
  const AnswerCheck answer = judge_answer(entry, checker);
  entry.row.error = answer.error;
  if (answer.sampled) entry.row.flags.emplace_back("sampled_check");
  if (answer.inaccurate) entry.row.flags.emplace_back("inaccurate");
  if (!answer.wrong.empty()) return entry.row.fail("mismatch", answer.wrong);
  entry.open = true;
}

const TensorPlaces& CellBench::places_for(const Entry& entry) const {
  return contenders_[entry.contender].of_old.empty() ? places_ : old_places_;
}

AnswerCheck CellBench::judge_answer(const Entry& entry, AnswerChecker& checker) {
  const SpentTime spent(spent_.checks);
  const bool ours = contenders_[entry.contender].ours;
  const bool keeps_state = !ours || entry.row.saved_bytes.value_or(entry.plan.saved_bytes) > 0;
  const BackwardReads reads = keeps_state ? BackwardReads::own_state : BackwardReads::outputs;
  return checker.check(worker(entry.contender).outputs(), places_for(entry), reads, !ours);
}

// Returns whether the contender can be timed.
bool CellBench::poison_before_timing(const verification::Case& c, Entry& entry) {
  const SpentTime spent(spent_.runs);
  WorkerProcess& process = worker(entry.contender);
  entry.digest = digest_of(process.outputs());
  if (!contenders_[entry.contender].of_old.empty()) return true;  // an older program does not know the command
  poison_timed(c, places_, process.outputs());
  try {
    load_outputs(process, settings_.limits.timeout);
    return true;
  } catch (const WorkerFailure& failure) {
    entry.row.fail(failure.status, failure.reason);
    return false;
  }
}

// Returns whether the answer of the last sample is right too.
bool CellBench::check_again(Entry& entry, AnswerChecker& checker) {
  if (!contenders_[entry.contender].of_old.empty()) return true;
  WorkerProcess& process = worker(entry.contender);
  try {
    const SpentTime spent(spent_.runs);
    store_outputs(process, settings_.limits.timeout);
  } catch (const WorkerFailure& failure) {
    entry.row.fail(failure.status, failure.reason);
    return false;
  }
  if (digest_of(process.outputs()) == entry.digest) return true;
  const AnswerCheck answer = judge_answer(entry, checker);
  if (!answer.wrong.empty()) entry.row.fail("mismatch", "after the last sample: " + answer.wrong);
  return answer.wrong.empty();
}

}  // namespace fovea::program
