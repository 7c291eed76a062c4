// Presets, and the refusals of sizes.
#include "model/config.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <initializer_list>

#include "core/check.h"
#include "core/names.h"
#include "core/tensor_checks.h"
#include "fovea/rotary.h"

namespace fovea::model {
namespace {

constexpr std::int64_t kMostLayers = std::int64_t{1} << 16;

constexpr Config sized(std::int64_t width, std::int64_t hidden, std::int64_t layers, std::int64_t heads) {
  return {.vocabulary = 10'000, .layers = layers, .width = width, .heads = heads, .hidden = hidden, .context = 512};
}

constexpr Config kSmall = sized(768, 3072, 12, 12), kMedium = sized(1024, 4096, 24, 16),
                 kLarge = sized(1280, 5120, 36, 20), kXl = sized(1600, 6400, 48, 25),
                 k2700M = sized(2560, 10240, 32, 32), k10B = sized(4608, 12288, 50, 36);

constexpr std::array<Preset, 13> kPresets{{{"report-d1:sm", kSmall},
                                           {"report-d1:md", kMedium},
                                           {"report-d1:lg", kLarge},
                                           {"cs336-2025:small", kSmall},
                                           {"cs336-2025:medium", kMedium},
                                           {"cs336-2025:large", kLarge},
                                           {"cs336-2025:xl", kXl},
                                           {"cs336-2025:2.7b", k2700M},
                                           {"cs336-2026:small", kSmall},
                                           {"cs336-2026:medium", kMedium},
                                           {"cs336-2026:large", kLarge},
                                           {"cs336-2026:xl", k2700M},
                                           {"cs336-2026:10b", k10B}}};

}  // namespace

std::span<const Preset> presets() { return kPresets; }

const Preset* find_preset(std::string_view name) {
  for (const Preset& one : kPresets) {
    if (one.name == name) return &one;
  }
  return nullptr;
}

void check(const Config& c, std::string_view call) {
  const core::Validator validator(call);
  for (const auto& [name, size] : {std::pair{"vocabulary", c.vocabulary},
                                   {"layers", c.layers},
                                   {"width", c.width},
                                   {"heads", c.heads},
                                   {"hidden", c.hidden},
                                   {"context", c.context}}) {
    if (size < 1)
      validator.refuse(name, "no size of a model", core::to_string(size), "1 or more",
                       "see the presets for usual sizes");
  }
  if (c.layers > kMostLayers)
    validator.refuse("layers", "more blocks than a machine holds", core::to_string(c.layers),
                     "at most " + core::to_string(kMostLayers), "see the presets for usual sizes");
  if (c.width % c.heads != 0)
    validator.refuse("heads", "the width does not split into heads",
                     "width " + core::to_string(c.width) + ", heads " + core::to_string(c.heads), "a divisor of width",
                     "every head has width / heads columns");
  if (c.head_dim() % 2 != 0)
    validator.refuse("heads", "the rotary embedding turns pairs of columns",
                     "a head dimension of " + core::to_string(c.head_dim()), "an even one", "choose other heads");
  if (!(c.theta >= 1) || !std::isfinite(c.theta))
    validator.refuse("theta", "no base of a rotary embedding", std::to_string(c.theta), "a finite number of 1 or more",
                     "10000 is usual");
  if (!(c.epsilon > 0) || !std::isfinite(c.epsilon))
    validator.refuse("epsilon", "not a positive number", std::to_string(c.epsilon), "a finite number above 0",
                     "1e-5 is usual");
  if (c.dtype == DType::fp16)
    validator.refuse("dtype", "a type that training cannot use", std::string(core::name_of(c.dtype)), "fp32 or bf16",
                     "gradients in fp16 need a scaled loss");
  if (c.context > Rotary::kMaxPosition)
    validator.refuse("context", "beyond the positions of the rotary embedding", core::to_string(c.context),
                     "at most " + core::to_string(Rotary::kMaxPosition), "fovea/rotary.h tells why");
  constexpr std::int64_t kMost = core::kMaxElements / 64;
  if (!core::product_within({c.layers, c.width, c.hidden}, kMost) ||
      !core::product_within({c.layers, c.width, c.width}, kMost) ||
      !core::product_within({c.vocabulary, c.width}, kMost))
    validator.refuse("width", "more parameters than a machine holds", line_of(c),
                     "at most " + core::to_string(kMost) + " numbers in one kind of matrix", "sizes count elements");
}

void check(const Config& c, const Extent& e, std::string_view call) {
  check(c, call);
  const core::Validator validator(call);
  if (e.batch < 1)
    validator.refuse("batch", "no sequences", core::to_string(e.batch), "1 or more", "it counts sequences");
  if (e.length < 1 || e.length > c.context)
    validator.refuse("length", "a sequence that does not fit the context", core::to_string(e.length),
                     "1 to " + core::to_string(c.context), "context is the longest sequence of the model");
  if (!core::product_within({e.batch, e.length, c.hidden, 2}, core::kMaxElements) ||
      !core::product_within({e.batch, e.length, c.width, 3}, core::kMaxElements) ||
      !core::product_within({e.batch, e.length, c.vocabulary}, core::kMaxElements))
    validator.refuse("batch", "more activations than a machine holds", core::to_string(e.batch),
                     "at most " + core::to_string(core::kMaxElements) + " numbers in one of them", "reduce the batch");
}

std::int64_t parameter_count(const Config& c) {
  const auto product = [](std::int64_t a, std::int64_t b) {
    std::int64_t result = 0;
    return __builtin_mul_overflow(a, b, &result) ? INT64_MAX : result;
  };
  const auto sum = [](std::initializer_list<std::int64_t> all) {
    std::int64_t result = 0;
    for (const std::int64_t one : all) {
      if (__builtin_add_overflow(result, one, &result)) return INT64_MAX;
    }
    return result;
  };
  const std::int64_t matrices = sum({product(4, product(c.width, c.width)), product(3, product(c.width, c.hidden))});
  const std::int64_t block = sum({product(2, c.width), matrices});
  return sum({product(2, product(c.vocabulary, c.width)), product(c.layers, block), c.width});
}

std::string line_of(const Config& c) {
  std::string line;
  for (const auto& [name, size] : {std::pair{"layers", c.layers},
                                   {"width", c.width},
                                   {"heads", c.heads},
                                   {"hidden", c.hidden},
                                   {"vocabulary", c.vocabulary},
                                   {"context", c.context}})
    line += (line.empty() ? "" : " ") + std::string(name) + "=" + core::to_string(size);
  if (c.dtype != DType::fp32) line += " dtype=" + std::string(core::name_of(c.dtype));
  return line;
}

}  // namespace fovea::model
