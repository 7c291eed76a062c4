// How many streamed tiles the stationary tiles of a kernel visit: K/V tiles in forward and for dQ, Q tiles else.
#pragma once

#include <cstdint>

#include "fovea/problem.h"

namespace fovea::cuda::sm90 {

// Rows of the stationary and of the streamed operand of one sequence. Stationary row i sees the streamed rows j with
// max(0, i + window.begin) <= j < min(streamed, i + window.end).
struct StreamedRows {
  std::int64_t stationary, stationary_tile, streamed, streamed_tile;
  KeyWindow window;
};

struct TileVisits {
  std::int64_t tiles = 0;  // stationary tiles of a sequence
  double all = 0;          // visits of all of them
  double longest = 0;      // visits of the one that makes most
  bool equal() const { return all >= 0.999 * longest * static_cast<double>(tiles); }
};
TileVisits visits_of(const StreamedRows& rows);

// Visits of the stationary tile with this index.
std::int64_t visits_of_tile(const StreamedRows& rows, std::int64_t index);

// The window of backward's key tiles: the queries that a key sees.
inline KeyWindow query_window(const KeyWindow& window) { return {1 - window.end, 1 - window.begin}; }

}  // namespace fovea::cuda::sm90
