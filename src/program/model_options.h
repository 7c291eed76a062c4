// Options that choose the sizes of a transformer, which train and profile share.
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

void add_device_option(CLI::App* verb, DeviceKind& device);

// Throws Error(invalid_argument) with the known names and the nearest one.
const model::Config& preset_named(const std::string& option, const std::string& name);

}  // namespace fovea::program
