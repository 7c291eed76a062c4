// The measured steps as a trace for ui.perfetto.dev: what each phase and each part took, one after another. Format:
// Chrome's trace events, "Trace Event Format" (Google, 2016), which Perfetto reads.
#pragma once

#include <string>
#include <vector>

namespace fovea::program {

struct Span {
  std::string track;              // a model's kind of step
  std::string name;               // forward, norm, ..
  double begin = 0, seconds = 0;  // begin: seconds of the steady clock
};

// Spans of a track nest. Throws as write_file does.
void write_trace(const std::string& path, const std::vector<Span>& spans);

}  // namespace fovea::program
