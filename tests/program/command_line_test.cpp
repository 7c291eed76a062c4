// What the program refuses, in which words, with which exit code; and that it runs nothing then.
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "fovea/attention.h"
#include "program/terminal_text.h"
#include "run_program.h"
#include "verification/attention/case.h"

namespace fovea::tests {
namespace {

struct Refusal {
  const char* name;
  std::vector<std::string> arguments;
  std::vector<std::string> said;  // all of them, in stderr
  int code = 2;
};

class CommandLine : public testing::TestWithParam<Refusal> {};

TEST_P(CommandLine, BadWordsAreRefused) {
  const Refusal& wanted = GetParam();
  const Ended run = fovea(wanted.arguments);
  EXPECT_EQ(run.code, wanted.code) << run.err;
  for (const auto& word : wanted.said) EXPECT_NE(run.err.find(word), std::string::npos) << run.err;
  EXPECT_EQ(run.out, "");
  EXPECT_EQ(run.err.find("terminate called"), std::string::npos) << run.err;
  EXPECT_EQ(run.err.find('\033'), std::string::npos) << "a terminal would obey";
  for (std::size_t at = 0; at < run.err.size(); at = run.err.find('\n', at) + 1)
    EXPECT_LE(run.err.find('\n', at) - at, program::kTerminalColumns) << run.err;
}

const std::string kTiny = "lq=4 d=4";

INSTANTIATE_TEST_SUITE_P(
    Words, CommandLine,
    testing::Values(
        Refusal{"NoVerb", {}, {"a verb is missing", "info", "bench", "--help"}},
        Refusal{"UnknownVerb", {"bnch"}, {"unknown verb `bnch`", "`bench`", "--help"}},
        Refusal{"UnknownOption",
                {"bench", "--prset", "quick"},
                {"unknown option `--prset`", "`--preset`", "fovea bench --help"}},
        Refusal{"UnknownOptionOfInfo", {"info", "--jsn"}, {"`--jsn`", "`--json`"}},
        Refusal{"MissingValue", {"bench", "--problem"}, {"--problem"}},
        Refusal{"MissingOption", {"explain"}, {"--problem"}},
        Refusal{"Twice", {"explain", "--problem", kTiny, "--problem", kTiny}, {"--problem"}},
        Refusal{"NeitherPresetNorProblem", {"bench"}, {"--preset", "--problem", "neither"}},
        Refusal{"WordsOfAProblemWithoutQuotes",
                {"bench", "--problem", "lq=4", "d=4"},
                {"unknown argument `d=4`", "--problem"}},
        Refusal{"BothPresetAndProblem", {"bench", "--preset", "quick", "--problem", kTiny}, {"both"}},
        Refusal{"NegativeThreads", {"bench", "--problem", kTiny, "--threads=-1"}, {"--threads", "-1"}},
        Refusal{"NoThreads", {"bench", "--problem", kTiny, "--threads", "0"}, {"--threads", "0"}},
        Refusal{"HugeThreads", {"bench", "--problem", kTiny, "--threads", "1e99"}, {"--threads", "1e99"}},
        Refusal{"HexWithoutDigits", {"bench", "--problem", kTiny, "--seed", "0x"}, {"--seed", "0x"}},
        Refusal{"NegativeSeed", {"bench", "--problem", kTiny, "--seed=-1"}, {"--seed", "-1"}},
        Refusal{"SeedBeyond64Bits", {"bench", "--problem", kTiny, "--seed=99999999999999999999"}, {"--seed"}},
        Refusal{"UnknownBaseline",
                {"bench", "--problem", kTiny, "--impl", "reference", "--baseline", "naiv"},
                {"--baseline", "naiv", "one of reference"}},
        Refusal{"DecimalComma", {"bench", "--problem", kTiny, "--repeat-for", "0,5"}, {"--repeat-for", "0,5"}},
        Refusal{"NoTime", {"bench", "--problem", kTiny, "--timeout", "0"}, {"--timeout", "0"}},
        Refusal{"NotANumber", {"bench", "--problem", kTiny, "--repeat-for", "nan"}, {"--repeat-for"}},
        Refusal{"MemoryWithGarbage",
                {"bench", "--problem", kTiny, "--memory-limit", "8Gx"},
                {"--memory-limit", "8Gx", "512M"}},
        Refusal{"MemoryNegative", {"bench", "--problem", kTiny, "--memory-limit=-8G"}, {"--memory-limit", "-8G"}},
        Refusal{"MemoryOverflow", {"bench", "--problem", kTiny, "--memory-limit", "9999999999T"}, {"--memory-limit"}},
        Refusal{"UnknownScale", {"bench", "--preset", "quick", "--scale", "huge"}, {"--scale", "huge", "full"}},
        Refusal{"UnknownPass", {"bench", "--problem", kTiny, "--passes", "fwd,sideways"}, {"--passes", "sideways"}},
        Refusal{"EmptyNameInList", {"bench", "--problem", kTiny, "--impl", "flash,,reference"}, {"--impl", "empty"}},
        Refusal{
            "ImplementationTwice", {"bench", "--problem", kTiny, "--impl", "flash,flash"}, {"--impl", "named twice"}},
        Refusal{"UnknownImplementation",
                {"bench", "--problem", kTiny, "--impl", "referense"},
                {"--impl", "referense", "`reference`"}},
        Refusal{"MissingKernelFile", {"bench", "--problem", kTiny, "--impl", "./none.so:f"}, {"--impl", "./none.so:f"}},
        Refusal{
            "UnknownPeer", {"bench", "--problem", kTiny, "--with", "tensorflow"}, {"--with", "tensorflow", "torch"}},
        Refusal{"UnknownPreset", {"bench", "--preset", "quik"}, {"quik", "quick"}},
        Refusal{"EmptyImplementations", {"bench", "--problem", kTiny, "--impl", ""}, {"--impl", "empty value"}},
        Refusal{"EmptyOutput", {"bench", "--problem", kTiny, "-o", ""}, {"--output", "empty value"}},
        Refusal{"EmptyLine", {"explain", "--problem", ""}, {"--problem", "empty value"}},
        Refusal{"EmptyFolder", {"report", "/dev/null", "-o", ""}, {"--output", "empty value"}},
        Refusal{"ResumeWithoutAFile", {"bench", "--problem", kTiny, "--resume"}, {"--resume", "-o FILE"}},
        Refusal{"BeginningOfAnOption", {"--vers"}, {"`--vers`", "`--version`"}},
        Refusal{"SeedOneBeyond64Bits",
                {"verify", "--seed", "18446744073709551616"},
                {"--seed", "got `18446744073709551616`", "from 0\n", "to 18446744073709551615 in"}},
        Refusal{
            "HexThreads", {"bench", "--problem", kTiny, "--threads", "0x10"}, {"--threads", "got `0x10`", "wanted"}},
        Refusal{"OctalThreads", {"bench", "--problem", kTiny, "--threads", "010"}, {"got `010`", "decimal digits"}},
        Refusal{"AWordForAKey",
                {"verify", "--problem", "hedas=3"},
                {"invalid problem line: unknown key at position 1", "did you mean `hq`, query heads?"}},
        Refusal{"AMisspelledMask",
                {"explain", "--problem", "lq=8 d=8 mask=casual"},
                {"invalid problem line: not a value of `mask`", "did you mean `causal`?"}},
        Refusal{"TensorsBeyondMemory",
                {"verify", "--problem", "lq=1000000k lk=1k d=64 dv=8"},
                {"its tensors do not fit", "q (1, 1, 1024000000, 64) takes 244 GiB", "the free memory"}},
        Refusal{"HexCases", {"verify", "--cases", "0x10"}, {"--cases", "got `0x10`", "whole number from 1 to"}},
        Refusal{"CasesWithAnExponent", {"verify", "--cases", "1e3"}, {"--cases", "got `1e3`", "whole number"}},
        Refusal{"JobsWithAFraction", {"verify", "--jobs", "1.5"}, {"--jobs", "got `1.5`", "whole number"}},
        Refusal{"PassesBesideALine",
                {"verify", "--problem", kTiny, "--passes", "bwd"},
                {"--passes", "cannot be combined with", "--problem"}},
        Refusal{"HostileWithoutALine", {"verify", "--hostile"}, {"--hostile", "--problem"}},
        Refusal{"SeedBesideALine", {"verify", "--problem", kTiny, "--seed", "7"}, {"--seed", "--problem"}},
        Refusal{"NegativeSeedOfVerify", {"verify", "--seed=-3"}, {"--seed", "-3"}},
        Refusal{"TwoForms", {"info", "--json", "--matrix"}, {"--matrix", "--json"}},
        Refusal{"UnknownToExplain", {"explain", "--problem", kTiny, "--impl", "nope"}, {"nope", "one of"}},
        Refusal{"NegativeSize", {"bench", "--problem", "b=-1"}, {"position 3", "-1"}},
        Refusal{"HugeSize", {"bench", "--problem", "b=1e99"}, {"position 3", "1e99"}},
        Refusal{"TrailingGarbage", {"bench", "--problem", "lq=128k8"}, {"position 4", "128k8"}},
        Refusal{
            "ControlCharacters", {"explain", "--problem", "lq=\033[31m\n"}, {"position 4", "got:    \\x1b[31m\\n\n"}},
        Refusal{"ControlCharactersInAnOption", {"bench", "--\033[31m"}, {"`--\\x1b[31m`"}},
        Refusal{"ValueTwice", {"bench", "--problem", "d=4 lq=8,16,8"}, {"given twice at position 13"}},
        Refusal{"ValueTwiceInOtherWords", {"bench", "--problem", "lq=1k,1024"}, {"given twice at position 7"}},
        Refusal{"ScaleWithoutPreset",
                {"bench", "--problem", kTiny, "--scale", "quick"},
                {"--scale", "only presets", "--preset"}},
        Refusal{"ForceWithoutResume", {"bench", "--problem", kTiny, "--force"}, {"--force", "no --resume"}},
        Refusal{"PythonForNothing", {"bench", "--problem", kTiny, "--python", "python3"}, {"--python", "--with"}},
        Refusal{"EmptyListInLine", {"bench", "--problem", "lq=,8"}, {"position 4"}},
        Refusal{"UnknownKey", {"bench", "--problem", "lqq=8"}, {"lqq", "`lq`"}},
        Refusal{"KeyInCapitals", {"bench", "--problem", "LQ=8"}, {"LQ", "`lq`"}},
        Refusal{"UntimedPlacement",
                {"bench", "--problem", kTiny + " place=guarded"},
                {"place=guarded", "place=contiguous"}}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Problems, CommandLine,
    testing::Values(Refusal{"TooManyCells",
                            {"bench", "--problem",
                             "lq=1,2,3,4,5,6,7,8,9,10 lk=1,2,3,4,5,6,7,8,9,10 b=1,2,3,4,5,6,7,8,9,10 hq=1,2,3"},
                            {"--yes", "3000 cells"}},
                    Refusal{"TooLong",
                            {"bench", "--problem",
                             "lq=1024k d=128 b=64 "
                             "seed=1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,"
                             "32,33,34,35,36,37,38,39,40,41,42,43,44,45,46,47,48,49,50,51,52"},
                            {"--yes", "up to"}}),
    [](const auto& test) { return test.param.name; });

INSTANTIATE_TEST_SUITE_P(
    Devices, CommandLine,
    testing::Values(
        Refusal{"NoGpu", {"bench", "--problem", kTiny + " device=cuda"}, {"device=cuda", "found:", "--device cpu"}, 4},
        Refusal{"NoGpuByOption",
                {"bench", "--problem", kTiny, "--device", "cuda"},
                {"device=cuda", "found:", "--device cpu"},
                4},
        Refusal{"NoGpuToVerify", {"verify", "--device", "cuda"}, {"no device: ", "found:", "--device cpu"}, 4},
        Refusal{"NoGpuForALineToVerify",
                {"verify", "--problem", kTiny + " device=cuda"},
                {"no device: ", "found:", "hint:   device=cpu in the line"},
                4},
        Refusal{"NoGpuForALineAndItsOption",
                {"verify", "--device", "cuda", "--problem", kTiny + " device=cuda"},
                {"no device: "},
                4},
        Refusal{"LineOfAnotherDevice",
                {"verify", "--device", "cpu", "--problem", kTiny + " device=cuda"},
                {"--problem", "got:    device=cuda", "wanted: --device cpu"}},
        Refusal{"LineOfTwoDevicesToVerify",
                {"verify", "--problem", kTiny + " device=cpu,cuda"},
                {"--problem", "got:    device=cuda", "wanted: one device"}},
        Refusal{"TwoDevices", {"bench", "--problem", kTiny + " device=cpu,cuda"}, {"two devices", "--device"}},
        Refusal{"HostTimingOfACpu", {"bench", "--problem", kTiny, "--timing", "host"}, {"--timing", "--device cuda"}},
        Refusal{"TimingThatIsNone",
                {"bench", "--problem", kTiny, "--device", "cuda", "--timing", "hosts"},
                {"--timing", "host"}},
        Refusal{"TimingOfACpu", {"bench", "--problem", kTiny, "--timing", "hot"}, {"--timing", "--device cuda"}},
        Refusal{"PeerMistyped", {"bench", "--problem", kTiny, "--with", "trch"}, {"did you mean `torch`?"}},
        Refusal{
            "GpuRowOnACpu", {"bench", "--problem", kTiny, "--with", "torch.flash"}, {"unknown peer", "torch.sdpa"}}),
    [](const auto& test) { return test.param.name; });

TEST(CommandLineFiles, FilesThatCannotBeUsedAreNamed) {
  const Folder folder;
  write_text(folder / "empty.jsonl", "");
  write_text(folder / "text.jsonl", "hello\nworld\n");
  for (const std::string& name :
       {std::string("none.jsonl"), std::string("empty.jsonl"), std::string("text.jsonl"), std::string(".")}) {
    const Ended run = fovea({"compare", folder / name, folder / name});
    EXPECT_EQ(run.code, 2) << name;
    EXPECT_NE(run.err.find(folder / name), std::string::npos) << run.err;
  }
  const auto bench_into = [](const std::string& file) {
    return fovea({"bench", "--problem", kTiny, "--impl", "reference", "--repeat-for", "0.01", "--resume", "-o", file});
  };
  for (const std::string& name : {std::string("no/such/folder.jsonl"), std::string("text.jsonl/run.jsonl"),
                                  std::string("text.jsonl"), std::string("."), std::string("../../dev/null")}) {
    const std::string before = read_text(folder / "text.jsonl");
    const Ended run = bench_into(folder / name);
    EXPECT_EQ(run.code, 2) << name << run.err;
    EXPECT_NE(run.err.find(folder / name), std::string::npos) << run.err;
    EXPECT_EQ(run.out, "") << "something was measured";
    EXPECT_EQ(read_text(folder / "text.jsonl"), before);
  }
}

TEST(CommandLineOutput, ClosedPipesAndPlainTerminals) {
  const Ended closed = fovea({"info"}, {.close_output = true});
  EXPECT_LT(closed.code, 128) << "killed by a signal";
  EXPECT_EQ(closed.err, "");
  const Ended run = fovea({"bench", "--problem", kTiny, "--impl", "reference", "--repeat-for", "0.01"},
                          {.close_output = true, .environment = {"COLUMNS=0"}});
  EXPECT_LT(run.code, 128);
  for (const char* verb : {"info", "bench", "explain", "compare"}) {
    const Ended help = fovea({verb, "--help"});
    EXPECT_EQ(help.code, 0);
    EXPECT_EQ(help.out.find('\033'), std::string::npos) << "colour where there is no terminal";
    EXPECT_NE(help.out.find("--json"), std::string::npos) << verb;
  }
}

TEST(CommandLineOutput, LostOutputIsAFailure) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {"explain", "--problem", kTiny},
           {"info", "--quick"},
           {"bench", "--problem", kTiny, "--impl", "reference", "--repeat-for", "0.01", "--json"},
           {"--help"}}) {
    const Ended run = fovea(arguments, {.output = "/dev/full"});
    EXPECT_EQ(run.code, 3) << arguments[0];
    EXPECT_NE(run.err.find("could not be written: No space left"), std::string::npos) << run.err;
  }
}

