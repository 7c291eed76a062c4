// Prints an explanation as lines of text.
#include "c_api/call.h"

#include <algorithm>
#include <cstring>
#include <string>

namespace fovea::c_api {
namespace {

std::string text_of(const Explanation& explanation) {
  std::string text;
  for (const auto& step : explanation.walk) {
    const bool chosen = step.accepted && step.name == explanation.chosen;
    text += step.name + ": " + (chosen ? "taken" : step.accepted ? "would take it" : "refused: " + step.reason);
    text += "\n";
  }
  text += "chosen: " + (explanation.chosen.empty() ? "none" : explanation.chosen) + "\n";
  if (explanation.predicted_seconds > 0)
    text += "predicted: " + std::to_string(explanation.predicted_seconds * 1e6) + " us\n";
  if (!explanation.tiles.empty()) text += "tiles: " + explanation.tiles + "\n";
  text += "workspace: " + std::to_string(explanation.workspace_bytes) + " bytes\n";
  text += "saved: " + std::to_string(explanation.saved_bytes) + " bytes\n";
  text += "flops: " + std::to_string(explanation.flops) + "\n";
  return text + "bytes: " + std::to_string(explanation.bytes) + "\n";
}

}  // namespace

void write_text(const Explanation& explanation, char* text, size_t capacity, size_t* needed) {
  write_text(text_of(explanation), text, capacity, needed);
}

void write_text(std::string_view whole, char* text, size_t capacity, size_t* needed) {
  if (needed != nullptr) *needed = whole.size() + 1;
  if (capacity == 0) return;
  const size_t length = std::min(whole.size(), capacity - 1);
  std::memcpy(text, whole.data(), length);
  text[length] = '\0';
}

}  // namespace fovea::c_api
