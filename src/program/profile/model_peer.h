// A peer's model in a worker process: it gets this library's weights, is compared with it, and makes steps when asked.
#pragma once

#include <map>
#include <string>

#include "model/model.h"
#include "model/optimizer.h"
#include "program/profile/profile.h"
#include "program/worker/process.h"

namespace fovea::program {

// The memory that a step of the model needs in PyTorch, its program included. Arrays that eager PyTorch keeps, also
// those that this library overwrites or computes again.
std::int64_t peer_bytes(const model::Config& config, const model::Extent& extent);

class ModelPeer {
 public:
  ModelPeer(const ProfilePeer& peer, const ProfileSettings& settings);

  const std::string& name() const { return name_; }
  bool failed() const { return !failure_.status.empty(); }

  // Starts the worker with the model's weights, and compares loss and gradients of the batch, and weights after three
  // steps of AdamW. The model computes all this too and keeps the new weights. A peer that fails here or later is not
  // asked again.
  void compare(model::Model& model, const model::Batch& batch, const core::RunContext& context);

  // What the worker needs for a step: its peak in compare(). 0 if the worker does not tell.
  std::int64_t measured_bytes() const { return measured_bytes_; }

  // In its place, if this library and its peers have no room beside one another.
  void leave_out(std::int64_t wanted_bytes, std::int64_t free_bytes);

  void begin_pass() { seconds_.clear(); }
  // One step; its times count if it is measured.
  void step(const std::string& passes, bool is_measured);

  // Of the pass, with the row and the flops of this library's.
  ProfileResult result(ProfileResult of_library) const;

 private:
  void want_memory(std::int64_t parameter_bytes) const;
  void prepare(model::Model& model, const model::Batch& batch, const core::RunContext& context);
  void compare_steps(model::Model& model, const model::Batch& batch, const model::AdamW& optimizer, double first_loss,
                     const core::RunContext& context);
  void judge_loss(const std::string& what, double own, double theirs, double change);
  // Of a value for each parameter: how the record and the reason call it, how many times the tolerance of gradients it
  // may differ, and by what share of the weights, for their roundings.
  struct Comparison {
    const char *all, *one;
    double sensitivity, roundings;
  };
  // The worker's are in its outputs. `before` is subtracted from both, unless it is null.
  void judge_each(const Comparison& compared, const model::ParameterMap& map, const std::vector<float>& own,
                  const float* before);
  void fail(const WorkerFailure& failure) { failure_ = failure; }

  std::string name_;
  const ProfileSettings& settings_;
  SharedBlock inputs_{"fovea weights"};
  WorkerProcess process_;
  struct Tolerance {
    double loss = 0, gradient = 0;  // relative
  };
  static Tolerance tolerance_of(const model::Config& config);
  Tolerance tolerance_;
  std::string framework_;
  WorkerFailure failure_;
  PhaseSeconds seconds_;
  std::map<std::string, ErrorFigures> error_;
  std::optional<std::int64_t> state_bytes_, held_bytes_, peak_bytes_;
  std::int64_t measured_bytes_ = 0;
};

}  // namespace fovea::program
