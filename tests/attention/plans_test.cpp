// A problem is planned at its first call and no more.
#include <thread>

#include "attention/engines.h"
#include "attention/implementation.h"
#include "attention/small_call.h"
#include "verification/attention/case.h"

namespace fovea {
namespace {

TEST(Plans, AreMadeOnceForEachNewProblem) {
  for (const std::string& engine : engines_of_all_types()) {
    SCOPED_TRACE(engine);
    Call call(11);  // a batch that no other test has
    call.options.implementation = engine;
    const auto run = [&call] {
      attention_forward(call.forward, call.options);
      attention_backward(call.backward, call.options);
    };
    const std::int64_t before = attention::plans_made();
    run();
    EXPECT_EQ(attention::plans_made() - before, 2);
    for (int n = 0; n < 10; ++n) run();
    std::thread(run).join();
    call.options.threads = 3;
    run();
    EXPECT_EQ(workspace_bytes(describe(call.forward, call.options), engine),
              explain(describe(call.forward, call.options), engine).workspace_bytes);
    EXPECT_EQ(attention::plans_made() - before, 2);
    call.options.scale = 0.5;
    run();
    EXPECT_EQ(attention::plans_made() - before, 4);
  }
}

TEST(Plans, TheProgramsWordIsNoName) {
  Call call(7);
  call.options.implementation = "flash";
  try {
    attention_forward(call.forward, call.options);
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.details().argument, "implementation");
    EXPECT_EQ(error.details().wanted.find("flash"), std::string::npos) << error.details().wanted;
  }
}

std::int64_t workspace_of(const char* line) {
  return prepare(verification::attention_case(line).problem, "cpu.scalar").workspace_bytes();
}

TEST(Plans, FewQueriesNeedNoMemoryForAllKeysAndValues) {
  EXPECT_EQ(workspace_of("lq=1 lk=64k d=64"), workspace_of("lq=1 lk=32k d=64"));
  EXPECT_GT(workspace_of("lq=4k lk=64k d=64"), 64 * 1024 * 64 * 4);  // packed once for many tasks
}

TEST(Plans, BackwardSplitsTheKeysOnlyIfThereAreFewSequences) {
  const auto tiles = [](const char* line) { return explain(verification::attention_case(line).problem, "cpu.scalar").tiles; };
  EXPECT_NE(tiles("pass=bwd b=64 lq=16 lk=4k d=16").find(" 4096 keys per task, 64 tasks"), std::string::npos);
  EXPECT_EQ(tiles("pass=bwd b=1 lq=16 lk=4k d=16").find(" 4096 keys per task"), std::string::npos);
  EXPECT_NE(tiles("pass=bwd b=0 lq=16 lk=4k d=16").find(", 0 tasks"), std::string::npos);
}

TEST(Plans, BackwardHasScratchForAWorkerPerRowsOrChunkOfKeys) {
  const std::int64_t one = workspace_of("pass=bwd lq=1 lk=64 d=16");
  EXPECT_GE(workspace_of("pass=bwd lq=4k lk=64 d=16"), 2 * one);
}

}  // namespace
}  // namespace fovea
