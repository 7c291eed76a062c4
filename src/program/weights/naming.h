// Names of a model's weights in safetensors files: Fovea's own, and those of Hugging Face's Llama models
// (huggingface.co/docs/transformers, LlamaForCausalLM).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/parameters.h"
#include "program/weights/safetensors.h"

namespace fovea::program {

enum class Naming : std::uint8_t { fovea, llama };

// A tensor of a file, and where its values go.
struct NamedTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t offset = 0;  // of its first element, in the parameter map
  // The rows of a head are in the order of RotaryPairs::halves: row i makes a pair with row i + n of 2 n. This model
  // has interleaved pairs, so it wants them as rows 2 i and 2 i + 1.
  bool pairs_are_halves = false;
};

// All that a file must hold, in the order of the map.
std::vector<NamedTensor> named_tensors(Naming naming, const model::Config& config, const model::ParameterMap& map);

// Whether a file may hold a tensor that is no weight: the optimizer's moments, tables that follow from the sizes.
bool is_left_out(Naming naming, const std::string& name);

using Entries = std::map<std::string, SafetensorsFile::Entry>;

// Nullopt for names of another program.
std::optional<Naming> naming_of(const Entries& tensors);

// The options for the sizes that the file's tensors have, as far as they tell: "--layers 2 --width 16 ..".
std::string size_options_of(Naming naming, const Entries& tensors);

inline constexpr const char *kLlamaEmbedding = "model.embed_tokens.weight", *kLlamaHead = "lm_head.weight";

}  // namespace fovea::program
