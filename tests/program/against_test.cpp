// fovea bench --against: an older program in the same cells.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "run_program.h"

namespace fovea::tests {
namespace {

TEST(Against, AnOlderProgramIsTimedInTurnsWithThisOne) {
  const Folder folder;
  const std::string file = folder / "both.jsonl";
  const Ended run = fovea({"bench", "--problem", "lq=64 d=16 pass=fwd,e2e", "--impl", "cpu.scalar,naive", "--against",
                           FOVEA_PROGRAM, "--repeat-for", "0.01", "-o", file});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.out.find("cpu.scalar: geometric mean of old/new"), std::string::npos) << run.out;
  expect_valid_records(file);
  const auto rows = program::load_records(file).rows;
  ASSERT_EQ(rows.size(), 8u);
  for (const auto& row : rows) {
    EXPECT_EQ(row.status, "ok") << row.impl << row.reason;
    EXPECT_EQ(row.impl.ends_with("@old"), row.peer.starts_with("fovea ")) << row.impl << row.peer;
  }
}

TEST(Against, AProgramThatIsNoFoveaIsRefused) {
  for (const char* program : {"/bin/true", "/bin/false", "/no/such/program"}) {
    const Ended run = fovea({"bench", "--problem", "lq=8 d=8", "--against", program});
    EXPECT_EQ(run.code, 2) << program << run.out;
    EXPECT_NE(run.err.find("--against"), std::string::npos) << run.err;
  }
}

TEST(Against, APathMayHoldWhatAShellReads) {
  const Folder folder;
  const std::string program = folder / "o'x; $(false) fovea";
  std::filesystem::create_symlink(FOVEA_PROGRAM, program);
  const Ended run = fovea({"bench", "--problem", "lq=8 d=8", "--impl", "reference,cpu.scalar", "--against", program,
                           "--repeat-for", "0.01"});
  EXPECT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.out.find("cpu.scalar@old"), std::string::npos) << run.out;
}

}  // namespace
}  // namespace fovea::tests
