// The problem line of a whole model, op=model, which fovea profile times. No verb takes such a line.
//   op=model pass=step model=report-d1:sm b=2 lq=512 layers=12 width=768 .. params=128625408 dtype=fp32 device=cpu
#pragma once

#include <span>
#include <string_view>

namespace fovea::program {

inline constexpr std::string_view kModelOperation = "op=model ";

// As the vocabulary of reports describes keys (program/vocabulary.h).
struct ModelKey {
  std::string_view name, kind, help, noun, place;
};
std::span<const ModelKey> model_keys();  // in the order of the line

struct ModelPass {
  std::string_view word, meaning;
};
std::span<const ModelPass> model_passes();

// Throws std::runtime_error for a line that does not have all keys in their order, or a count that is none.
void check_model_line(std::string_view line);

}  // namespace fovea::program