TEST(CommandLineOutput, JsonOfEveryVerbParses) {
  const auto json = [](const std::vector<std::string>& arguments) {
    const Ended run = fovea(arguments);
    EXPECT_EQ(run.code, 0) << run.err;
    return nlohmann::json::parse(run.out);
  };
  const auto info = json({"info", "--json"});
  EXPECT_FALSE(info["implementations"].empty());
  EXPECT_GT(info["threads"].get<int>(), 0);
  const auto explain = json({"explain", "--problem", "lq=100 d=64", "--json"});
  EXPECT_NE(explain["chosen"], "");
  EXPECT_EQ(explain["flops"], 4.0 * 100 * 100 * 64);
}

TEST(CommandLineOutput, TheLargestSeedIsAccepted) {
  const Ended run = fovea({"verify", "--cases", "10", "--seed", "18446744073709551615", "--json"});
  const auto told = nlohmann::json::parse(run.out);
  EXPECT_EQ(told["cases"], 10);
  EXPECT_EQ(told["seed"], UINT64_MAX);
}

// The line that an error prints names its device, and so does the one that a test copies from a record.
TEST(CommandLineOutput, VerifyReplaysALineOnTheDeviceItNames) {
  for (const char* line : {"lq=4 d=4", "lq=4 d=4 device=cpu"}) {
    const Ended run = fovea({"verify", "--impl", "reference", "--problem", line});
    EXPECT_EQ(run.code, 0) << run.err;
    EXPECT_NE(run.out.find("1 passed, 0 failed"), std::string::npos) << run.out;
  }
}

