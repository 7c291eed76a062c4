// Weights from safetensors files: types, both ways of naming, the order of rows, and what is refused.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/float16.h"
#include "fovea/error.h"
#include "program/weights/weights_file.h"
#include "run_program.h"

namespace fovea::program {
namespace {

using tests::Folder;
using tests::read_text;
using tests::write_text;
using Shape = std::vector<std::int64_t>;

struct FileTensor {
  std::string dtype = "F32";
  Shape shape;
  std::string bytes;
};
using FileTensors = std::map<std::string, FileTensor>;

// As another program writes it: without a SHA-256.
void write_file_of(const std::string& path, const FileTensors& tensors) {
  nlohmann::ordered_json header{{"__metadata__", {{"format", "pt"}}}};
  std::string data;
  for (const auto& [name, one] : tensors) {
    header[name] = {
        {"dtype", one.dtype}, {"shape", one.shape}, {"data_offsets", {data.size(), data.size() + one.bytes.size()}}};
    data += one.bytes;
  }
  const std::string json = header.dump();
  const std::uint64_t length = json.size();
  std::string text(sizeof length, '\0');
  std::memcpy(text.data(), &length, sizeof length);
  write_text(path, text + json + data);
}

template <class Element>
std::string bytes_of(const std::vector<Element>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Element)};
}

FileTensor floats(const Shape& shape, const std::vector<float>& values) { return {"F32", shape, bytes_of(values)}; }

TEST(Safetensors, ReadsTypesOfSixteenBitsAsFp32) {
  const Folder folder;
  const std::string path = folder / "a.safetensors";
  constexpr std::int64_t kCount = 1'200'000;  // more than is read at once
  std::vector<std::uint16_t> bits(kCount);
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint16_t>(i * 7);
  write_file_of(path,
                {{"bf16", {"BF16", {kCount}, bytes_of(bits)}}, {"fp16", {"F16", {2, kCount / 2}, bytes_of(bits)}}});
  const SafetensorsFile file(path);
  std::vector<float> bf16(kCount), fp16(kCount);
  file.read("bf16", {kCount}, bf16);
  file.read("fp16", {2, kCount / 2}, fp16);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    const float wanted[] = {core::bf16_to_float(bits[i]), core::fp16_to_float(bits[i])};
    ASSERT_EQ(std::memcmp(&bf16[i], &wanted[0], sizeof(float)), 0) << i;
    ASSERT_EQ(std::memcmp(&fp16[i], &wanted[1], sizeof(float)), 0) << i;
  }
  EXPECT_THROW(file.read("bf16", {kCount - 1}, bf16), SafetensorsError);
}

TEST(Safetensors, OtherTypesAreThereButNotRead) {
  const Folder folder;
  const std::string path = folder / "a.safetensors";
  write_file_of(path, {{"i8", {"I8", {4}, "abcd"}}, {"f64", {"F64", {1}, "abcdefgh"}}});
  const SafetensorsFile file(path);
  EXPECT_EQ(file.tensors().at("i8").dtype, "I8");
  std::vector<float> to(4);
  EXPECT_THROW(file.read("i8", {4}, to), SafetensorsError);
  EXPECT_THROW(file.read("f64", {1}, std::span(to).first(1)), SafetensorsError);
}

model::Config tiny() {
  model::Config c;
  c.layers = 1, c.width = 8, c.heads = 2, c.hidden = 3, c.vocabulary = 5;
  return c;
}

// Each number once: 1, 2, 3, ..
FileTensors counted(const std::vector<std::pair<std::string, Shape>>& tensors) {
  FileTensors all;
  float next = 0;
  for (const auto& [name, shape] : tensors) {
    std::int64_t count = 1;
    for (const std::int64_t size : shape) count *= size;
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) value = ++next;
    all[name] = floats(shape, values);
  }
  return all;
}

