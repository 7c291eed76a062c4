// The keys, and the check of a line.
#include "program/record/model_line.h"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>

namespace fovea::program {
namespace {

constexpr std::array<ModelKey, 12> kKeys{{{"pass", "word", "phases of a step", "", "title"},
                                          {"model", "word", "preset, or custom", "", "column"},
                                          {"b", "count", "sequences", "batch", "title"},
                                          {"lq", "count", "tokens of a sequence", "context", "title"},
                                          {"layers", "number", "blocks", "layers", "column"},
                                          {"width", "number", "of the residual stream", "width", "column"},
                                          {"heads", "number", "of attention", "heads", "column"},
                                          {"hidden", "number", "columns of SwiGLU", "hidden", "column"},
                                          {"vocabulary", "number", "tokens known", "vocabulary", "column"},
                                          {"params", "count", "of the model", "parameters", "axis"},
                                          {"dtype", "word", "of weights and activations", "", "title"},
                                          {"device", "word", "that runs it", "device", "title"}}};

constexpr std::array<ModelPass, 6> kModelPasses{{{"fwd", "forward"},
                                                 {"bwd", "backward"},
                                                 {"e2e", "forward + backward"},
                                                 {"step_fwd", "forward of a step"},
                                                 {"step_rest", "backward + optimizer"},
                                                 {"step", "step with optimizer"}}};

[[noreturn]] void refuse_line(std::string_view key, std::string_view got) {
  throw std::runtime_error("in the problem line: not a value of `" + std::string(key) + "`, `" + std::string(got) +
                           "`");
}

bool is_value(const ModelKey& key, std::string_view value) {
  if (key.name == "pass") return std::ranges::find(kModelPasses, value, &ModelPass::word) != kModelPasses.end();
  if (key.kind == "word") return !value.empty();
  const bool digits = std::ranges::all_of(value, [](char one) { return one >= '0' && one <= '9'; });
  return digits && !value.empty() && value.size() < 19 && value[0] != '0';
}

}  // namespace

std::span<const ModelKey> model_keys() { return kKeys; }
std::span<const ModelPass> model_passes() { return kModelPasses; }

void check_model_line(std::string_view line) {
  line.remove_prefix(std::min(line.size(), kModelOperation.size()));
  for (const ModelKey& key : kKeys) {
    const std::string_view word = line.substr(0, line.find(' '));
    const std::size_t equals = std::min(word.find('='), word.size());
    if (word.substr(0, equals) != key.name || !is_value(key, word.substr(std::min(equals + 1, word.size()))))
      refuse_line(key.name, word);
    line.remove_prefix(std::min(word.size() + 1, line.size()));
  }
  if (!line.empty()) refuse_line(kKeys.back().name, line);
}

}  // namespace fovea::program