// Kernels refuse a scale beyond fp32; then only the reference computes the case.
TEST(CommandLineOutput, VerifyCountsAScaleBeyondFp32AsRefused) {
  for (const std::string line : {"lq=8 d=8 scale=1e39", "lq=8 d=8 scale=-8e-39", "op=mha lq=8 e=8 hq=1 scale=1e39"}) {
    const Ended run = fovea({"verify", "--impl", "cpu.scalar", "--problem", line});
    EXPECT_EQ(run.code, 0) << run.out << run.err;
    EXPECT_NE(run.out.find("0 passed, 0 failed"), std::string::npos) << run.out;
    EXPECT_NE(run.out.find("1 refused"), std::string::npos) << run.out;
  }
  const Ended taken = fovea({"verify", "--impl", "cpu.scalar,reference", "--problem", "lq=8 d=8 scale=8.3e-39"});
  EXPECT_NE(taken.out.find("2 passed, 0 failed"), std::string::npos) << taken.out << taken.err;
}

TEST(CommandLineOutput, HostileRunsEveryInputOfALine) {
  const std::string line = "hq=4 hkv=2 lq=9 lk=21 d=7 mask=causal_top_left dtype=fp32,bf16,fp16 pass=fwd,bwd";
  const Ended run =
      fovea({"verify", "--device", "cpu", "--impl", "cpu.scalar,reference", "--hostile", "--problem", line, "--json"});
  const auto told = nlohmann::json::parse(run.out);
  EXPECT_EQ(run.code, 0) << run.out;
  EXPECT_EQ(told["passed"], 6 * std::size(verification::kDataFamilies) * std::size(verification::kPlacements) * 2);
}

