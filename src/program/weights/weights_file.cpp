// Everything is checked before a value is read.
#include "program/weights/weights_file.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/check.h"
#include "core/printable.h"

namespace fovea::program {
namespace {

[[noreturn]] void refuse_weights(const std::string& problem, const std::string& got, const std::string& wanted,
                                 const std::string& hint = {}) {
  core::fail({.status = Status::invalid_argument,
              .argument = "--weights",
              .problem = problem,
              .got = got,
              .wanted = wanted,
              .hint = hint});
}

[[noreturn]] void refuse_file(const SafetensorsError& error) {
  refuse_weights("the file cannot be used", error.what(), "a whole safetensors file");
}

SafetensorsFile opened(const std::string& path) try {
  return SafetensorsFile(path);
} catch (const SafetensorsError& error) {
  refuse_file(error);
}

Naming naming_in(const std::string& path, const Entries& tensors) {
  if (const auto found = naming_of(tensors)) return *found;
  const std::string first = tensors.empty() ? "no tensor" : "`" + core::printable(tensors.begin()->first) + "`, ..";
  refuse_weights("the names of the tensors are unknown", first + " in " + path,
                 "`embedding.weight`, `layers.0.attention.qkv.weight`, .. as `fovea train` writes them, or `" +
                     std::string(kLlamaEmbedding) + "`, .. as in Llama models of Hugging Face");
}

std::string and_others(std::size_t count) {
  return count > 1 ? " and " + std::to_string(count - 1) + (count == 2 ? " other" : " others") : "";
}

// In each head, rows i and i + n of 2 n become rows 2 i and 2 i + 1.
void interleave_pairs(std::span<float> matrix, std::int64_t columns, std::int64_t head_rows) {
  const std::vector<float> halves(matrix.begin(), matrix.end());
  const std::int64_t rows = static_cast<std::int64_t>(matrix.size()) / columns, n = head_rows / 2;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t within = row % head_rows, from = row - within + within / 2 + within % 2 * n;
    std::copy_n(halves.begin() + from * columns, columns, matrix.begin() + row * columns);
  }
}

}  // namespace

WeightsFile::WeightsFile(const std::string& path, const model::Config& config)
    : path_(path),
      config_(config),
      map_(config),
      file_(opened(path)),
      naming_(naming_in(path, file_.tensors())),
      tensors_(named_tensors(naming_, config, map_)) {
  is_tied_ = naming_ == Naming::llama && !file_.tensors().contains(kLlamaHead);
  if (is_tied_) std::ranges::find(tensors_, kLlamaHead, &NamedTensor::name)->name = kLlamaEmbedding;
  check_missing();
  for (const NamedTensor& one : tensors_) check_entry(one);
  check_others();
}

std::string WeightsFile::size_hint() const {
  const std::string sizes = size_options_of(naming_, file_.tensors());
  return sizes.empty() ? "" : "the file is of " + sizes;
}

void WeightsFile::check_missing() const {
  std::vector<std::string> missing;
  for (const NamedTensor& one : tensors_) {
    if (!file_.tensors().contains(one.name)) missing.push_back(one.name);
  }
  if (missing.empty()) return;
  refuse_weights("a weight is missing", "no `" + missing.front() + "`" + and_others(missing.size()) + " in " + path_,
                 "all weights of " + model::line_of(config_) + " in one file", size_hint());
}

void WeightsFile::check_entry(const NamedTensor& wanted) const {
  const SafetensorsFile::Entry& entry = file_.tensors().at(wanted.name);
  const std::string name = "`" + wanted.name + "` ";
  if (!is_read_type(entry.dtype))
    refuse_weights("a type that is not read", name + core::printable(entry.dtype) + " in " + path_, kReadTypes);
  if (entry.shape == wanted.shape) return;
  const std::string got = name + text_of(entry.shape) + " in " + path_;
  const bool is_key = wanted.name.ends_with("k_proj.weight") || wanted.name.ends_with("v_proj.weight");
  if (is_key && entry.shape.size() == 2 && entry.shape[1] == config_.width && entry.shape[0] < config_.width)
    refuse_weights("this model has no grouped key heads", got,
                   text_of(wanted.shape) + ", as many key heads as query heads");
  refuse_weights("a weight of another shape", got, text_of(wanted.shape), size_hint());
}

void WeightsFile::check_others() const {
  std::set<std::string> known;
  for (const NamedTensor& one : tensors_) known.insert(one.name);
  std::vector<std::string> others;
  for (const auto& [name, entry] : file_.tensors()) {
    if (!known.contains(name) && !is_left_out(naming_, name)) others.push_back(core::printable(name));
  }
  if (others.empty()) return;
  refuse_weights("a tensor that is no weight of this model",
                 "`" + others.front() + "`" + and_others(others.size()) + " in " + path_,
                 "the weights of " + model::line_of(config_), size_hint());
}

std::vector<float> WeightsFile::values() const try {
  std::vector<float> all(static_cast<std::size_t>(map_.floats()));
  for (const NamedTensor& one : tensors_) {
    std::size_t count = 1;
    for (const std::int64_t size : one.shape) count *= static_cast<std::size_t>(size);
    const std::span<float> to = std::span(all).subspan(static_cast<std::size_t>(one.offset), count);
    file_.read(one.name, one.shape, to);
    if (!std::ranges::all_of(to, [](float value) { return std::isfinite(value); }))
      refuse_weights("a weight that is not finite", "NaN or infinity in `" + one.name + "` of " + path_,
                     "finite numbers");
    if (one.pairs_are_halves) interleave_pairs(to, config_.width, config_.head_dim());
  }
  return all;
} catch (const SafetensorsError& error) {
  refuse_file(error);
}

std::string WeightsFile::summary() const {
  std::set<std::string> types;
  for (const NamedTensor& one : tensors_) types.insert(file_.tensors().at(one.name).dtype);
  std::string text = "weights of " + core::printable(path_) + ": ";
  for (const std::string& type : types) text += type + ", ";
  text += naming_ == Naming::fovea ? "names of Fovea" : "names of Llama";
  return text + (is_tied_ ? "; no lm_head.weight, so the head begins as the embedding" : "");
}

}  // namespace fovea::program
