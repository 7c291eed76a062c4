// A model's memory is one block, so plans tell what it needs. What is measured may only add what lies beside the block.
#include "program/profile/model_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/binary_size.h"
#include "core/memory.h"
#include "core/names.h"
#include "core/random.h"
#include "cuda/measure/device_memory.h"
#include "fovea/error.h"
#include "program/machine/device.h"
#include "program/profile/phases.h"

namespace fovea::program {
namespace {

constexpr std::int64_t kFreeShare = 32;
constexpr double kLongStep = 30;  // seconds, of products and attention at the ceiling

std::map<std::string, MemoryFigures> planned_phases(const model::MemoryPlan& plan) {
  return {{"after_init", {plan.state_bytes, {}}},
          {"forward", {plan.forward_bytes, {}}},
          {"before_backward", {plan.state_bytes + plan.activation_bytes, {}}},
          {"backward", {plan.backward_bytes, {}}},
          {"optimizer", {plan.optimizer_bytes, {}}}};
}

void set_size(ProfiledModel& model, ProfileSettings& s, const std::string& dimension, std::int64_t size) {
  (dimension == "batch" ? s.batch : s.context) = size;
  model.config.context = std::max(model.config.context, s.context);
}

bool fits(ProfiledModel model, ProfileSettings s, const std::string& dimension, std::int64_t size) try {
  set_size(model, s, dimension, size);
  return planned_row(model, s).planned_bytes <= s.free_bytes;
} catch (const Error& error) {
  if (error.status() != Status::invalid_argument) throw;
  return false;  // beyond what any machine holds
}

}  // namespace

std::int64_t room_for_models(DeviceKind device) {
  const std::int64_t free = free_bytes(device);
  return free - free / kFreeShare;
}

ProfileRow planned_row(const ProfiledModel& model, const ProfileSettings& s) {
  const model::Extent extent{s.batch, s.context};
  model::check(model.config, extent, "profile");
  model::Config shown = model.config;
  shown.context = s.context;  // as profiled, which may be less than the model's longest
  const model::ParameterMap map(model.config);
  const model::Calls calls(model.config, extent, s.device);
  const model::MemoryPlan plan(model.config, extent, map, calls);
  return {.model = model.name + (model.config.checkpoints_activations ? "+checkpointed" : ""),
          .sizes = model::line_of(shown) + (model.config.checkpoints_activations ? " activations=checkpointed" : ""),
          .passes = "step",
          .batch = s.batch,
          .context = s.context,
          .device = std::string(core::name_of(s.device.kind)),
          .status = "ok",
          .memory = planned_phases(plan),
          .parameters = map.count(),
          .state_bytes = plan.state_bytes,
          .activation_bytes = plan.activation_bytes,
          .workspace_bytes = plan.workspace_bytes,
          .planned_bytes = plan.total_bytes,
          .flops = calls.forward_flops + calls.backward_flops,
          .threads = s.threads};
}

std::string no_room(std::optional<model::Model>& model, const ProfiledModel& profiled, const ProfileRow& planned,
                    const ProfileSettings& s) {
  if (planned.planned_bytes > s.free_bytes)
    return "planned " + core::binary_size(planned.planned_bytes) + ", free " + core::binary_size(s.free_bytes);
  try {
    if (model) return {};
    model.emplace(profiled.config, model::Extent{s.batch, s.context}, 0, s.device);
    if (s.on_model) s.on_model(*model);
    return {};
  } catch (const Error& error) {  // others may have taken memory meanwhile
    if (error.status() != Status::out_of_memory) throw;
    return "planned " + core::binary_size(planned.planned_bytes) + ", " + error.details().got;
  }
}

std::vector<std::int32_t> random_tokens(const model::Config& config, std::int64_t rows, std::uint64_t seed) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < 2 * rows; ++i) {
    const std::uint32_t random = core::philox(seed, 0, static_cast<std::uint64_t>(i))[0];
    tokens.push_back(static_cast<std::int32_t>(random % static_cast<std::uint32_t>(config.vocabulary)));
  }
  return tokens;
}

model::Batch batch_of(const std::vector<std::int32_t>& tokens) {
  const std::span<const std::int32_t> all(tokens);
  return {all.first(tokens.size() / 2), all.last(tokens.size() / 2)};
}

MemoryMeter::MemoryMeter(DeviceKind device) : device_(device) {
  if (device == DeviceKind::cuda) before_ = cuda::free_device_bytes();
}

void MemoryMeter::begin() {
  if (device_ == DeviceKind::cpu) core::reset_memory_peak();
}

std::int64_t MemoryMeter::peak() const { return device_ == DeviceKind::cpu ? core::memory_count().peak : held(); }

std::int64_t MemoryMeter::held() const {
  if (device_ == DeviceKind::cpu) return core::memory_count().current;
  return std::max<std::int64_t>(before_ - cuda::free_device_bytes(), 0);
}

void measure_memory(model::Model& model, const model::Batch& batch, MemoryMeter& meter, ProfileRow& row) {
  row.memory["after_init"].measured = meter.held();
  Phases phases(model, batch, row.passes, row.threads, 0);
  std::int64_t most = 0;
  phases.watch_phases([&](const Phases::Moment& moment) {
    if (!moment.has_ended) {
      if (moment.phase == "backward") row.memory["before_backward"].measured = meter.held();
      return meter.begin();
    }
    row.memory[moment.phase].measured = meter.peak();
    most = std::max(most, meter.peak());
  });
  phases.step();
  row.measured_bytes = most;
  std::erase_if(row.memory, [](const auto& moment) { return !moment.second.measured; });  // of other kinds of steps
}

std::optional<ProfileRow> largest_that_fits(ProfiledModel profiled, ProfileSettings s, const std::string& dimension,
                                            std::int64_t room, double rate) {
  s.free_bytes = room;
  std::int64_t fit = 0, beyond = 1;  // `fit` fits, `beyond` does not
  while (fits(profiled, s, dimension, beyond)) {
    fit = beyond;
    if (beyond > std::numeric_limits<std::int32_t>::max()) break;
    beyond *= 2;
  }
  while (beyond - fit > 1) {
    const std::int64_t middle = fit + (beyond - fit) / 2;
    (fits(profiled, s, dimension, middle) ? fit : beyond) = middle;
  }
  if (fit == 0) return {};
  set_size(profiled, s, dimension, fit);
  ProfileRow row = planned_row(profiled, s);
  row.largest = dimension;
  MemoryMeter meter(s.device.kind);
  std::optional<model::Model> model;
  row.reason = no_room(model, profiled, row, s);
  if (!row.reason.empty()) {
    row.status = "oom";
    return row;
  }
  if (const double seconds = rate > 0 ? row.flops / rate : 0; seconds > kLongStep) {
    model->work().clear(model->work().memory(), row.planned_bytes, {});
    model->wait({});
    row.measured_bytes = meter.held();
    row.memory.clear();
    row.reason = fmt::format("its memory was written; a step takes over {:.0f} s", seconds);
    return row;
  }
  const std::vector<std::int32_t> tokens = random_tokens(profiled.config, s.batch * s.context);
  measure_memory(*model, batch_of(tokens), meter, row);
  return row;
}

}  // namespace fovea::program
