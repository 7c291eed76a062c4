// The memory of a model: planned, measured in a step, and the largest batch and context that fit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/model.h"
#include "program/profile/profile.h"

namespace fovea::program {

// Bytes for the largest model: of the free memory, a share stays free, for other programs and for code that CUDA loads.
std::int64_t room_for_models(DeviceKind device);

// The row of a model that does not exist yet, with its plan. Throws Error for sizes that make no model.
ProfileRow planned_row(const ProfiledModel& model, const ProfileSettings& settings);

// Makes the model, unless it is there or has no room. Returns why not, or nothing.
std::string no_room(std::optional<model::Model>& model, const ProfiledModel& profiled, const ProfileRow& planned,
                    const ProfileSettings& settings);

// Random tokens, then their targets.
std::vector<std::int32_t> random_tokens(const model::Config& config, std::int64_t rows, std::uint64_t seed = 1);
model::Batch batch_of(const std::vector<std::int32_t>& tokens);

// Bytes that are allocated: by this library on a CPU; on a GPU by everybody, since this object was made.
class MemoryMeter {
 public:
  explicit MemoryMeter(DeviceKind device);

  void begin();               // of a phase
  std::int64_t peak() const;  // since begin(). A GPU tells only what is held; models allocate nothing for a short time
  std::int64_t held() const;

 private:
  DeviceKind device_;
  std::int64_t before_ = 0;
};

// Makes one step of the row's kind, which changes no weight, and adds to the row what is allocated after init, in each
// phase, and at most.
void measure_memory(model::Model& model, const model::Batch& batch, MemoryMeter& meter, ProfileRow& row);

// The largest `dimension`, batch or context, whose plan fits into `room` bytes while all else stays as it is. One
// step of that size verifies it, or, if that would take minutes at `rate` flops/s, writing all of its memory. Then the
// row's reason says so. The status is oom if the memory was not there. Nothing if not even 1 fits.
std::optional<ProfileRow> largest_that_fits(ProfiledModel model, ProfileSettings settings, const std::string& dimension,
                                            std::int64_t room, double rate);

}  // namespace fovea::program
