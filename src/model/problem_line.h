// The model's problem line:
//   op=model pass=step model=report-d1:sm b=2 lq=512 layers=12 width=768 .. dtype=fp32 activations=kept device=cpu
// A preset decides the sizes and the vocabulary; model=custom takes any. `fovea profile` writes such lines too.
#pragma once

#include <string_view>

#include "core/problem_line.h"
#include "model/config.h"

namespace fovea::model {

inline constexpr std::string_view kCustom = "custom";  // the word of `model` for sizes of no preset

const core::KeyTable& model_keys();

// The context of the config is the line's length.
Config config_of(const core::LineValues& values);
Extent extent_of(const core::LineValues& values);

// Sets the keys of a model in a table that has those of model_keys(). `name`: of a preset, or custom.
void set_model(core::LineValues& values, std::string_view name, const Config& config, const Extent& extent,
               DeviceKind device);

}  // namespace fovea::model
