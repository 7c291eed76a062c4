// Records made by hand for the tests of reports: rows of every status, written through the record's own printer.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <tuple>
#include <vector>

#include "program/record/record.h"
#include "program/report_study.h"
#include "verification/attention/case.h"

namespace fovea::program {

// The problem of most rows, before its length.
inline const std::string kAt = "d=64 mask=causal lq=";

inline Environment environment() {
  Environment e;
  e.machine = "Test CPU, 2 processors, 24 GiB";
  e.date = "2026-01-31T12:00:00Z";
  e.command = "fovea bench";
  e.source = {"0123456789abcdef", false};
  e.threads = 2;
  e.facts = {{"cpu", "Test CPU"}};
  e.ceilings = {{"fma_fp32", 2e11}, {"memory_bandwidth", 2e10}};
  return e;
}

inline Row row(const std::string& words, const std::string& implementation) {
  const verification::AttentionCase c = verification::attention_case(words);
  Row r;
  r.problem = verification::line_of(c);
  r.impl = implementation;
  r.status = "ok";
  r.flops = flops(c.problem);
  r.bytes = bytes(c.problem);
  r.threads = 2;
  r.source = environment().source;
  r.timer = "steady_clock";
  r.machine = environment().machine;
  r.error["out"] = {1e-7, 1e-6, 1.1};
  return r;
}

inline Row timed(const std::string& words, const std::string& implementation, double seconds,
                 std::vector<std::string> flags = {}) {
  Row r = row(words, implementation);
  r.time_s = statistics_of({0.98 * seconds, seconds, 1.02 * seconds});
  r.tflops = r.flops / seconds / 1e12;
  r.ceiling_share = r.flops / seconds / 2e11;
  r.ceiling = RowCeiling{2e11, 2e11, 1.9e11, 1.8e11};
  r.memory_before_backward_bytes = 1'000'000;
  r.workspace_bytes = 4096;
  r.flags = std::move(flags);
  return r;
}

inline Row failed(const std::string& words, const std::string& implementation, const std::string& status,
                  const std::string& reason = "for a reason") {
  Row r = row(words, implementation);
  r.status = status;
  r.reason = reason;
  r.error.clear();
  return r;
}

// A file of its own for each test.
inline std::string scratch(const std::string& name) {
  const auto* const info = testing::UnitTest::GetInstance()->current_test_info();
  const auto folder =
      std::filesystem::temp_directory_path() / (std::string("fovea-") + info->test_suite_name() + "-" + info->name());
  std::filesystem::create_directories(folder);
  return (folder / name).string();
}

inline Study study_of(const std::vector<Row>& rows, const std::string& baseline = "") {
  const std::string path = scratch("records.jsonl");
  std::ofstream file(path);
  file << json_line(environment()) << "\n";
  for (const Row& r : rows) file << json_line(r) << "\n";
  file.close();
  return load_study({path}, baseline);
}

// Three lengths by four implementations; every status and every flag that keeps a cell from being ranked.
inline std::vector<Row> every_status() {
  const std::string at = "d=64 dtype=fp32 mask=causal lq=";
  std::vector<Row> rows;
  for (const auto& [length, seconds] : {std::pair{"512", 1e-3}, std::pair{"1k", 4e-3}, std::pair{"2k", 16e-3}}) {
    rows.push_back(timed(at + length, "naive", seconds));
    rows.push_back(timed(at + length, "cpu.avx2", seconds / 4));
  }
  rows.push_back(failed(at + "512", "fused", "mismatch", "out: row 3 is wrong"));
  rows.push_back(failed(at + "1k", "fused", "timeout"));
  rows.push_back(failed(at + "2k", "fused", "oom", "estimate of 40 GB exceeds 24 GB"));
  rows.push_back(failed(at + "512", "vectorized", "crashed"));
  rows.push_back(failed(at + "1k", "vectorized", "error"));
  rows.push_back(failed(at + "2k", "vectorized", "unsupported"));
  return rows;
}

// Rows of one problem in three ways of timing: a run of 50 us, a call of a graph, and how long a call keeps the host.
inline std::vector<Row> three_ways() {
  const std::string at = "device=cuda dtype=bf16 mask=causal lq=512 d=64";
  std::vector<Row> rows;
  for (const auto& [timer, own, peer] : {std::tuple{"cuda_events", 50e-6, 40e-6}, std::tuple{"cuda_graph", 5e-6, 10e-6},
                                         std::tuple{"cuda_host", 4.25e-6, 20e-6}}) {
    for (const auto& [name, seconds] : {std::pair{"cuda.any", own}, std::pair{"torch.flash", peer}}) {
      rows.push_back(timed(at, name, seconds));
      rows.back().timer = timer;
    }
  }
  rows[4].launches = LaunchShare{3.5e-6, 0.75e-6, 1.25e-6};
  for (std::size_t i : {4u, 5u}) rows[i].tflops.reset(), rows[i].ceiling_share.reset(), rows[i].ceiling.reset();
  return rows;
}

}  // namespace fovea::program
