// A problem is planned at its first call and no more.
#include <thread>

#include "attention/engines.h"
#include "attention/implementation.h"
#include "attention/small_call.h"

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

}  // namespace
}  // namespace fovea
