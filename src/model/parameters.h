// Where each weight of a model lies in one flat array of fp32. Gradients and both moments of the optimizer have arrays
// with the same map.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/config.h"

namespace fovea::model {

struct Parameter {
  std::string name;                    // layers.0.feed_forward.gate.weight
  std::int64_t rows = 0, columns = 0;  // a vector has one row
  std::int64_t offset = 0;             // its first element
  bool is_vector = false;              // of a norm: begins with ones, and weight decay leaves it out
  double deviation = 0;                // of the normal numbers that a matrix begins with

  std::int64_t count() const { return rows * columns; }
  // In files: [columns] of a vector, else [rows, columns].
  std::vector<std::int64_t> shape() const;
};

// Offsets of one block. gate and up are neighbours: below one another they are one matrix [2 hidden, width].
struct BlockOffsets {
  std::int64_t attention_norm = 0, qkv = 0, out = 0, feed_forward_norm = 0, gate_up = 0, down = 0;
};

class ParameterMap {
 public:
  explicit ParameterMap(const Config& config);

  std::span<const Parameter> all() const { return all_; }
  std::int64_t count() const;                      // of parameters
  std::int64_t floats() const { return floats_; }  // of the array, which also has gaps: matrices begin on 64 bytes

  std::int64_t embedding = 0, norm = 0, head = 0;  // offsets
  std::vector<BlockOffsets> blocks;

 private:
  std::int64_t add(const Parameter& parameter);
  std::int64_t add_vector(const std::string& name, std::int64_t columns);
  std::int64_t add_matrix(const std::string& name, std::int64_t rows, std::int64_t columns, double deviation);

  std::vector<Parameter> all_;
  std::int64_t floats_ = 0;
};

// Ones for norms, normal numbers for matrices. The numbers depend on the seed and their position only. Deviations are
// those of GPT-2 (Radford et al. 2019): 0.02, and less by sqrt(2 layers) for matrices that end a branch.
void initialize(const ParameterMap& map, std::uint64_t seed, std::span<float> weights);

}  // namespace fovea::model