TEST(CommandLineOutput, AnUnknownNameInTheEnvironmentIsNamed) {
  const Ended run = fovea({"explain", "--problem", kTiny}, {.environment = {"FOVEA_IMPL=nosuch"}});
  EXPECT_EQ(run.code, 2);
  for (const char* word : {"argument `FOVEA_IMPL`", "nosuch", "one of ", "naive"})
    EXPECT_NE(run.err.find(word), std::string::npos) << run.err;
}

// `flash` is the program's word for the implementation of a call that names none. The library knows it neither as a
// name nor in the environment.
// The lower bound, at the end, follows from a rate that each run measures.
TEST(CommandLineOutput, FlashIsWhatACallRunsThatNamesNone) {
  const auto without_bound = [](const std::string& text) { return text.substr(0, text.find("lower bound ")); };
  for (const std::string& line : {kTiny, std::string("op=linear m=4 n=4 k=4")}) {
    const Ended word = fovea({"explain", "--problem", line, "--impl", "flash"}),
                none = fovea({"explain", "--problem", line});
    EXPECT_EQ(word.code, 0) << word.err;
    ASSERT_NE(word.out.find("lower bound "), std::string::npos) << word.out;
    EXPECT_EQ(without_bound(word.out), without_bound(none.out));
  }
  const auto told = nlohmann::json::parse(
      fovea({"explain", "--problem", kTiny, "--impl", "flash", "--json"}, {.environment = {"FOVEA_IMPL=naive"}}).out);
  EXPECT_EQ(told["chosen"], "naive");
  const Ended refused = fovea({"explain", "--problem", kTiny}, {.environment = {"FOVEA_IMPL=flash"}});
  EXPECT_EQ(refused.code, 2);
  EXPECT_NE(refused.err.find("argument `FOVEA_IMPL`"), std::string::npos) << refused.err;
}

