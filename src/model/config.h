// The sizes of a decoder-only transformer: pre-norm RMSNorm, rotary attention, SwiGLU with three matrices, an untied
// head. Presets carry the sizes of published profiles.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "fovea/tensor.h"

namespace fovea::model {

struct Config {
  std::int64_t vocabulary = 256;
  std::int64_t layers = 4;
  std::int64_t width = 256;
  std::int64_t heads = 4;      // a divisor of width; the head dimension is even
  std::int64_t hidden = 1024;  // columns of SwiGLU
  std::int64_t context = 256;  // the longest sequence
  double theta = 1e4;          // of the rotary embedding
  double epsilon = 1e-5;       // of RMSNorm
  DType dtype = DType::fp32;   // of products, attention and what they read; bf16: docs/kernels/model.md has all types
  bool checkpoints_activations = false;  // blocks run again before backward, to the same bits, in less memory

  std::int64_t head_dim() const { return width / heads; }
  bool operator==(const Config&) const = default;
};

// Sequences of one forward pass.
struct Extent {
  std::int64_t batch = 1, length = 1;
  std::int64_t rows() const { return batch * length; }
};

struct Preset {
  std::string_view name;  // report-d1:sm, cs336-2026:xl
  Config config;
};

// Report D1 and both years of CS336, assignment 2, have other models under the same short names. So a name has its
// source before a colon. Their contexts vary from run to run; the presets hold 512.
std::span<const Preset> presets();
const Preset* find_preset(std::string_view name);

// Throws Error(invalid_argument) for sizes that make no model, or more than a machine holds.
void check(const Config& config, std::string_view call);
void check(const Config& config, const Extent& extent, std::string_view call);

// Of all weights; the largest number if it is beyond 64 bits.
std::int64_t parameter_count(const Config& config);

// What decides the numbers: "layers=4 width=256 heads=4 hidden=1024 vocabulary=256 context=256", in bf16 also
// "dtype=bf16".
std::string line_of(const Config& config);

}  // namespace fovea::model
