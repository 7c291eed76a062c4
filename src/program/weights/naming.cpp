// The names of both, block by block.
#include "program/weights/naming.h"

#include <algorithm>
#include <charconv>

namespace fovea::program {
namespace {

constexpr std::string_view kBlocks[] = {"layers.", "model.layers."};  // by Naming
constexpr const char* kEmbeddings[] = {"embedding.weight", kLlamaEmbedding};
constexpr const char* kGates[] = {"layers.0.feed_forward.gate.weight", "model.layers.0.mlp.gate_proj.weight"};

template <class Names>
auto& of(Naming naming, Names& names) {
  return names[static_cast<std::size_t>(naming)];
}

std::vector<NamedTensor> own_tensors(const model::ParameterMap& map) {
  std::vector<NamedTensor> all;
  for (const model::Parameter& one : map.all()) all.push_back({one.name, one.shape(), one.offset});
  return all;
}

// q, k and v are one matrix here, below one another, as are gate and up.
std::vector<NamedTensor> llama_tensors(const model::Config& c, const model::ParameterMap& map) {
  using Shape = std::vector<std::int64_t>;
  const Shape vector{c.width}, square{c.width, c.width}, wide{c.hidden, c.width};
  std::vector<NamedTensor> all{{kLlamaEmbedding, {c.vocabulary, c.width}, map.embedding}};
  for (std::size_t i = 0; i < map.blocks.size(); ++i) {
    const model::BlockOffsets& block = map.blocks[i];
    const auto add = [&](const char* name, const Shape& shape, std::int64_t offset, bool pairs_are_halves = false) {
      all.push_back({"model.layers." + std::to_string(i) + "." + name + ".weight", shape, offset, pairs_are_halves});
    };
    const std::int64_t columns = c.width * c.width;
    add("input_layernorm", vector, block.attention_norm);
    add("self_attn.q_proj", square, block.qkv, true);
    add("self_attn.k_proj", square, block.qkv + columns, true);
    add("self_attn.v_proj", square, block.qkv + 2 * columns);
    add("self_attn.o_proj", square, block.out);
    add("post_attention_layernorm", vector, block.feed_forward_norm);
    add("mlp.gate_proj", wide, block.gate_up);
    add("mlp.up_proj", wide, block.gate_up + c.hidden * c.width);
    add("mlp.down_proj", {c.width, c.hidden}, block.down);
  }
  all.push_back({"model.norm.weight", vector, map.norm});
  all.push_back({kLlamaHead, {c.vocabulary, c.width}, map.head});
  return all;
}

// The number of blocks that names tell.
std::int64_t blocks_of(Naming naming, const Entries& tensors) {
  const std::string_view prefix = of(naming, kBlocks);
  std::int64_t count = 0;
  for (const auto& [name, entry] : tensors) {
    if (!name.starts_with(prefix)) continue;
    std::int64_t number = -1;
    std::from_chars(name.data() + prefix.size(), name.data() + name.size(), number);
    count = std::max(count, number + 1);
  }
  return count;
}

}  // namespace

std::vector<NamedTensor> named_tensors(Naming naming, const model::Config& config, const model::ParameterMap& map) {
  return naming == Naming::fovea ? own_tensors(map) : llama_tensors(config, map);
}

bool is_left_out(Naming naming, const std::string& name) {
  return naming == Naming::fovea ? name.starts_with("optimizer.") : name.ends_with(".rotary_emb.inv_freq");
}

std::optional<Naming> naming_of(const Entries& tensors) {
  for (const Naming naming : {Naming::fovea, Naming::llama}) {
    if (tensors.contains(of(naming, kEmbeddings)) || blocks_of(naming, tensors) > 0) return naming;
  }
  return std::nullopt;
}

std::string size_options_of(Naming naming, const Entries& tensors) {
  std::string text;
  const auto tell = [&](const char* option, std::int64_t size) {
    text += (text.empty() ? "" : " ") + std::string(option) + " " + std::to_string(size);
  };
  const auto matrix = [&](const char* name) {
    const auto found = tensors.find(name);
    return found == tensors.end() || found->second.shape.size() != 2 ? nullptr : &found->second.shape;
  };
  if (const std::int64_t blocks = blocks_of(naming, tensors); blocks > 0) tell("--layers", blocks);
  if (const auto* const embedding = matrix(of(naming, kEmbeddings)))
    tell("--width", embedding->at(1)), tell("--vocabulary", embedding->at(0));
  if (const auto* const gate = matrix(of(naming, kGates))) tell("--hidden", gate->at(0));
  return text;
}

}  // namespace fovea::program
