// Records: statistics, round trip, the file's refusals and repairs.
#include "program/record/record.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

#include "program/command_line.h"
#include "program/record/record_file.h"
#include "run_program.h"
#include "schema_checker.h"
#include "verification/problem_line.h"

namespace fovea::program {
namespace {

using tests::bad_kernel;
using tests::Folder;
using tests::fovea;
using tests::read_text;
using tests::write_text;

Row sample_row(const std::string& impl = "cpu.avx2") {
  Row row;
  row.problem = verification::line_of(verification::parse_case("pass=fwd lq=64 d=16"));
  row.impl = impl;
  row.status = "ok";
  row.flags = {"noisy"};
  row.time_s = statistics_of({3e-3, 1e-3, 2e-3});
  row.flops = 1e9;
  row.bytes = 1e6;
  row.tflops = 0.5;
  row.ceiling = RowCeiling{1e11, 0.9e11, 1e11, 0};
  row.ceiling_share = 0.05;
  row.workspace_bytes = 4096;
  row.saved_bytes = 0;
  row.memory_before_backward_bytes = 1 << 20;
  row.memory_before_forward_bytes = 1 << 18;
  row.error["out"] = {1e-7, 2e-6, 1.25};
  row.threads = 2;
  row.source = {"abc", true};
  row.peer = "PyTorch 2.9.1";
  row.clock_mhz = 3200.5;
  row.timer = "steady_clock";
  row.machine = "m";
  return row;
}

Environment sample_environment(const std::string& machine = "m") {
  return {machine, "2026-01-31T12:00:00Z",           "fovea bench",  {"abc", true}, "", "0.1.0",
          2,       {{"cpu", "\"quoted\" \xc3\xa9"}}, {{"fma", 1e11}}};
}

TEST(Record, GpuTimersArePartOfTheKey) {
  Row row = sample_row();
  const std::string on_cpu = key_of(row);
  row.timer = "perf_counter";
  EXPECT_EQ(key_of(row), on_cpu);
  std::set<std::string> keys{on_cpu};
  for (const char* timer : {"cuda_events", "cuda_events_hot", "cuda_graph", "cuda_eager", "cuda_host"}) {
    row.timer = timer;
    keys.insert(key_of(row));
  }
  EXPECT_EQ(keys.size(), 6u);
}

TEST(Statistics, QuartilesInterpolateAndStdIsOfASample) {
  const TimeStatistics t = statistics_of({4, 1, 3, 2});
  EXPECT_EQ(t.n, 4);
  EXPECT_DOUBLE_EQ(t.median, 2.5);
  EXPECT_DOUBLE_EQ(t.q1, 1.75);
  EXPECT_DOUBLE_EQ(t.q3, 3.25);
  EXPECT_DOUBLE_EQ(t.min, 1);
  EXPECT_DOUBLE_EQ(t.mean, 2.5);
  EXPECT_DOUBLE_EQ(t.std, std::sqrt(5.0 / 3.0));
  EXPECT_EQ(t.samples, (std::vector<double>{4, 1, 3, 2}));
  EXPECT_DOUBLE_EQ(statistics_of({7}).std, 0);
}

TEST(Record, ReadsBackWhatItWrote) {
  const std::string line = json_line(sample_row());
  EXPECT_EQ(json_line(row_of(line)), line);
  Row failed = sample_row();
  failed.status = "oom";
  failed.reason = "line one\nline two";
  failed.time_s.reset();
  failed.tflops.reset();
  failed.ceiling.reset();
  failed.workspace_bytes.reset();
  const Row back = row_of(json_line(failed));
  EXPECT_EQ(json_line(back), json_line(failed));
  EXPECT_FALSE(back.workspace_bytes.has_value());
  Row host = sample_row();
  EXPECT_FALSE(row_of(json_line(host)).launches) << "a call whose launches are not known has none";
  host.launches = LaunchShare{3.5e-6, -0.25e-6};
  EXPECT_EQ(json_line(row_of(json_line(host))), json_line(host));
  EXPECT_EQ(row_of(json_line(host)).launches->beyond_s, -0.25e-6);
  EXPECT_FALSE(row_of(json_line(host)).launches->pooled_beyond_s) << "a call without workspace";
  host.launches->pooled_beyond_s = 0.5e-6;
  EXPECT_EQ(json_line(row_of(json_line(host))), json_line(host));
  EXPECT_EQ(row_of(json_line(host)).launches->pooled_beyond_s, 0.5e-6);
  Row model = sample_row();
  EXPECT_TRUE(row_of(json_line(model)).phases.empty()) << "rows of other operations and of earlier versions have none";
  model.phases = {{"backward", statistics_of({2e-3, 0.5e-3, 1e-3})}, {"optimizer", statistics_of({1e-3, 5e-4, 1e-3})}};
  EXPECT_EQ(json_line(row_of(json_line(model))), json_line(model));
  EXPECT_EQ(row_of(json_line(model)).phases.at("backward").samples, (std::vector{2e-3, 0.5e-3, 1e-3}));
  std::string list = json_line(sample_row());
  list.insert(list.size() - 1, ",\"phases\":[]");
  EXPECT_THROW(row_of(list), std::runtime_error);
  const std::string environment = json_line(sample_environment());
  EXPECT_EQ(json_line(environment_of(environment)), environment);
}

TEST(Record, TheCommandHoldsNoPathsOfTheMachine) {
  const std::vector<std::string> typed{"/home/me/build/fovea",
                                       "bench",
                                       "--impl",
                                       "./a.so:f,/opt/b.so:g,flash",
                                       "--python=/usr/bin/python3",
                                       "--problem",
                                       "lq=1k,2k d=64",
                                       "-o/home/me/x.jsonl",
                                       "--output",
                                       "../run.jsonl",
                                       ""};
  EXPECT_EQ(program::shareable_command(typed),
            "fovea bench --impl a.so:f,b.so:g,flash --python=python3 --problem 'lq=1k,2k d=64' -ox.jsonl --output "
            "run.jsonl ''");
  const Folder folder;
  const std::string file = folder / "run.jsonl";
  ASSERT_EQ(
      fovea({"bench", "--problem", "lq=4 d=4", "--impl", bad_kernel("right"), "--repeat-for", "0.01", "-o", file}).code,
      0);
  const std::string command = program::load_records(file).environments.at(0).command;
  EXPECT_EQ(command.find('/'), std::string::npos) << command;
  EXPECT_TRUE(command.starts_with("fovea bench --problem 'lq=4 d=4' --impl libbad_kernels.so:right")) << command;
}

TEST(Record, NumbersThatJsonCannotHoldBecomeNull) {
  Row row = sample_row();
  row.error["out"] = {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity(), 0};
  const std::string line = json_line(row);
  EXPECT_NE(line.find("\"rel_l2\":null,\"max_abs\":null"), std::string::npos) << line;
  EXPECT_TRUE(std::isnan(row_of(line).error.at("out").rel_l2));
  Row text = sample_row();
  text.reason = "not UTF-8: \xff\xfe";
  EXPECT_NO_THROW(row_of(json_line(text)));
}

TEST(Record, RefusesContradictoryRows) {
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"\"status\":\"ok\"", "\"status\":\"fine\""},
                                 {"\"status\":\"ok\"", "\"status\":\"oom\""},
                                 {"\"threads\":2", "\"threads\":\"2\""},
                                 {"\"flops\":", "\"flop\":"},
                                 {" b=1", " b=zz"},
                                 {" b=1", " b=1,2"},
                                 {"\"median\":0", "\"median\":-0"},
                                 {"[0.003", "[-0.003"},
                                 {"\"workspace_bytes\":", "\"workspace_bytes\":-"},
                                 {"fovea.bench/1", "fovea.bench/2"}}) {
    std::string line = json_line(sample_row());
    ASSERT_NE(line.find(from), std::string::npos) << from;
    line.replace(line.find(from), from.size(), to);
    EXPECT_THROW(row_of(line), std::runtime_error) << to;
  }
}

