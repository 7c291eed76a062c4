// Memory that runs out, at every place where a call asks for it.
#include "attention/engines.h"
#include "attention/small_call.h"
#include "core/memory.h"

namespace fovea {
namespace {

// Every allocation of a call fails in turn: a named error with the bytes wanted, nothing written, the next call works.
TEST(Refusal, AllocationFailures) {
  for (const std::string& engine : engines_of_all_types()) {
    for (const bool forward : {true, false}) {
      for (std::int64_t n = 1; n <= 4; ++n) {
        SCOPED_TRACE(engine + " allocation " + std::to_string(n));
        Call call;
        call.options.implementation = engine;
        const auto run = [&] {
          forward ? attention_forward(call.forward, call.options) : attention_backward(call.backward, call.options);
        };
        core::fail_allocation(n);
        bool failed = false;
        try {
          run();
        } catch (const Error& error) {
          failed = true;
          EXPECT_EQ(error.status(), Status::out_of_memory) << error.what();
          EXPECT_NE(error.details().wanted.find("iB"), std::string::npos) << error.what();
          EXPECT_TRUE(call.outputs_untouched());
        }
        core::fail_allocation(0);
        EXPECT_TRUE(failed || n > 1 || workspace_bytes(describe(call.forward, {}), engine) == 0);
        EXPECT_NO_THROW(run());
        EXPECT_FALSE(call.outputs_untouched());
        EXPECT_EQ(core::memory_count().current, 0);
      }
    }
  }
}

}  // namespace
}  // namespace fovea
