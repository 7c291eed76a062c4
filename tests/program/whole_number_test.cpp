// Counts in records are whole numbers that fit their fields.
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>

#include "made_records.h"

namespace fovea::program {
namespace {

std::string replaced(std::string line, const std::string& from, const std::string& to) {
  const std::size_t at = line.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return at == std::string::npos ? line : line.replace(at, from.size(), to);
}

std::string refusal_of(const std::string& line) {
  try {
    record_of(line);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

// JSON has one kind of number: what is no whole number, or too large for the field, is refused by name.
TEST(WholeNumbers, OtherNumbersAreRefusedByName) {
  Row row = tests::made_row("lq=8 d=4", "cpu.avx2", {3e-3, 1e-3, 2e-3});
  row.workspace_bytes = 4096;
  for (const auto& [key, value] :
       {std::pair<std::string, std::string>{"n", "3"}, {"threads", "1"}, {"workspace_bytes", "4096"}}) {
    for (const std::string wrong : {"1e300", "1.5", "true", "-1e300", "18446744073709551615"}) {
      const std::string line = replaced(json_line(row), '"' + key + "\":" + value, '"' + key + "\":" + wrong);
      EXPECT_NE(refusal_of(line).find("key `" + key + "`"), std::string::npos) << wrong << ": " << refusal_of(line);
    }
  }
  const std::string line = json_line(tests::made_environment());
  EXPECT_NE(refusal_of(replaced(line, "\"threads\":1", "\"threads\":4294967297")).find("`threads`"), std::string::npos);
}

TEST(WholeNumbers, MayBeWrittenWithAPoint) {
  const std::string line = json_line(tests::made_row("lq=8 d=4", "cpu.avx2", {1, 2, 3}));
  EXPECT_EQ(row_of(replaced(line, "\"threads\":1", "\"threads\":2.0")).threads, 2);
}

}  // namespace
}  // namespace fovea::program