TEST(SchemaChecker, FindsViolations) {
  const auto schema = nlohmann::json::parse(read_text(FOVEA_RECORD_SCHEMA));
  const auto check = [&schema](const std::string& line) {
    return tests::schema_violation(schema, nlohmann::json::parse(line));
  };
  EXPECT_EQ(check(json_line(sample_row())), "");
  Row host = sample_row();
  host.launches = LaunchShare{3.5e-6, -0.25e-6};
  EXPECT_EQ(check(json_line(host)), "");
  host.launches->pooled_beyond_s = 0.5e-6;
  host.phases = {{"forward", *host.time_s}};
  EXPECT_EQ(check(json_line(host)), "");
  EXPECT_EQ(check(json_line(sample_environment())), "");
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"\"threads\":2", "\"threads\":2.5"},
                                 {"\"status\":\"ok\"", "\"status\":\"fine\""},
                                 {"\"flops\":", "\"flop\":"},
                                 {"\"noisy\"", "\"loud\""},
                                 {"\"median\":0.002", "\"median\":-1"}}) {
    std::string line = json_line(sample_row());
    ASSERT_NE(line.find(from), std::string::npos) << from;
    line.replace(line.find(from), from.size(), to);
    EXPECT_NE(check(line), "") << to;
  }
}

