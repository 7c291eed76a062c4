// Memory that runs out, at every place where a call asks for it.
#include "attention/engines.h"
#include "core/memory.h"
#include "core/tensor_checks.h"

namespace fovea {
namespace {

std::vector<std::byte> bytes_of(const MutableTensorView& t) {
  const auto* const begin = static_cast<const std::byte*>(t.data);
  return {begin, begin + core::element_count(t) * size_of(t.dtype)};
}

// Every allocation of a call fails in turn: a named error with the bytes wanted, nothing written, the next call works.
// In every kind of plan: few queries in one chunk and in several, query tiles, and keys cut into chunks.
TEST(Refusal, AllocationFailures) {
  for (const char* line : {"pass=fwd b=1 hq=4 hkv=1 lq=1 lk=60 d=16", "pass=fwd b=1 hq=4 hkv=1 lq=1 lk=9000 d=16",
                           "pass=fwd b=1 hq=2 lq=150 lk=150 d=16 mask=causal", "pass=bwd b=1 hq=2 lq=40 lk=40 d=16",
                           "pass=bwd b=1 hq=1 lq=40 lk=2100 d=16"}) {
    for (const char* type : {"fp32", "bf16"}) {
      const verification::AttentionCase c = verification::attention_case(std::string(line) + " dtype=" + type);
      for (const std::string& engine : engines()) {
        if (!takes(engine, c.problem)) continue;
        const verification::CaseTensors t = verification::make_tensors(c);
        AttentionOptions options = verification::options_of(c);
        options.implementation = engine;
        const bool forward = c.problem.pass == Pass::forward;
        const auto outputs = [&] {
          std::vector<std::vector<std::byte>> all;
          for (const auto* one : {&t.out, &t.lse, &t.dq, &t.dk, &t.dv}) all.push_back(bytes_of(one->view()));
          return all;
        };
        const auto run = [&] {
          forward ? attention_forward(t.forward(), options) : attention_backward(t.backward(), options);
        };
        if (!forward) attention_forward(t.forward(), options);
        const auto before = outputs();
        for (std::int64_t n = 1; n <= 4; ++n) {
          SCOPED_TRACE(engine + " " + line + " " + type + " allocation " + std::to_string(n));
          bool failed = false;
          core::fail_allocation(n);
          try {
            run();
          } catch (const Error& error) {
            failed = true;
            EXPECT_EQ(error.status(), Status::out_of_memory) << error.what();
            EXPECT_NE(error.details().wanted.find("iB"), std::string::npos) << error.what();
            EXPECT_TRUE(outputs() == before);
          }
          core::fail_allocation(0);
          EXPECT_TRUE(failed || n > 1 || workspace_bytes(c.problem, engine) == 0);
          if (!failed) break;
        }
        EXPECT_NO_THROW(run());
        EXPECT_FALSE(outputs() == before);
        EXPECT_EQ(core::memory_count().current, 0);
      }
    }
  }
}

}  // namespace
}  // namespace fovea
