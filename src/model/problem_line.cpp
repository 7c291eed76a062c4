// The keys, the sizes of presets as defaults, and which combinations are no model.
#include "model/problem_line.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "core/names.h"
#include "core/never_destroyed.h"
#include "core/tensor_checks.h"
#include "fovea/error.h"

namespace fovea::model {
namespace {

using core::Key;
using core::KeyKind;
using core::KeyPlace;
using core::LineFault;
using core::LineValues;

constexpr std::array<std::pair<std::string_view, std::int64_t Config::*>, 5> kSizes{
    {{"layers", &Config::layers},
     {"width", &Config::width},
     {"heads", &Config::heads},
     {"hidden", &Config::hidden},
     {"vocabulary", &Config::vocabulary}}};

Config named_config(const LineValues& values) {
  const Preset* const preset = find_preset(values["model"]);
  return preset == nullptr ? Config{} : preset->config;
}

template <std::int64_t Config::*Size>
std::string size_of_model(const LineValues& values) {
  return std::to_string(named_config(values).*Size);
}

bool keeps_activations(const LineValues& values) { return values["pass"] != "fwd"; }
bool has_gradients(const LineValues& values) { return keeps_activations(values) && values["pass"] != "step_fwd"; }

// Without the keys that follow them in a line.
Config sizes_of(const LineValues& values) {
  Config config{.context = values.count("lq")};
  for (const auto& [key, size] : kSizes) config.*size = values.count(key);
  return config;
}

std::string counted(const LineValues& values) { return std::to_string(parameter_count(sizes_of(values))); }

std::vector<std::string_view> model_words() {
  std::vector<std::string_view> words{kCustom};
  for (const Preset& one : presets()) words.push_back(one.name);
  return words;
}

// A key of the line for what a refusal calls otherwise.
std::string_view key_of(std::string_view argument) {
  if (argument == "batch") return "b";
  if (argument == "length" || argument == "context") return "lq";
  for (const auto& [key, size] : kSizes) {
    if (key == argument) return key;
  }
  return "model";
}

std::optional<LineFault> fault_of(const LineValues& values) {
  const Config config = config_of(values);
  try {
    check(config, extent_of(values), "model");
  } catch (const Error& error) {
    const ErrorDetails& d = error.details();
    return LineFault{{key_of(d.argument), "model"}, d.problem, d.got, d.wanted, d.hint};
  }
  for (const auto& [key, size] : kSizes) {
    if (values["model"] != kCustom && config.*size != named_config(values).*size)
      return LineFault{{key, "model"},
                       "a preset has its own sizes",
                       std::string(key) + "=" + values[key] + " model=" + values["model"],
                       std::to_string(named_config(values).*size),
                       "model=custom takes any sizes"};
  }
  if (values["params"] == counted(values)) return std::nullopt;
  return LineFault{{"params", "model"},
                   "the sizes make another number of parameters",
                   "params=" + values["params"],
                   counted(values),
                   "leave params out: it follows from the sizes"};
}

Key size_key(std::string_view name, std::string_view help, std::string (*formula)(const LineValues&)) {
  return Key{name, KeyKind::count, help, {}, "the model's", formula}.printed({.noun = name, .place = KeyPlace::column});
}

std::vector<Key> keys() {
  Key pass = core::pass_key();
  pass.help = "phases that run; those of a step end with an update of the weights";
  pass.words.insert(pass.words.end(), {"step_fwd", "step_rest", "step"});
  Key dtype = core::dtype_key();
  dtype.words = {"fp32", "bf16"};
  return {pass,
          Key{"model", KeyKind::word, "preset, or custom for sizes of your own", model_words(), std::string(kCustom)}
              .printed({.noun = "", .place = KeyPlace::column, .always = true, .follows = "params"}),
          Key{"b", KeyKind::count, "sequences"}.printed({.noun = "batch"}),
          Key{"lq", KeyKind::count, "tokens of a sequence"}.printed({.noun = "context"}),
          size_key("layers", "blocks", size_of_model<&Config::layers>),
          size_key("width", "of the residual stream", size_of_model<&Config::width>),
          size_key("heads", "of attention, a divisor of width", size_of_model<&Config::heads>),
          size_key("hidden", "columns of SwiGLU", size_of_model<&Config::hidden>),
          size_key("vocabulary", "tokens that the model knows", size_of_model<&Config::vocabulary>),
          Key{"params", KeyKind::count, "of the model", {}, "counted", counted}.printed(
              {.noun = "parameters", .place = KeyPlace::axis}),
          dtype,
          {"activations",
           KeyKind::word,
           "what forward keeps for backward: all, or the input of each block",
           {"kept", "checkpointed"},
           "kept",
           nullptr,
           keeps_activations},
          {"accumulate", KeyKind::word, "add gradients to what is there", {"no", "yes"}, "no", nullptr, has_gradients},
          core::device_key()};
}

}  // namespace

const core::KeyTable& model_keys() {
  static const auto& table = core::never_destroyed<core::KeyTable>(core::KeyTable{"model", keys(), fault_of});
  return table;
}

Config config_of(const LineValues& values) {
  Config config = sizes_of(values);
  config.dtype = *core::dtype_of(values["dtype"]);
  config.checkpoints_activations = values["activations"] == "checkpointed";
  return config;
}

Extent extent_of(const LineValues& values) { return {values.count("b"), values.count("lq")}; }

void set_model(LineValues& values, std::string_view name, const Config& config, const Extent& extent,
               DeviceKind device) {
  values.set("model", std::string(name));
  values.set("b", extent.batch), values.set("lq", extent.length);
  for (const auto& [key, size] : kSizes) values.set(key, config.*size);
  values.set("params", parameter_count(config));
  values.set("dtype", std::string(core::name_of(config.dtype)));
  values.set("activations", std::string(config.checkpoints_activations ? "checkpointed" : "kept"));
  values.set("device", std::string(core::name_of(device)));
}

}  // namespace fovea::model
