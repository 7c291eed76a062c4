// Tables: bold, words for failures, losses shown, nothing that is not in the rows.
#include <set>

#include "fixture.h"
#include "program/report_calls.h"
#include "program/report_rates.h"
#include "program/report_tables.h"

namespace fovea::program {
namespace {

const Cell& cell(const Table& table, std::size_t row, const std::string& head, const std::string& unit) {
  for (std::size_t i = 0; i < table.columns.size(); ++i) {
    if (table.columns[i].head == head && table.columns[i].unit == unit) return table.rows.at(row).at(i);
  }
  throw std::runtime_error("no column " + head);
}

TEST(Tables, EveryStatusIsAWordAndNeverAZero) {
  const Study study = study_of(every_status());
  const Table table = time_tables(study).at(0);
  EXPECT_EQ(cell(table, 0, "fused", "ms").text, "mismatch");
  EXPECT_EQ(cell(table, 1, "fused", "ms").text, "timeout");
  EXPECT_EQ(cell(table, 2, "fused", "ms").text, "OOM");
  EXPECT_EQ(cell(table, 0, "vectorized", "ms").text, "crashed");
  EXPECT_EQ(cell(table, 1, "vectorized", "ms").text, "error");
  EXPECT_EQ(cell(table, 2, "vectorized", "ms").text, "unsupported");
  EXPECT_EQ(cell(table, 2, "fused", "speed-up").text, "OOM");
  EXPECT_NE(to_csv(table).find(",OOM,"), std::string::npos);
  for (const auto& row : table.rows) {
    for (const Cell& one : row) EXPECT_NE(one.text, "0");
  }
}

TEST(Tables, BestIsBoldInMarkdownAndHtml) {
  const Study study = study_of({timed(kAt + "512", "naive", 2e-3), timed(kAt + "512", "cpu.avx2", 1e-3)});
  const Table table = time_tables(study).at(0);
  EXPECT_EQ(cell(table, 0, "cpu.avx2", "ms").emphasis, Emphasis::best);
  EXPECT_EQ(cell(table, 0, "naive", "ms").emphasis, Emphasis::none);
  EXPECT_NE(to_markdown(table).find("**1.00**"), std::string::npos);
  EXPECT_NE(to_html(table).find("<b>1.00</b>"), std::string::npos);
}

TEST(Tables, LossesArePrintedAsLosses) {
  const Study study = study_of({timed(kAt + "512", "naive", 1e-3), timed(kAt + "512", "cpu.avx2", 2e-3)});
  const Cell& ratio = cell(time_tables(study).at(0), 0, "cpu.avx2", "speed-up");
  EXPECT_EQ(ratio.text, "0.500\u00d7");
  EXPECT_EQ(ratio.emphasis, Emphasis::loss);
  EXPECT_EQ(cell(summary_table(study), 1, "losses", "").text, "1");
}

TEST(Tables, TheFastestPeerIsNamedWhereThereIsOne) {
  const Study study = study_of({timed(kAt + "512", "naive", 1e-4), timed(kAt + "512", "cpu.avx2", 2e-3),
                                timed(kAt + "512", "torch.sdpa", 3e-3), timed(kAt + "512", "torch.math", 1e-3),
                                failed(kAt + "512", "onnxruntime", "error"), timed(kAt + "1k", "cpu.avx2", 1e-3)});
  const Table table = time_tables(study).at(0);
  const Cell& ratio = cell(table, 0, "cpu.avx2", "over the fastest peer");
  EXPECT_EQ(ratio.text, format_ratio(0.5));
  EXPECT_EQ(ratio.emphasis, Emphasis::loss);
  EXPECT_EQ(ratio.note, "over torch.math");
  EXPECT_EQ(cell(table, 1, "cpu.avx2", "over the fastest peer").text, "-");
  const Study alone = study_of({timed(kAt + "512", "naive", 1e-3), timed(kAt + "512", "cpu.avx2", 2e-3)});
  EXPECT_THROW((void)cell(time_tables(alone).at(0), 0, "cpu.avx2", "over the fastest peer"), std::runtime_error);
}

TEST(Tables, FlaggedCellsCarryTheirMark) {
  const Study study = study_of({timed(kAt + "512", "naive", 1e-3), timed(kAt + "512", "fused", 2e-3, {"noisy"}),
                                timed(kAt + "512", "vectorized", 3e-3, {"low_probe", "host_bound"}),
                                timed(kAt + "512", "cpu.avx2", 1e-9, {"impossible"})});
  const Table table = time_tables(study).at(0);
  EXPECT_EQ(cell(table, 0, "fused", "ms").text, "2.00 n");
  EXPECT_EQ(cell(table, 0, "fused", "ms").emphasis, Emphasis::muted);
  EXPECT_EQ(cell(table, 0, "vectorized", "ms").text, "3.00 ph");
  EXPECT_EQ(cell(table, 0, "cpu.avx2", "ms").emphasis, Emphasis::muted);
  EXPECT_EQ(cell(table, 0, "cpu.avx2", "speed-up").text, "-");
}

TEST(Tables, ConditionsStandUnderEveryTable) {
  const Study study = study_of(every_status());
  for (const Table& table : time_tables(study)) {
    for (const char* word : {"Test CPU", "2 threads", "3 samples", "2026-01-31", "0123456789"}) {
      EXPECT_NE(table.conditions.find(word), std::string::npos) << word;
    }
  }
}

TEST(Tables, FailuresListEveryRowWithoutATime) {
  const Study study = study_of(every_status());
  EXPECT_EQ(failures_table(study).rows.size(), 6u);
}

TEST(Tables, RowsCsvHasALineForEachRowOfTheSameWidth) {
  std::vector<Row> rows = every_status();
  rows.back().reason = "a, \"quoted\"\nreason";
  const std::string text = rows_csv(study_of(rows));
  std::size_t lines = 0, commas = 0, expected = 0;
  bool quoted = false;
  for (const char c : text) {
    quoted ^= c == '"';
    commas += c == ',' && !quoted;
    if (c != '\n' || quoted) continue;
    if (lines++ == 0) expected = commas;
    EXPECT_EQ(commas, expected) << "line " << lines;
    commas = 0;
  }
  EXPECT_EQ(lines, rows.size() + 1);
}

TEST(Tables, IdentifiersAreUnique) {
  std::vector<Row> rows;
  for (const char* more : {"", " pass=bwd", " pass=e2e", " dtype=bf16", " hq=2", " b=2", " data=peaked"}) {
    rows.push_back(timed(kAt + "512" + more, "naive", 1e-3));
  }
  std::set<std::string> identifiers;
  for (const Table& table : time_tables(study_of(rows))) {
    EXPECT_TRUE(identifiers.insert(table.id).second) << table.id;
  }
  EXPECT_EQ(identifiers.size(), 7u);
}

TEST(Tables, FiguresKeepThreeDigits) {
  EXPECT_EQ(format_figure(0.012345), "0.0123");
  EXPECT_EQ(format_figure(1.2345), "1.23");
  EXPECT_EQ(format_figure(123.45), "123");
  EXPECT_EQ(format_figure(12345), "12345");
  EXPECT_EQ(format_figure(0), "0");
  EXPECT_EQ(format_bytes(1.5e6), "1.50 MB");
  EXPECT_EQ(format_bytes(999), "999 B");
}

// A line per shape, whatever its batch and heads; a ratio where torch.flash was timed too; other timers, other tables.
TEST(Tables, RatesOfAGpu) {
  const std::string at = "device=cuda dtype=bf16 mask=causal ";
  std::vector<Row> rows;
  for (const std::string shape : {"b=8 hq=16 lq=2k d=128", "b=16 hq=32 lq=1k d=64"}) {
    rows.push_back(timed(at + shape, "cuda.any", 2e-3));
    rows.push_back(timed(at + shape, "torch.flash", 1.5e-3));
  }
  rows.push_back(failed(at + "b=1 hq=1 lq=4k d=64", "cuda.any", "oom"));
  for (Row& one : rows) one.timer = "cuda_events";
  rows.push_back(timed(at + "b=8 hq=16 lq=2k d=128", "cuda.any", 1e-3));
  rows.back().timer = "cuda_events_hot";
  const auto tables = rate_tables(study_of(rows));
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_EQ(tables[0].title, "Rates on a GPU: forward, bf16");
  EXPECT_EQ(tables[1].title, "Rates on a GPU: forward, bf16, hot");
  ASSERT_EQ(tables[0].rows.size(), 3u);
  ASSERT_EQ(tables[0].columns.size(), 9u);
  const auto& first = tables[0].rows[0];  // d = 64, 1k
  EXPECT_EQ(first[1].text, "64");
  EXPECT_EQ(first[7].text, format_ratio(0.75));
  EXPECT_EQ(first[7].emphasis, Emphasis::loss);
  EXPECT_EQ(first[8].text, format_ratio(0.75)) << "torch.flash is the only peer";
  EXPECT_EQ(tables[1].columns.size(), 6u) << "no peer was timed hot";
  EXPECT_TRUE(tables[0].rows[1][5].text == "OOM" || tables[0].rows[1][6].text == "OOM");
  EXPECT_TRUE(rate_tables(study_of(every_status())).empty());
}

TEST(Tables, CallsInAGraphAndTheHostsTimeStandApart) {
  const Study study = study_of(three_ways(), "torch.flash");
  const auto times = time_tables(study);
  ASSERT_EQ(times.size(), 1u) << "times of a run beside those that are none";
  EXPECT_EQ(cell(times[0], 0, "cuda.any", "ms").text, "0.0500");
  EXPECT_EQ(rate_tables(study).size(), 1u);
  EXPECT_EQ(cell(summary_table(study), 0, "cells", "").text, "1");
  const auto calls = call_tables(study);
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].id, "call-in-a-graph");
  EXPECT_EQ(cell(calls[0], 0, "cuda.any", "us").text, "5.00");
  EXPECT_EQ(cell(calls[0], 0, "cuda.any", "us").emphasis, Emphasis::best);
  EXPECT_EQ(cell(calls[0], 0, "torch.flash", "us").text, "10.0");
  EXPECT_EQ(cell(calls[0], 0, "cuda.any", "over the fastest other").text, format_ratio(2));
  EXPECT_EQ(calls[1].title, "How long a call keeps the host");
  EXPECT_EQ(cell(calls[1], 0, "cuda.any", "us").text, "4.25");
  EXPECT_EQ(cell(calls[1], 0, "cuda.any", "launches, us").text, "3.50");
  EXPECT_EQ(cell(calls[1], 0, "cuda.any", "beyond the launches, us").text, "0.750");
  EXPECT_EQ(cell(calls[1], 0, "cuda.any", "beyond them with the pool, us").text, "1.25");
  EXPECT_EQ(calls[1].columns.size(), 12u) << "a peer's launches are not known";
  EXPECT_TRUE(call_tables(study_of(every_status())).empty());
}

TEST(Tables, CallsOfTwoMachinesStandInTwoTables) {
  std::vector<Row> rows = three_ways();
  rows.back().machine = "another";
  std::set<std::string> identifiers;
  for (const Table& table : call_tables(study_of(rows))) EXPECT_TRUE(identifiers.insert(table.id).second) << table.id;
  EXPECT_EQ(identifiers.size(), 3u);
}

}  // namespace
}  // namespace fovea::program