// Every implementation's own verdict, also of those after the one that runs and of those that a cap passes over.
TEST(CommandLineOutput, ExplainShowsEveryVerdict) {
  const Ended run = fovea({"explain", "--problem", "lq=100 d=64", "--json"}, {.environment = {"FOVEA_CPU_ISA=scalar"}});
  const auto walk = nlohmann::json::parse(run.out)["walk"];
  EXPECT_GE(walk.size(), 5u);
  for (const auto& step : walk) {
    SCOPED_TRACE(step.dump());
    const std::string name = step["name"], reason = step["reason"];
    EXPECT_EQ(step["taken"], name == "cpu.scalar");
    EXPECT_EQ(step["accepts"], name == "cpu.scalar" || name == "reference");
    EXPECT_EQ(step["accepts"], reason.empty());
    for (const auto& one : implementations()) {
      if (one.name != name || one.device != DeviceKind::cpu || step["accepts"]) continue;
      const bool named = reason.find("runs only when named") != std::string::npos;
      EXPECT_EQ(named,
                one.unavailable.empty() && name != "cpu.amx" && name != "cpu.avx512_bf16" && name.starts_with("cpu."));
    }
  }
}

TEST(CommandLineOutput, BenchTimesTheProblemsOfAllLines) {
  const auto rows = bench(kTiny, "reference", 0, {"--problem", "lq=6,8 d=4 pass=bwd"});
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_NE(rows[0].problem.find("pass=fwd b=1 hq=1 hkv=1 lq=4 "), std::string::npos) << rows[0].problem;
  EXPECT_NE(rows[2].problem.find("pass=bwd b=1 hq=1 hkv=1 lq=8 "), std::string::npos) << rows[2].problem;
}

TEST(CommandLineOutput, SeedZeroIsAccepted) {
  const auto rows = bench("lq=4 d=4 seed=7", "reference", 0, {"--seed", "0"});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_TRUE(rows[0].problem.ends_with(" seed=0")) << rows[0].problem;
}

}  // namespace
}  // namespace fovea::tests
