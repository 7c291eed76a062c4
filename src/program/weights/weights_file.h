// The weights of a model in a safetensors file, which `fovea train` or another program wrote.
#pragma once

#include <string>
#include <vector>

#include "model/model.h"
#include "program/weights/naming.h"
#include "program/weights/safetensors.h"

namespace fovea::program {

class WeightsFile {
 public:
  // Reads the header. Throws Error(invalid_argument) that names the file, the tensor, what it has and what is wanted,
  // unless the file holds all weights of such a model and nothing else. Biases and grouped key heads have no place in
  // the model.
  WeightsFile(const std::string& path, const model::Config& config);

  // All weights in fp32, in the layout of the parameter map. Throws Error(invalid_argument) if the file cannot be read.
  std::vector<float> values() const;

  // Whose names the file has, the types, and whether the head is the embedding.
  std::string summary() const;

 private:
  void check_missing() const;
  void check_entry(const NamedTensor& tensor) const;
  void check_others() const;
  std::string size_hint() const;

  std::string path_;
  model::Config config_;
  model::ParameterMap map_;
  SafetensorsFile file_;
  Naming naming_;
  bool is_tied_ = false;
  std::vector<NamedTensor> tensors_;
};

}  // namespace fovea::program
