// The sizes' help, and the search for a preset.
#include "program/model_options.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "core/check.h"
#include "core/names.h"
#include "core/problem_line.h"
#include "program/command_line.h"

namespace fovea::program {

model::Config ModelSizes::applied_to(model::Config config) const {
  config.layers = layers.value_or(config.layers);
  config.width = width.value_or(config.width);
  config.heads = heads.value_or(config.heads);
  config.hidden = hidden.value_or(config.hidden);
  config.vocabulary = vocabulary.value_or(config.vocabulary);
  return config;
}

void add_size_options(CLI::App* verb, ModelSizes& sizes) {
  const auto add = [verb](const char* name, std::optional<std::int64_t>& value, const char* help) {
    verb->add_option(name, value, help)
        ->check(whole_number_within(1, std::numeric_limits<std::int32_t>::max()))
        ->type_name("N");
  };
  add("--layers", sizes.layers, "blocks (4)");
  add("--width", sizes.width, "columns of the residual stream (256)");
  add("--heads", sizes.heads, "heads of attention (4)");
  add("--hidden", sizes.hidden, "columns of SwiGLU (1024)");
  add("--vocabulary", sizes.vocabulary, "tokens that the model knows (256)");
}

void refuse_sizes_beside(const std::string& option, const ModelSizes& sizes) {
  if (!sizes.any()) return;
  core::fail({.status = Status::invalid_argument,
              .argument = option,
              .problem = "a preset has its own sizes",
              .got = option + " and sizes such as --layers",
              .wanted = "one of them"});
}

model::Config ModelModes::applied_to(model::Config config) const {
  config.dtype = dtype;
  config.checkpoints_activations = checkpoints_activations;
  return config;
}

void add_mode_options(CLI::App* verb, ModelModes& modes) {
  verb->add_option_function<std::string>(
          "--dtype", [&modes](const std::string& name) { modes.dtype = core::dtype_of(name).value_or(modes.dtype); },
          "type of products, attention and activations;\nweights stay fp32 beside bf16 (fp32)")
      ->check(CLI::IsMember({"fp32", "bf16"}));
  verb->add_flag("--checkpoint-activations", modes.checkpoints_activations,
                 "keep only the input of each block and run the\nblock again in backward: less memory, same bits");
}

void add_weights_option(CLI::App* verb, std::string& path) {
  verb->add_option("--weights", path,
                   "safetensors file to take the weights from, with\nnames of `fovea train` or of a Llama model")
      ->check(not_empty())
      ->type_name("FILE");
}

void add_device_option(CLI::App* verb, DeviceKind& device) {
  verb->add_option_function<std::string>(
          "--device", [&device](const std::string& name) { device = core::device_kind_of(name).value_or(device); },
          "device to run on (cpu)")
      ->check(CLI::IsMember({"cpu", "cuda"}));
}

const model::Config& preset_named(const std::string& option, const std::string& name) {
  if (const model::Preset* const found = model::find_preset(name)) return found->config;
  std::vector<std::string> known;
  std::string list;
  for (const model::Preset& one : model::presets()) {
    known.emplace_back(one.name);
    list += (list.empty() ? "" : ", ") + known.back();
  }
  // "sm" for "report-d1:sm"
  const auto ends_so = std::ranges::find_if(known, [&](const std::string& one) { return one.ends_with(":" + name); });
  const std::string near = ends_so != known.end() ? *ends_so : core::nearest_word(name, known);
  core::fail({.status = Status::invalid_argument,
              .argument = option,
              .problem = "no preset of this name",
              .got = name,
              .wanted = list,
              .hint = near.empty() ? "" : "did you mean `" + near + "`?"});
}

}  // namespace fovea::program