FileTensors own_file() {
  return counted({{"embedding.weight", {5, 8}},
                  {"layers.0.attention_norm.weight", {8}},
                  {"layers.0.attention.qkv.weight", {24, 8}},
                  {"layers.0.attention.out.weight", {8, 8}},
                  {"layers.0.feed_forward_norm.weight", {8}},
                  {"layers.0.feed_forward.gate.weight", {3, 8}},
                  {"layers.0.feed_forward.up.weight", {3, 8}},
                  {"layers.0.feed_forward.down.weight", {8, 3}},
                  {"norm.weight", {8}},
                  {"head.weight", {5, 8}}});
}

// The same numbers but for the order of rows in q and k: own_file() takes them in the order of the file.
FileTensors llama_file() {
  const std::string block = "model.layers.0.";
  return counted({{"model.embed_tokens.weight", {5, 8}},
                  {block + "input_layernorm.weight", {8}},
                  {block + "self_attn.q_proj.weight", {8, 8}},
                  {block + "self_attn.k_proj.weight", {8, 8}},
                  {block + "self_attn.v_proj.weight", {8, 8}},
                  {block + "self_attn.o_proj.weight", {8, 8}},
                  {block + "post_attention_layernorm.weight", {8}},
                  {block + "mlp.gate_proj.weight", {3, 8}},
                  {block + "mlp.up_proj.weight", {3, 8}},
                  {block + "mlp.down_proj.weight", {8, 3}},
                  {"model.norm.weight", {8}},
                  {"lm_head.weight", {5, 8}}});
}

std::vector<float> values_of(const FileTensors& tensors) {
  const Folder folder;
  write_file_of(folder / "weights", tensors);
  return WeightsFile(folder / "weights", tiny()).values();
}

TEST(WeightsFile, ReadsItsOwnNamesAndLeavesTheOptimizerOut) {
  const model::ParameterMap map(tiny());
  FileTensors file = own_file();
  file["optimizer.m.norm.weight"] = file["optimizer.v.norm.weight"] = floats({8}, std::vector<float>(8));
  const std::vector<float> values = values_of(file);
  ASSERT_EQ(static_cast<std::int64_t>(values.size()), map.floats());
  float next = 0;
  for (const model::Parameter& one : map.all()) {
    for (std::int64_t i = 0; i < one.count(); ++i)
      ASSERT_EQ(values[static_cast<std::size_t>(one.offset + i)], ++next) << one.name << " " << i;
  }
}

// Pairs of Llama's rows are halves of a head. Heads have four rows here, so 0 2 1 3 in each of q and k.
TEST(WeightsFile, ReadsLlamasNamesAndMakesPairsNeighbours) {
  const model::ParameterMap map(tiny());
  std::vector<float> wanted = values_of(own_file());
  const auto row = [&](std::int64_t index) { return wanted.begin() + map.blocks[0].qkv + 8 * index; };
  for (const std::int64_t head : {0, 4, 8, 12}) std::swap_ranges(row(head + 1), row(head + 2), row(head + 2));
  EXPECT_EQ(values_of(llama_file()), wanted);
}

TEST(WeightsFile, ATiedHeadIsTheEmbedding) {
  const Folder folder;
  FileTensors file = llama_file();
  file.erase("lm_head.weight");
  file["model.layers.0.self_attn.rotary_emb.inv_freq"] = {"I64", {1}, "abcdefgh"};  // a table, whatever its type
  write_file_of(folder / "weights", file);
  const WeightsFile weights(folder / "weights", tiny());
  const std::vector<float> values = weights.values();
  const model::ParameterMap map(tiny());
  for (std::int64_t i = 0; i < 40; ++i) {
    EXPECT_EQ(values[static_cast<std::size_t>(map.head + i)], static_cast<float>(i + 1));
    EXPECT_EQ(values[static_cast<std::size_t>(map.embedding + i)], static_cast<float>(i + 1));
  }
  EXPECT_EQ(weights.summary(), "weights of " + folder / "weights" +
                                   ": F32, names of Llama; no lm_head.weight, so the head begins as the embedding");
}

