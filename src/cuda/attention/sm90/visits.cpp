// Counts visits of tiles. Of more than 1,024 tiles only a sample is counted.
#include "cuda/attention/sm90/visits.h"

#include <algorithm>

#include "cuda/attention/problem_shape.h"

namespace fovea::cuda::sm90 {

std::int64_t visits_of_tile(const StreamedRows& rows, std::int64_t index) {
  const std::int64_t first = index * rows.stationary_tile;
  const std::int64_t last = std::min(first + rows.stationary_tile, rows.stationary) - 1;
  const std::int64_t begin = std::max<std::int64_t>(first + rows.window.begin, 0);
  const std::int64_t end = std::min(last + rows.window.end, rows.streamed);
  return begin < end ? divide_up(end, rows.streamed_tile) - begin / rows.streamed_tile : 0;
}

TileVisits visits_of(const StreamedRows& rows) {
  constexpr std::int64_t kSamples = 1024;
  TileVisits visits{.tiles = divide_up(rows.stationary, rows.stationary_tile)};
  const std::int64_t samples = std::min(visits.tiles, kSamples);
  for (std::int64_t n = 0; n < samples; ++n) {
    const std::int64_t index = samples == 1 ? 0 : n * (visits.tiles - 1) / (samples - 1);
    const auto one = static_cast<double>(visits_of_tile(rows, index));
    visits.all += one;
    visits.longest = std::max(visits.longest, one);
  }
  visits.all *= static_cast<double>(visits.tiles) / static_cast<double>(samples);
  return visits;
}

}  // namespace fovea::cuda::sm90