class RecordFileTest : public testing::Test {
 protected:
  void write_two() {
    RecordFile file(path, sample_environment(), false, false);
    file.append(sample_row("a"));
    file.append(sample_row("b"));
  }
  static std::string refusal(const std::function<void()>& work) {
    try {
      work();
    } catch (const RecordFileError& error) {
      return error.what();
    }
    return "";
  }
  std::string refusal_of_text(const std::string& text) const {
    write_text(path, text);
    const std::string first = refusal([this] { load_records(path); });
    EXPECT_EQ(refusal([this] { RecordFile(path, sample_environment(), true, false); }), first);
    EXPECT_EQ(read_text(path), text) << "a refused file was changed";
    return first;
  }
  Folder folder;
  std::string path = folder / "run.jsonl";
};

TEST_F(RecordFileTest, ResumeAddsASessionAndKeepsTheRows) {
  write_two();
  {
    RecordFile file(path, sample_environment(), true, false);
    EXPECT_EQ(file.before().rows.size(), 2u);
    file.append(sample_row("c"));
    Row again = sample_row("a");
    again.reason = "measured again";
    file.append(again);
  }
  const Records records = load_records(path);
  ASSERT_EQ(records.rows.size(), 3u);
  EXPECT_EQ(records.environments.size(), 2u);
  EXPECT_EQ(records.rows[0].reason, "measured again");
  EXPECT_EQ(records.environment_of_row, (std::vector<std::size_t>{1, 0, 1}));
  tests::expect_valid_records(path);
}

TEST_F(RecordFileTest, AnExistingFileIsNeverOverwritten) {
  write_two();
  const std::string before = read_text(path);
  EXPECT_NE(refusal([this] { RecordFile(path, sample_environment(), false, false); }).find("--resume"),
            std::string::npos);
  EXPECT_EQ(read_text(path), before);
}

TEST_F(RecordFileTest, AnotherMachineIsRefusedUnlessForced) {
  write_two();
  const std::string why = refusal([this] { RecordFile(path, sample_environment("other"), true, false); });
  EXPECT_NE(why.find("`m`"), std::string::npos) << why;
  EXPECT_NE(why.find("`other`"), std::string::npos) << why;
  EXPECT_EQ(refusal([this] { RecordFile(path, sample_environment("other"), true, true); }), "");
}

TEST_F(RecordFileTest, AnotherBuildIsRefusedUnlessForced) {
  write_two();
  const std::string before = read_text(path);
  for (const Source& source : {Source{"def", true}, Source{"abc", false}}) {
    Environment other = sample_environment();
    other.source = source;
    const std::string why = refusal([&] { RecordFile(path, other, true, false); });
    for (const std::string& word :
         {std::string("another build"), std::string("got:    commit abc with changes"),
          "wanted: this one, commit " + source.commit, std::string("hint:   choose another file, or")})
      EXPECT_NE(why.find(word), std::string::npos) << word << "\n" << why;
    EXPECT_EQ(read_text(path), before);
  }
  Environment other = sample_environment();
  other.source.commit = "def";
  EXPECT_EQ(refusal([&] { RecordFile(path, other, true, true); }), "");
  EXPECT_EQ(load_records(path).environments.size(), 2u);
}

// Changes that are not committed have no commit of their own: the digest of the sources tells them apart.
TEST_F(RecordFileTest, AnotherUncommittedBuildIsRefusedUnlessForced) {
  Environment ours = sample_environment(), other = ours;
  ours.source_digest = std::string(64, 'a');
  other.source_digest = std::string(64, 'b');
  { const RecordFile file(path, ours, false, false); }
  tests::expect_valid_records(path);
  EXPECT_EQ(load_records(path).environments.at(0).source_digest, ours.source_digest);
  EXPECT_EQ(refusal([&] { RecordFile(path, ours, true, false); }), "");
  const std::string why = refusal([&] { RecordFile(path, other, true, false); });
  EXPECT_NE(why.find("sources aaaaaaaaaaaa"), std::string::npos) << why;
  EXPECT_NE(refusal([&] { RecordFile(path, sample_environment(), true, false); }), "") << "a build of unknown sources";
  EXPECT_EQ(refusal([&] { RecordFile(path, other, true, true); }), "");
  EXPECT_FALSE(same_build(ours, other));
  ours.source.dirty = other.source.dirty = false;
  EXPECT_TRUE(same_build(ours, other)) << "the same commit";
  ours.source.commit = other.source.commit = "unknown";
  EXPECT_FALSE(same_build(ours, other));
}

// As another JSON printer writes it.
TEST_F(RecordFileTest, SpacesInTheJsonAreNoDamage) {
  write_two();
  const std::string compact = json_line(load_records(path).rows.at(0));
  std::string text = read_text(path);
  for (std::size_t at = 0; (at = text.find(':', at)) != std::string::npos; at += 2) text.replace(at, 1, ": ");
  write_text(path, text);
  EXPECT_EQ(json_line(load_records(path).environments.at(0)).find("\"schema\":\"fovea.env/1\""), 1u);
  EXPECT_EQ(load_records(path).rows.size(), 2u);
  write_text(path, text.substr(0, text.size() - 20));
  EXPECT_EQ(load_records(path).rows.size(), 1u);
  EXPECT_NE(load_records(path).warning, "");
}