// What the refusal of a changed file says.
std::string refusal(FileTensors file, const std::function<void(FileTensors&)>& change) {
  change(file);
  const Folder folder;
  write_file_of(folder / "weights", file);
  try {
    WeightsFile(folder / "weights", tiny());
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::invalid_argument);
    EXPECT_NE(std::string(error.what()).find(folder / "weights"), std::string::npos) << error.what();
    return error.what();
  }
  ADD_FAILURE() << "not refused";
  return {};
}

void expect_said(const std::string& text, const std::vector<std::string>& all) {
  for (const std::string& one : all) EXPECT_NE(text.find(one), std::string::npos) << one << "\n" << text;
}

TEST(WeightsFile, NamesWhatIsWrong) {
  const std::string q = "model.layers.0.self_attn.q_proj.weight", k = "model.layers.0.self_attn.k_proj.weight";
  expect_said(refusal(llama_file(), [&](FileTensors& f) { f.erase(q); }),
              {"a weight is missing", "no `" + q + "` in "});
  expect_said(refusal(own_file(),
                      [](FileTensors& f) {
                        f.erase("head.weight");
                        f.erase("norm.weight");
                      }),
              {"no `norm.weight` and 1 other in "});
  expect_said(refusal(llama_file(), [&](FileTensors& f) { f["model.layers.0.self_attn.q_proj.bias"] = f[q]; }),
              {"no weight of this model", "`model.layers.0.self_attn.q_proj.bias` in "});
  expect_said(refusal(own_file(), [](FileTensors& f) { f["layers.1.attention_norm.weight"] = f["norm.weight"]; }),
              {"`layers.1.attention_norm.weight`", "the file is of --layers 2 --width 8 --vocabulary 5 --hidden 3"});
  expect_said(refusal(llama_file(),
                      [](FileTensors& f) {
                        f["model.embed_tokens.weight"] = floats({3, 8}, std::vector<float>(24));
                      }),
              {"another shape", "`model.embed_tokens.weight` [3, 8] in ", "wanted: [5, 8]", "--vocabulary 3"});
  expect_said(refusal(llama_file(),
                      [&](FileTensors& f) {
                        f[k] = floats({4, 8}, std::vector<float>(32));
                      }),
              {"no grouped key heads", "`" + k + "` [4, 8] in ", "[8, 8], as many key heads as query heads"});
  expect_said(refusal(own_file(),
                      [](FileTensors& f) {
                        f["norm.weight"] = {"I8", {8}, "12345678"};
                      }),
              {"a type that is not read", "`norm.weight` I8 in ", "F32, BF16 or F16"});
  expect_said(refusal(own_file(),
                      [](FileTensors& f) {
                        f["norm.weight"] = {"F64", {1}, "12345678"};
                      }),
              {"`norm.weight` F64 in "});
  expect_said(refusal({}, [](FileTensors&) {}), {"the names of the tensors are unknown", "no tensor in "});
  expect_said(refusal({}, [](FileTensors& f) { f["transformer.wte.weight"] = floats({1}, {1}); }),
              {"the names of the tensors are unknown", "`transformer.wte.weight`, .. in "});
}

TEST(WeightsFile, RefusesFilesThatAreNotWhole) {
  const Folder folder;
  const std::string path = folder / "weights";
  write_file_of(path, own_file());
  const std::string whole = read_text(path);
  const auto refused = [&](const std::string& text) {
    write_text(path, text);
    try {
      WeightsFile(path, tiny());
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_EQ(refused(whole), "");
  expect_said(refused(whole.substr(0, whole.size() - 1)), {"the file cannot be used", path, "was cut off"});
  expect_said(refused(whole + "x"), {path, "holds bytes beside its tensors"});
  expect_said(refused("no weights"), {path, "no safetensors file"});
  expect_said(refused(""), {path, "no safetensors file"});
  expect_said(refused(std::string(8, '\0')), {path, "its header is no JSON object"});
}

}  // namespace
}  // namespace fovea::program
