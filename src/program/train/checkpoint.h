// The state of a training on disk: all weights, both moments of the optimizer, and what the training is.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "model/model.h"
#include "program/weights/safetensors.h"

namespace fovea::program {

// `settings` are everything that decides the bits of a training, as words; `step` steps have been made. Throws
// OutputLost; the earlier checkpoint is then intact.
void save_checkpoint(const std::string& path, model::Model& model, const Metadata& settings, std::int64_t step);

// Reads what save_checkpoint wrote into the model, and returns the step. Throws Error(invalid_argument) that names what
// is wrong: another's file, a damaged one, or one of other settings. The model is changed only if all is right.
std::int64_t load_checkpoint(const std::string& path, model::Model& model, const Metadata& settings);

}  // namespace fovea::program
