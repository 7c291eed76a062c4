// A problem of Linear is planned at its first call and no more, and a plan is the same for any number of threads.
#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "core/choose.h"
#include "linear/host_plan.h"
#include "linear/implementation.h"
#include "linear_tensors.h"

namespace fovea::linear {
namespace {

struct Calls {
  TestTensor x{{2, 2, 5, 4}, DType::fp32, Order::dense, 1}, weight{{1, 1, 6, 8}, DType::fp32, Order::dense, 2},
      y{{2, 1, 5, 6}, DType::fp32, Order::dense, 0}, dy{{2, 1, 5, 6}, DType::fp32, Order::dense, 4},
      dx{{2, 2, 5, 4}, DType::fp32, Order::dense, 0}, dweight{{1, 1, 6, 8}, DType::fp32, Order::dense, 0};
  LinearForwardTensors forward{x.view, weight.view, {}, y.view};
  LinearBackwardTensors backward{x.view, weight.view, dy.view, dx.view, dweight.view, {}};
};

std::vector<std::string> names_on_the_cpu() {
  std::vector<std::string> names;
  for (const ImplementationInfo& one : linear_implementations())
    if (one.device == DeviceKind::cpu) names.push_back(one.name);
  return names;
}

TEST(LinearPlans, AreMadeOnceForEachNewProblem) {
  for (const std::string& name : names_on_the_cpu()) {
    SCOPED_TRACE(name);
    Calls calls;
    LinearOptions options{.implementation = name};
    const auto run = [&] {
      linear_forward(calls.forward, options);
      linear_backward(calls.backward, options);
    };
    const std::int64_t before = plans_made();
    run();
    EXPECT_EQ(plans_made() - before, 2);
    for (int n = 0; n < 10; ++n) run();
    std::thread(run).join();
    options.threads = 3;
    run();
    EXPECT_EQ(workspace_bytes(describe(calls.forward, options), name),
              explain(describe(calls.forward, options), name).workspace_bytes);
    EXPECT_EQ(plans_made() - before, 2);
    calls.backward.accumulate = true;
    run();
    EXPECT_EQ(plans_made() - before, 3);
  }
}

// A run takes what the plan found for a whole product; products of a batch are smaller.
TEST(LinearPlans, HoldTheTilesOfWholeProducts) {
  for (const HostLibrary& library : host_libraries()) {
    SCOPED_TRACE(library.name);
    const HostPlan plan(library, {.pass = Pass::backward, .len = 321, .dim_in = 123, .dim_out = 77});
    const auto product = [](std::int64_t m, std::int64_t n, std::int64_t k) {
      BatchedProduct one;
      one.m = m, one.n = n, one.k = k;
      return one;
    };
    const BatchedProduct dx = product(321, 123, 77), dweight = product(77, 123, 321), split = product(321, 41, 77);
    if (plan.is_own()) {
      EXPECT_EQ(plan.layout_of(dx), &plan.layouts.at(0));
      EXPECT_EQ(plan.layout_of(dweight), &plan.layouts.at(1));
      EXPECT_EQ(plan.layout_of(split), nullptr);
    } else {
      EXPECT_EQ(plan.tiling_of(dx), &plan.tilings.at(0));
      EXPECT_EQ(plan.tiling_of(dweight), &plan.tilings.at(1));
      EXPECT_EQ(plan.tiling_of(split), nullptr);
    }
  }
}

// Tiles of whole rows (bf16 tiles of oneDNN): without a second tile, a product of few rows would have one thread.
TEST(LinearPlans, DivideFewRowsOnce) {
  const TileSize whole_rows{1024, 8192, true};
  const auto tiles = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
    BatchedProduct one;
    one.m = m, one.n = n, one.k = k;
    return tiling_of(one, whole_rows).tiles;
  };
  EXPECT_EQ(tiles(31, 3072, 1024), 1);
  EXPECT_EQ(tiles(32, 3072, 1024), 2);
  EXPECT_EQ(tiles(120, 3072, 1024), 2);
  EXPECT_EQ(tiles(256, 3072, 512), 4);
  EXPECT_EQ(tiles(128, 8192, 1024), 2) << "large, and too few rows for two tiles of 192";
}

TEST(LinearPlans, AreFoundAgainByEveryNameOfAChoice) {
  const LinearProblem problem{.len = 321, .dim_in = 123, .dim_out = 77};
  const auto choose = [&](std::string_view name) {
    return core::Chooser<Types>(problem, name).choose("linear_forward");
  };
  const auto first = choose("");
  EXPECT_EQ(choose("")->plan, first->plan);
  EXPECT_EQ(choose(first->implementation->name)->implementation, first->implementation);
  EXPECT_EQ(first->plan->call, "linear_forward");
  EXPECT_EQ(first->plan->line(), Types::line(problem));
  EXPECT_EQ(first->plan->tiles, explain(problem).tiles);
}

TEST(LinearPlans, KeptByTheCallerGiveTheSameBitsWithoutAChoice) {
  for (const std::string& name : names_on_the_cpu()) {
    SCOPED_TRACE(name);
    Calls plain, planned;
    const LinearOptions named{.implementation = name};
    linear_forward(plain.forward, named);
    linear_backward(plain.backward, named);
    const fovea::Plan forward = prepare(describe(planned.forward, named), name);
    const fovea::Plan backward = prepare(describe(planned.backward, named), name);
    EXPECT_EQ(forward.implementation(), name);
    const std::int64_t before = plans_made();
    linear_forward(planned.forward, {.plan = &forward});
    linear_backward(planned.backward, {.plan = &backward});
    EXPECT_EQ(plans_made(), before);
    EXPECT_EQ(planned.y.all(), plain.y.all());
    EXPECT_EQ(planned.dx.all(), plain.dx.all());
    EXPECT_EQ(planned.dweight.all(), plain.dweight.all());
  }
}

TEST(LinearPlans, AreRefusedByOtherCalls) {
  Calls calls;
  const std::vector<float> before = calls.y.all();
  const auto refused = [&](const auto& call) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::invalid_argument);
      EXPECT_EQ(error.details().argument, "plan") << error.what();
      return error.details();
    }
    ADD_FAILURE() << "not refused";
    return ErrorDetails{};
  };
  const fovea::Plan empty, backward = prepare(describe(calls.backward));
  LinearProblem other = describe(calls.forward);
  other.len += 1;
  const fovea::Plan longer = prepare(other), named = prepare(describe(calls.forward), "cpu.own");
  EXPECT_EQ(refused([&] { linear_forward(calls.forward, {.plan = &empty}); }).got, "an empty plan");
  EXPECT_EQ(refused([&] { linear_forward(calls.forward, {.plan = &backward}); }).got, "linear_backward");
  EXPECT_NE(refused([&] { linear_forward(calls.forward, {.plan = &longer}); }).got.find("m=6"), std::string::npos);
  EXPECT_EQ(refused([&] { linear_forward(calls.forward, {.implementation = "cpu.other", .plan = &named}); }).wanted,
            "cpu.other");
  EXPECT_EQ(std::memcmp(calls.y.all().data(), before.data(), before.size() * sizeof(float)), 0);
}

TEST(LinearPlans, TheProgramsWordIsNoName) {
  try {
    explain(LinearProblem{}, "flash");
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::invalid_argument);
    EXPECT_EQ(error.details().argument, "implementation");
    EXPECT_EQ(error.details().got, "flash");
    EXPECT_EQ(error.details().wanted.find("flash"), std::string::npos) << error.details().wanted;
  }
}

}  // namespace
}  // namespace fovea::linear
