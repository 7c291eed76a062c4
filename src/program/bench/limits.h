// What cells of a preset must reach, and what they reached: shares of a bound, ratios between cells, and times.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "program/bench/presets.h"
#include "program/record/record.h"

namespace fovea::program {

enum class Measure : std::uint8_t {
  peak,            // flops / time / the multiply-add rate of the same run
  peak_of_avx2,    // the same with the rate of 256-bit multiply-adds, which may be half
  bound,           // the larger of bytes / read bandwidth and flops / multiply-add rate, over the time
  threads,         // the time of one thread over the time
  baselines,       // the time of the fastest baseline in the same cell over the time
  pytorch,         // the time of PyTorch's scaled_dot_product_attention in the same cell over the time
  points_of_fp32,  // share of the peak of the same problem in fp32, minus the share of the cell
  seconds,
};

// A row of the table of limits. The worst of its cells counts.
struct Limit {
  std::string title;  // fp32 forward, 2k and 4k, d=64
  Measure measure;
  std::string line;            // a sweep; its cells at the full scale if `quick` has a value
  std::string implementation;  // flash, cpu.avx2 or cpu.amx
  int threads;
  double must, aim;
  std::string quick = {};  // the cells at the quick scale
};

// Rows of one thread count that are timed in turns, with the implementations that a limit needs.
struct LimitRun {
  int threads;
  std::vector<std::string> implementations;
  std::vector<verification::Case> cases;
};
std::vector<LimitRun> runs_of(const std::vector<Limit>& limits, Scale scale);

// The limits of the CPU engine, one table row each; on a processor with AMX, in bf16 and beside PyTorch, which a run
// needs.
const std::vector<Limit>& cpu_limits();
const std::vector<Limit>& amx_limits();

struct Reached {
  double value = 0;     // of the worst cell
  std::string problem;  // of the worst cell; empty if no cell of the limit has a time
  int cells = 0, short_of_must = 0;
  int missing = 0;  // cells without a time
};

// The environments' ceilings, by the number of threads.
using RunCeilings = std::map<int, std::map<std::string, double>>;

// `rows` are of all runs.
Reached reached(const Limit& limit, Scale scale, const std::vector<Row>& rows, const RunCeilings& ceilings);

// A table of at most 80 columns: what is reached, must and aim, and where the worst cell falls short.
std::string limits_text(const std::vector<Limit>& limits, Scale scale, const std::vector<Row>& rows,
                        const RunCeilings& ceilings);

}  // namespace fovea::program
