// Complete events in microseconds, on a thread of its own for each track.
#include "program/profile/trace.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "program/output_file.h"

namespace fovea::program {

void write_trace(const std::string& path, const std::vector<Span>& spans) {
  using Json = nlohmann::ordered_json;
  constexpr double kMicroseconds = 1e6;
  const auto first = std::ranges::min_element(spans, {}, &Span::begin);
  std::map<std::string, int> threads;
  Json events = Json::array();
  for (const Span& span : spans) {
    const auto [track, is_new] = threads.try_emplace(span.track, static_cast<int>(threads.size()) + 1);
    if (is_new)
      events.push_back(
          {{"name", "thread_name"}, {"ph", "M"}, {"pid", 1}, {"tid", track->second}, {"args", {{"name", span.track}}}});
    events.push_back({{"name", span.name},
                      {"ph", "X"},
                      {"ts", (span.begin - first->begin) * kMicroseconds},
                      {"dur", span.seconds * kMicroseconds},
                      {"pid", 1},
                      {"tid", track->second}});
  }
  const Json trace{{"displayTimeUnit", "ms"}, {"traceEvents", std::move(events)}};
  write_file(path, trace.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace fovea::program
