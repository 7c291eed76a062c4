// The commands of the protocol with typed replies. A reply of another form ends the worker and is WorkerFailure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "program/worker/process.h"

namespace fovea::program {

struct RunReply {
  std::string timer, peer;  // empty if the worker does not say
  std::optional<std::int64_t> workspace_bytes, saved_bytes;
};
RunReply run_once(WorkerProcess& worker, double timeout_s);

// Hand the outputs over: the shared block's to the kernel, and those of the last runs to the shared block.
void load_outputs(WorkerProcess& worker, double timeout_s);
void store_outputs(WorkerProcess& worker, double timeout_s);

// A vector beside `seconds` has one element per run, or is empty.
struct SampleReply {
  std::vector<double> seconds;           // of the timed runs, none negative
  std::vector<double> launches, pooled;  // NaN where they are not known
  std::vector<bool> host_bound;
  std::optional<double> clock_mhz, power_w;
};
SampleReply sample_runs(WorkerProcess& worker, int runs, int lead, double timeout_s);

}  // namespace fovea::program
