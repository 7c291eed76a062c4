// The values of a problem line's keys.
#include <gtest/gtest.h>

#include "core/problem_line.h"

namespace fovea::core {
namespace {

TEST(LineValues, AWordInsteadOfANumberCountsAsZero) {
  const KeyTable table{.operation = "test", .keys = {Key{"left", KeyKind::count, "", {"unlimited"}, "unlimited"}}};
  LineValues values(table);
  EXPECT_EQ(values.count("left"), 0) << "not set";
  values.resolve({false});
  EXPECT_EQ(values["left"], "unlimited");
  EXPECT_EQ(values.count("left"), 0);
  values.set("left", std::int64_t{4096});
  EXPECT_EQ(values.count("left"), 4096);
}

TEST(LineValues, ANumberEndsWithItsText) {
  const std::string_view text = std::string_view("123").substr(0, 2);  // a digit follows it in memory
  for (const KeyKind kind : {KeyKind::count, KeyKind::seed, KeyKind::number})
    EXPECT_EQ(canonical(Key{.name = "key", .kind = kind}, text), "12");
}

}  // namespace
}  // namespace fovea::core
