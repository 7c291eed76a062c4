// The rules of comparison.
#include "program/bench/ranking.h"

namespace fovea::program {

bool is_timed(const Row& row) { return row.status == "ok" && row.time_s.has_value(); }

bool is_ranked(const Row& row) {
  return is_timed(row) && !row.has_flag("impossible") && !row.has_flag("launch_bound") && !row.has_flag("host_bound");
}

bool told_apart(const Row& a, const Row& b) {
  if (!a.has_flag("noisy") && !b.has_flag("noisy")) return true;
  return a.time_s->q3 < b.time_s->q1 || b.time_s->q3 < a.time_s->q1;
}

const Row* fastest_of(const std::vector<const Row*>& rows) {
  const Row* best = nullptr;
  for (const Row* const row : rows) {
    if (is_ranked(*row) && (best == nullptr || row->time_s->median < best->time_s->median)) best = row;
  }
  bool has_rival = false;
  for (const Row* const row : rows) {
    if (row == best) continue;
    has_rival = true;  // a row that ran out of memory or time is beaten too
    if (!is_timed(*row) || row->has_flag("impossible")) continue;
    // A launch-bound row does not win, but no slower row wins either.
    if (best == nullptr || row->time_s->median < best->time_s->median || !told_apart(*row, *best)) return nullptr;
  }
  return has_rival ? best : nullptr;
}

}  // namespace fovea::program
