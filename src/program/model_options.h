// Options that choose a transformer and how it computes, which train and profile share.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "fovea/tensor.h"
#include "model/config.h"

namespace fovea::program {

// Sizes that the command line gives; the others stay as they are.
struct ModelSizes {
  std::optional<std::int64_t> layers, width, heads, hidden, vocabulary;
  model::Config applied_to(model::Config config) const;
  bool any() const { return layers || width || heads || hidden || vocabulary; }
};
void add_size_options(CLI::App* verb, ModelSizes& sizes);
// Throws Error(invalid_argument) if there are sizes beside the option, which names a preset.
void refuse_sizes_beside(const std::string& option, const ModelSizes& sizes);

// How the model computes.
struct ModelModes {
  DType dtype = DType::fp32;
  bool checkpoints_activations = false;
  model::Config applied_to(model::Config config) const;
};
void add_mode_options(CLI::App* verb, ModelModes& modes);

// A file with all weights of the model (WeightsFile).
void add_weights_option(CLI::App* verb, std::string& path);

void add_device_option(CLI::App* verb, DeviceKind& device);

// Throws Error(invalid_argument) with the known names and the nearest one.
const model::Config& preset_named(const std::string& option, const std::string& name);

}  // namespace fovea::program
