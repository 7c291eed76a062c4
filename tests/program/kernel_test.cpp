// Anybody's kernel: the examples, as the README tells people to run them.
#include <gtest/gtest.h>

#include <cstdlib>

#include "run_program.h"

namespace fovea::tests {
namespace {

// A Python that can run kernels, or none.
std::string python_with_numpy() {
  for (const std::string& python :
       {std::string(FOVEA_SOURCE_FOLDER) + "/build/venv/bin/python", std::string("python3")}) {
    if (std::system((python + " -c 'import numpy' 2>/dev/null").c_str()) == 0) return python;
  }
  return "";
}

// Every row sees a key.
const char* const kWindows =
    "lq=33 lk=70 d=16 hq=4 hkv=2 mask=window_top_left,window_bottom_right left=4,unlimited right=2,9";

TEST(OwnKernel, TheExampleInC) {
  const std::string kernel = FOVEA_MY_KERNEL ":my_attention";
  const auto rows =
      bench("lq=33 lk=70 d=16 hq=4 hkv=2 mask=none,causal_top_left,causal_bottom_right layout=bhld,blhd", kernel, 0);
  ASSERT_EQ(rows.size(), 6u);
  for (const auto& row : rows) EXPECT_EQ(row.status, "ok") << row.reason;
  for (const auto& row : bench(kWindows, kernel, 0)) EXPECT_EQ(row.status, "ok") << row.reason;
  const auto refused = bench("lq=8 d=8 dtype=bf16", kernel, 0);
  EXPECT_EQ(refused.at(0).status, "unsupported");
}

TEST(OwnKernel, TheExampleInPython) {
  const std::string python = python_with_numpy();
  if (python.empty()) GTEST_SKIP() << "no Python with numpy";
  const std::string kernel = FOVEA_SOURCE_FOLDER "/examples/my_kernel.py:attention";
  const auto rows = bench("lq=33 lk=70 d=16 hq=4 hkv=2 mask=none,causal_top_left,causal_bottom_right layout=bhld,blhd",
                          kernel, 0, {"--python", python});
  ASSERT_EQ(rows.size(), 6u);
  for (const auto& row : rows) {
    EXPECT_EQ(row.status, "ok") << row.reason;
    EXPECT_EQ(row.timer, "perf_counter");
  }
  for (const auto& row : bench(kWindows, kernel, 0, {"--python", python})) EXPECT_EQ(row.status, "ok") << row.reason;
}

TEST(OwnKernel, PythonThatFailsLeavesARow) {
  const std::string python = python_with_numpy();
  if (python.empty()) GTEST_SKIP() << "no Python with numpy";
  const Folder folder;
  const std::string file = folder / "bad.py";
  write_text(file,
             "import os\n"
             "def raises(q, k, v, mask, scale): raise ValueError('no such thing')\n"
             "def wrong_shape(q, k, v, mask, scale): return q[..., :1]\n"
             "def no_memory(q, k, v, mask, scale): raise MemoryError('all gone')\n"
             "def refuses(q, k, v, mask, scale): raise NotImplementedError('not today')\n"
             "def dies(q, k, v, mask, scale): os._exit(5)\n"
             "def scribbles(q, k, v, mask, scale):\n    q[...] = 0\n    return v * 0\n");
  const auto check = [&](const std::string& name, const std::string& status, const std::string& reason, int code) {
    const auto rows = bench("lq=8 d=4", file + ":" + name + "," + bad_kernel("right"), code, {"--python", python});
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_EQ(rows[0].status, status) << rows[0].reason;
    EXPECT_NE(rows[0].reason.find(reason), std::string::npos) << rows[0].reason;
    EXPECT_EQ(rows[1].status, "ok") << rows[1].reason;
  };
  check("raises", "error", "ValueError: no such thing", 1);
  check("wrong_shape", "error", "out has shape (1, 1, 8, 1), wanted (1, 1, 8, 4)", 1);
  check("no_memory", "oom", "all gone", 0);
  check("refuses", "unsupported", "not today", 0);
  check("dies", "crashed", "code 5", 1);
  check("scribbles", "mismatch", "out", 1);
  check("not_there", "error", "has no `not_there`", 1);
}

TEST(OwnKernel, ControlCharactersOfItsOutputAreEscaped) {
  const std::string python = python_with_numpy();
  if (python.empty()) GTEST_SKIP() << "no Python with numpy";
  const Folder folder;
  const std::string file = folder / "red.py";
  write_text(file, "def red(q, k, v, mask, scale): raise ValueError('\\x1b[31mred\\nrum')\n");
  const Ended run = fovea({"bench", "--problem", "lq=8 d=4", "--impl", file + ":red", "--python", python});
  EXPECT_EQ(run.code, 1);
  EXPECT_NE(run.err.find("ValueError: \\x1b[31mred\\nrum\n"), std::string::npos) << run.err;
  EXPECT_EQ((run.out + run.err).find('\033'), std::string::npos);
}

TEST(OwnKernel, NamesTheFrameworkItMeasures) {
  const std::string python = python_with_numpy();
  if (python.empty()) GTEST_SKIP() << "no Python with numpy";
  const Folder folder;
  const std::string file = folder / "peer.py";
  write_text(file,
             "from fovea_worker import FunctionKernel\n"
             "class Of(FunctionKernel):\n"
             "    peer = 'Framework 1.2'\n"
             "    def __init__(self): super().__init__(lambda q, k, v, mask, scale: v)\n");
  const auto rows = bench("lq=1 d=4", file + ":Of", 0, {"--python", python});
  EXPECT_EQ(rows.at(0).status, "ok") << rows.at(0).reason;
  EXPECT_EQ(rows.at(0).peer, "Framework 1.2");
}

// A program that is copied to another machine finds the library where that machine has it.
TEST(MatrixLibrary, IsLoadedByItsNameAndNotByThePathOfTheBuild) {
  const Ended run = fovea({"verify", "--impl", "cpu.openblas", "--problem", "op=linear m=8 k=8 n=8 dtype=fp32"},
                          {.environment = {"LD_DEBUG=libs"}});
  EXPECT_EQ(run.code, 0) << run.out;
  EXPECT_NE(run.err.find("find library=libopenblas"), std::string::npos);
}

TEST(OwnKernel, AMissingPythonIsARowToo) {
  const auto rows =
      bench("lq=8 d=4", FOVEA_SOURCE_FOLDER "/examples/my_kernel.py:attention", 1, {"--python", "/no/such/python"});
  EXPECT_EQ(rows.at(0).status, "crashed");
  EXPECT_NE(rows.at(0).reason.find("no such program"), std::string::npos) << rows.at(0).reason;
}

}  // namespace
}  // namespace fovea::tests
