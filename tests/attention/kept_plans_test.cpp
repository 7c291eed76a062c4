// Plans that callers keep: the same bits as without one, and refused wherever they do not belong.
#include <gtest/gtest.h>

#include <functional>

#include "attention/implementation.h"
#include "attention/small_call.h"
#include "fovea/linear.h"

namespace fovea {
namespace {

ErrorDetails refusal_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.details();
  }
  ADD_FAILURE() << "nothing was refused";
  return {};
}

TEST(KeptPlans, RunWithoutAnotherChoice) {
  Call plain(7), planned(7);
  attention_forward(plain.forward, plain.options);
  const Plan plan = prepare(describe(planned.forward, planned.options));
  EXPECT_EQ(plan.implementation(), explain(describe(planned.forward, planned.options)).chosen);
  EXPECT_EQ(plan.workspace_bytes(), workspace_bytes(describe(planned.forward, planned.options)));
  planned.options.plan = &plan;
  const std::int64_t before = attention::plans_made();
  attention_forward(planned.forward, planned.options);
  EXPECT_EQ(attention::plans_made(), before);
  EXPECT_EQ(plain.out, planned.out);
}

TEST(KeptPlans, TakeTheNameThatTheyWerePreparedWithOrChose) {
  Call call(7);
  const Plan plan = prepare(describe(call.forward, call.options));
  call.options.plan = &plan;
  for (const std::string_view name : {plan.implementation(), std::string_view()}) {
    call.options.implementation = name;
    EXPECT_NO_THROW(attention_forward(call.forward, call.options)) << name;
  }
}

TEST(KeptPlans, AreRefusedForAnotherProblem) {
  Call call(7);
  const Plan plan = prepare(describe(call.forward, call.options));
  call.options.plan = &plan;
  call.options.scale = 0.5;
  const ErrorDetails refused = refusal_of([&] { attention_forward(call.forward, call.options); });
  EXPECT_EQ(refused.status, Status::invalid_argument);
  EXPECT_EQ(refused.argument, "plan");
  EXPECT_NE(refused.got, refused.wanted);
  EXPECT_NE(refused.wanted.find("scale=0.5"), std::string::npos) << refused.wanted;
  EXPECT_EQ(refused.got.find("scale=0.5"), std::string::npos) << refused.got;
  const Plan by_name = prepare(describe(call.forward, {}), plan.implementation());
  call.options.plan = &by_name, call.options.implementation = plan.implementation();
  EXPECT_EQ(refusal_of([&] { attention_forward(call.forward, call.options); }).wanted, refused.wanted);
  EXPECT_TRUE(call.outputs_untouched());
}

TEST(KeptPlans, AreRefusedForAnotherPassDeviceOrName) {
  Call call(7);
  const Plan plan = prepare(describe(call.forward, call.options));
  call.options.plan = &plan;
  EXPECT_EQ(refusal_of([&] { attention_backward(call.backward, call.options); }).got, "attention_forward");
  call.options.implementation = "cpu.no_such";
  EXPECT_EQ(refusal_of([&] { attention_forward(call.forward, call.options); }).wanted, "cpu.no_such");
  call.options.implementation = "";
  for (TensorView* view : {&call.forward.q, &call.forward.k, &call.forward.v}) view->device = {DeviceKind::cuda, 1};
  for (MutableTensorView* view : {&call.forward.out, &call.forward.lse}) view->device = {DeviceKind::cuda, 1};
  const ErrorDetails elsewhere = refusal_of([&] { attention_forward(call.forward, call.options); });
  EXPECT_EQ(elsewhere.got, "cpu 0");
  EXPECT_EQ(elsewhere.wanted, "cuda 1");
  EXPECT_TRUE(call.outputs_untouched());
}

TEST(KeptPlans, AreRefusedWhenEmptyOrOfAnotherOperation) {
  Call call(7);
  const Plan empty;
  call.options.plan = &empty;
  EXPECT_EQ(refusal_of([&] { attention_forward(call.forward, call.options); }).got, "an empty plan");
  EXPECT_EQ(fovea::Plan{}.workspace_bytes(), 0);
  EXPECT_EQ(fovea::Plan{}.saved_bytes(), 0);
  LinearProblem linear;
  linear.len = 8, linear.dim_in = 8, linear.dim_out = 8;
  const Plan other = prepare(linear);
  call.options.plan = &other;
  EXPECT_EQ(refusal_of([&] { attention_forward(call.forward, call.options); }).got, "linear_forward");
}

}  // namespace
}  // namespace fovea