TEST_F(RecordFileTest, ImpossibleRowsAreDamage) {
  for (const auto& [from, to] :
       {std::pair<std::string, std::string>{" b=1", " b=zz"}, {"\"median\":", "\"median\":-"}}) {
    const std::string environment = json_line(sample_environment()) + "\n";
    std::string line = json_line(sample_row());
    line.replace(line.find(from), from.size(), to);
    const std::string why = refusal_of_text(environment + line + "\n");
    EXPECT_NE(why.find(path + ": damaged at byte " + std::to_string(environment.size())), std::string::npos) << why;
  }
}

TEST_F(RecordFileTest, ATornLastLineIsCutOffWithAWarningAtAnyByte) {
  write_two();
  const std::string whole = read_text(path);
  const std::size_t last = whole.rfind('\n', whole.size() - 2) + 1;
  for (std::size_t cut = last + 1; cut < whole.size(); cut += 7) {
    write_text(path, whole.substr(0, cut));
    const Records records = load_records(path);
    EXPECT_EQ(records.rows.size(), 1u);
    EXPECT_NE(records.warning.find("byte " + std::to_string(last)), std::string::npos) << records.warning;
    RecordFile(path, sample_environment(), true, false).append(sample_row("b"));
    EXPECT_EQ(load_records(path).rows.size(), 2u);
    EXPECT_EQ(load_records(path).warning, "");
  }
}

// As a file system may leave it after a power cut.
TEST_F(RecordFileTest, AnEndOfZerosIsATornLine) {
  write_two();
  const std::string whole = read_text(path);
  write_text(path, whole + std::string(4096, '\0'));
  EXPECT_EQ(load_records(path).rows.size(), 2u);
  RecordFile(path, sample_environment(), true, false);
  EXPECT_EQ(read_text(path), whole + json_line(sample_environment()) + "\n");
}

TEST_F(RecordFileTest, DamageInTheMiddleIsRefusedWithItsPosition) {
  write_two();
  std::string text = read_text(path);
  const std::size_t second = text.find('\n') + 1;
  text[second + 5] = '\x01';
  const std::string why = refusal_of_text(text);
  EXPECT_NE(why.find("byte " + std::to_string(second)), std::string::npos) << why;
}

TEST_F(RecordFileTest, AnotherSchemaIsRefused) {
  std::string line = json_line(sample_environment());
  line.replace(line.find("fovea.env/1"), 11, "fovea.env/9");
  EXPECT_NE(refusal_of_text(line + "\n").find("fovea.env/9"), std::string::npos);
}

TEST_F(RecordFileTest, FilesThatAreNoRecordsAreRefused) {
  const std::string environment = json_line(sample_environment()) + "\n";
  const std::string deep(100000, '[');
  EXPECT_NE(refusal_of_text("\xef\xbb\xbf" + environment).find("byte order mark"), std::string::npos);
  EXPECT_NE(refusal_of_text("my notes, without an end of line").find("no record"), std::string::npos);
  EXPECT_NE(refusal_of_text(environment + "half a note").find("byte " + std::to_string(environment.size())),
            std::string::npos);
  EXPECT_NE(refusal_of_text(environment + std::string(100, '\0') + "\n").find("byte"), std::string::npos);
  EXPECT_NE(refusal_of_text("{\"a\": 1}\n").find("first line is no environment"), std::string::npos);
  EXPECT_NE(refusal_of_text(environment + deep + "\n").find("nested deeper"), std::string::npos);
  EXPECT_NE(refusal_of_text(environment + "{\"schema\": \"fovea.bench/1\", \"problem\": \"\xff\"}\n").find("byte"),
            std::string::npos);
  EXPECT_NE(refusal_of_text(environment + "\n" + environment).find("not a JSON object"), std::string::npos);
  EXPECT_NE(refusal([this] { load_records(folder / "missing"); }).find("No such file"), std::string::npos);
  EXPECT_NE(refusal([this] { load_records(folder / "."); }).find("is a directory"), std::string::npos);
  EXPECT_NE(refusal([this] {
              RecordFile(folder / "no/such/folder", sample_environment(), false, false);
            }).find("No such file"),
            std::string::npos);
  write_text(path, "");
  EXPECT_NE(refusal([this] { load_records(path); }).find("is empty"), std::string::npos);
}

TEST_F(RecordFileTest, TwoRunsDoNotWriteToOneFile) {
  const RecordFile first(path, sample_environment(), false, false);
  EXPECT_NE(refusal([this] { RecordFile(path, sample_environment(), true, false); }).find("another run"),
            std::string::npos);
}

}  // namespace
}  // namespace fovea::program
