// The options of `fovea bench`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "program/command_line.h"

namespace fovea::program {

struct BenchOptions {
  std::string preset, device, baseline, python, against, output, markdown, csv, scale, memory_limit;
  std::vector<std::string> problems;
  std::string timing;
  std::string implementations, passes, peers;  // comma lists
  int threads = 0;
  std::optional<std::uint64_t> seed;
  double repeat_for = 0, timeout = 60;
  bool no_saved = false, resume = false, force = false, yes = false, json = false;
  std::vector<std::string> typed;  // the words of the command line
};

void add_bench_options(CLI::App* verb, BenchOptions& o);

// Refuses options that contradict each other or would have no effect.
void check_options(const BenchOptions& o);

[[noreturn]] void refuse_option(const std::string& argument, const std::string& problem, const std::string& got,
                                const std::string& wanted, const std::string& hint = {});

}  // namespace fovea::program
