// Tensors of a checkpoint: each parameter by its name, and its moments below optimizer.m. and optimizer.v.
#include "program/train/checkpoint.h"

#include <array>
#include <charconv>
#include <span>
#include <utility>
#include <vector>

#include "core/check.h"

namespace fovea::program {
namespace {

constexpr const char *kFormatKey = "format", *kFormat = "fovea.checkpoint/1", *kStep = "step";

[[noreturn]] void refuse(const std::string& problem, const std::string& got, const std::string& wanted,
                         const std::string& hint) {
  core::fail({.status = Status::invalid_argument,
              .argument = "--resume",
              .problem = problem,
              .got = got,
              .wanted = wanted,
              .hint = hint});
}

struct Stored {
  model::State state;
  const char* prefix;
};
constexpr std::array<Stored, 3> kStored{{{model::State::weights, ""},
                                         {model::State::first_moment, "optimizer.m."},
                                         {model::State::second_moment, "optimizer.v."}}};
using Arrays = std::array<std::span<float>, kStored.size()>;  // of the model, or copies on the host

// visit(name, shape, values) for all tensors of a checkpoint, in the order of the file.
template <class Visit>
void for_each_tensor(const model::ParameterMap& map, const Arrays& arrays, Visit visit) {
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    for (const model::Parameter& one : map.all())
      visit(kStored[i].prefix + one.name, one.shape(),
            arrays[i].subspan(static_cast<std::size_t>(one.offset), static_cast<std::size_t>(one.count())));
  }
}

std::string value_of(const Metadata& all, const std::string& key) {
  const auto found = all.find(key);
  return found == all.end() ? "" : found->second;
}

void check_settings(const std::string& path, const Metadata& stored, const Metadata& settings) {
  if (value_of(stored, kFormatKey) != kFormat)
    refuse("a safetensors file that is no checkpoint of fovea", path, std::string("format ") + kFormat,
           "name a folder that `fovea train` wrote");
  for (const auto& [key, value] : settings) {
    if (value_of(stored, key) != value)
      refuse("a checkpoint of another training: " + key + " differs", key + " " + value,
             key + " " + value_of(stored, key) + ", as in " + path, "repeat the options of the first run");
  }
}

std::int64_t step_of(const std::string& path, const Metadata& stored) {
  const std::string text = value_of(stored, kStep);
  std::int64_t step = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), step);
  if (error != std::errc{} || end != text.data() + text.size() || step < 0)
    refuse("a checkpoint without a step", path, "a number of 0 or more", "the file was changed by another program");
  return step;
}

}  // namespace

void save_checkpoint(const std::string& path, model::Model& model, const Metadata& settings, std::int64_t step) {
  Metadata metadata = settings;
  metadata[kFormatKey] = kFormat;
  metadata[kStep] = std::to_string(step);
  std::array<std::vector<float>, kStored.size()> copies;
  Arrays arrays;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (model.device().kind == DeviceKind::cpu)
      arrays[i] = model.state(kStored[i].state);
    else
      arrays[i] = copies[i] = model.read(kStored[i].state, {});
  }
  std::vector<StoredTensor> tensors;
  for_each_tensor(model.map(), arrays,
                  [&](const std::string& name, const std::vector<std::int64_t>& shape, std::span<float> values) {
                    tensors.push_back({name, shape, values});
                  });
  write_safetensors(path, metadata, tensors);
}

std::int64_t load_checkpoint(const std::string& path, model::Model& model, const Metadata& settings) {
  try {
    const SafetensorsFile file(path);
    check_settings(path, file.metadata(), settings);
    const std::int64_t step = step_of(path, file.metadata());
    if (file.tensors().size() != 3 * model.map().all().size())
      refuse("a checkpoint with another number of tensors", std::to_string(file.tensors().size()),
             std::to_string(3 * model.map().all().size()), "the file was changed by another program");
    std::array<std::vector<float>, kStored.size()> values;
    Arrays arrays;
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      values[i].resize(static_cast<std::size_t>(model.map().floats()));
      arrays[i] = values[i];
    }
    for_each_tensor(model.map(), arrays,
                    [&](const std::string& name, const std::vector<std::int64_t>& shape, std::span<float> to) {
                      file.read(name, shape, to);
                    });
    for (std::size_t i = 0; i < arrays.size(); ++i) model.write(kStored[i].state, arrays[i], {});
    return step;
  } catch (const SafetensorsError& error) {
    refuse("the checkpoint cannot be used", error.what(), "a file that `fovea train` wrote",
           "the training can begin anew in another folder");
  }
}

}  // namespace fovea::program
