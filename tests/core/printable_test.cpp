// What a terminal would obey is shown instead.
#include "core/printable.h"

#include <gtest/gtest.h>

namespace fovea::core {
namespace {

TEST(Printable, ControlCharactersAreShown) {
  EXPECT_EQ(printable("a\033[31mb\nc\td\r\x7f"), "a\\x1b[31mb\\nc\\td\\x0d\\x7f");
  EXPECT_EQ(printable("\xc2\x9b"), "\\xc2\\x9b") << "one character that begins an escape sequence";
  EXPECT_EQ(printable("\xc2\x80\xc2\x9f"), "\\xc2\\x80\\xc2\\x9f") << "the first and the last of them";
  EXPECT_EQ(printable("\xc2\xa0"), "\xc2\xa0") << "a space";
  EXPECT_EQ(printable("caf\xc3\xa9 \xc2\xb7 \xc2"), "caf\xc3\xa9 \xc2\xb7 \xc2");
  EXPECT_EQ(printable_lines("a\n\033b"), "a\n\\x1bb");
}

}  // namespace
}  // namespace fovea::core
