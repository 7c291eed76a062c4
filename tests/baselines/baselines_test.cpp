// The baselines keep the contract: right answers for every form, type, mask and layout, and their refusals.
#include "baselines/baselines.h"

#include <gtest/gtest.h>

#include <cmath>

#include "verification/attention/case_tensors.h"
#include "verification/attention/check.h"

namespace fovea {
namespace {

constexpr std::string_view kForms[] = {"naive", "vectorized", "fused"};

const bool kCpuRegistered = (attention::register_implementations(baselines::implementations()), true);

AttentionOptions options_for(const verification::AttentionCase& c, std::string_view form, int threads = 2) {
  AttentionOptions options = verification::options_of(c);
  options.implementation = form;
  options.threads = threads;
  options.reproducible = false;
  return options;
}

AttentionProblem backward_problem(const verification::AttentionCase& c) {
  AttentionProblem problem = c.problem;
  problem.pass = Pass::backward;
  return problem;
}

std::int64_t saved_bytes(const verification::AttentionCase& c, std::string_view form) {
  AttentionProblem problem = c.problem;
  problem.reproducible = false;
  return explain(problem, form).saved_bytes;
}

// Forward and backward, with saved state or without, and the verdict on both.
void expect_right(const std::string& line, std::string_view form, bool with_saved, DType result) {
  const verification::AttentionCase c = verification::attention_case("pass=e2e " + line);
  verification::CaseTensors tensors = verification::make_tensors(c, result);
  if (with_saved) tensors.saved = verification::host_buffer(saved_bytes(c, form));
  const AttentionOptions options = options_for(c, form);
  attention_forward(tensors.forward(), options);
  attention_backward(tensors.backward(), options);
  AttentionProblem problem = c.problem;
  problem.result_dtype = result;
  const auto forward = verification::check_forward(problem, tensors.forward(), 1);
  EXPECT_TRUE(forward.ok) << form << (with_saved ? " saved " : " recomputed ") << verification::line_of(c) << "\n"
                          << forward.reason();
  problem.pass = Pass::backward;
  BackwardTensors results = tensors.backward();
  // Saved probabilities are the reference's; without them, backward is given lse and out.
  if (with_saved) results.lse = {}, results.out = {};
  const auto backward = verification::check_backward(problem, results, 1);
  EXPECT_TRUE(backward.ok) << form << (with_saved ? " saved " : " recomputed ") << verification::line_of(c) << "\n"
                           << backward.reason();
  EXPECT_TRUE(tensors.padding_intact()) << form << " " << verification::line_of(c);
}

class Baselines : public testing::TestWithParam<std::string_view> {};

TEST_P(Baselines, AreRightForEveryTypeMaskAndLayout) {
  for (const char* dtype : {"fp32", "bf16", "fp16"}) {
    for (const char* mask : {"none", "causal_top_left", "causal_bottom_right", "window_top_left left=9 right=2",
                             "window_bottom_right left=20 right=0"}) {
      for (const char* shape : {"b=2 hq=4 hkv=2 lq=70 lk=45 d=24 dv=40 layout=blhd", "hq=3 lq=37 lk=101 d=64 data=ones",
                                "hq=2 hkv=1 lq=1 lk=9 d=1", "b=2 lq=90 lk=90 d=16 place=strided",
                                "hq=4 lq=65 lk=64 d=33 place=broadcast"}) {
        const std::string line = std::string(shape) + " dtype=" + dtype + " mask=" + mask;
        expect_right(line, GetParam(), true, DType::fp32);
        expect_right(line, GetParam(), false, verification::attention_case(line).problem.dtype);
      }
    }
  }
}

TEST_P(Baselines, AreRightForEveryDataFamily) {
  for (const std::string_view family : verification::kDataFamilies) {
    if (family == "nonfinite") continue;  // the contract exempts library products from its rules on NaN and infinity
    for (const char* dtype : {"fp32", "bf16", "fp16"}) {
      const std::string line = "hq=4 hkv=2 lq=45 lk=70 d=32 mask=causal_bottom_right dtype=" + std::string(dtype) +
                               " data=" + std::string(family);
      for (const bool with_saved : {false, true})
        expect_right(line, GetParam(), with_saved, verification::attention_case(line).problem.dtype);
    }
  }
}

TEST_P(Baselines, AnswerEmptyProblems) {
  for (const char* shape : {"b=0 lq=4", "lq=0 lk=5", "lq=5 lk=0", "hq=0 hkv=0 lq=4"}) {
    for (const char* dtype : {"fp32", "bf16"}) {
      for (const bool with_saved : {false, true})
        expect_right(std::string(shape) + " d=8 dtype=" + dtype, GetParam(), with_saved, DType::fp32);
    }
  }
}

TEST_P(Baselines, AccumulateIntoGradients) {
  const verification::AttentionCase c =
      verification::attention_case("pass=bwd b=2 hq=4 hkv=2 lq=40 lk=50 d=16 dtype=bf16");
  const verification::CaseTensors once = verification::make_tensors(c, DType::fp32);
  const verification::CaseTensors twice = verification::make_tensors(c, DType::fp32);
  const AttentionOptions options = options_for(c, GetParam());
  attention_forward(once.forward(), options);
  attention_backward(once.backward(), options);
  attention_forward(twice.forward(), options);
  BackwardTensors again = twice.backward();
  attention_backward(again, options);
  again.accumulate = true;
  attention_backward(again, options);
  AttentionProblem problem = backward_problem(c);
  problem.result_dtype = DType::fp32;
  problem.accumulate = true;
  const verification::Gradients before{once.dq.view(), once.dk.view(), once.dv.view()};
  const auto verdict = verification::compare(verification::expect_backward(problem, again, 1, before), again);
  EXPECT_TRUE(verdict.ok) << verdict.reason();
}

TEST_P(Baselines, GiveEachGradientAlone) {
  const verification::AttentionCase c = verification::attention_case("pass=bwd hq=4 hkv=2 lq=40 lk=50 d=16");
  const verification::CaseTensors tensors = verification::make_tensors(c);
  const AttentionOptions options = options_for(c, GetParam());
  attention_forward(tensors.forward(), options);
  for (int wanted = 0; wanted < 3; ++wanted) {
    BackwardTensors t = tensors.backward();
    if (wanted != 0) t.dq = {};
    if (wanted != 1) t.dk = {};
    if (wanted != 2) t.dv = {};
    attention_backward(t, options);
    const auto verdict = verification::check_backward(backward_problem(c), t, 1);
    EXPECT_TRUE(verdict.ok) << verdict.reason();
  }
}

struct CountingPool {
  int calls = 0;
};

TEST_P(Baselines, RunOnAnExternalThreadPool) {
  const verification::AttentionCase c = verification::attention_case("hq=4 lq=90 d=16");
  const verification::CaseTensors tensors = verification::make_tensors(c);
  AttentionOptions options = options_for(c, GetParam());
  CountingPool counter;
  const ExternalThreadPool thread_pool{
      1, &counter, [](void* host, std::int64_t count, void (*task)(void*, std::int64_t, int), void* argument) {
        ++static_cast<CountingPool*>(host)->calls;
        for (std::int64_t i = 0; i < count; ++i) task(argument, i, 0);
      }};
  options.thread_pool = &thread_pool;
  attention_forward(tensors.forward(), options);
  EXPECT_GT(counter.calls, 0);
  EXPECT_TRUE(verification::check_forward(c.problem, tensors.forward(), 1).ok);
}

TEST_P(Baselines, AnExternalPoolThatSkipsATaskIsAnError) {
  const verification::AttentionCase c = verification::attention_case("hq=4 lq=90 d=16");
  const verification::CaseTensors tensors = verification::make_tensors(c);
  AttentionOptions options = options_for(c, GetParam());
  const ExternalThreadPool thread_pool{3, nullptr,
                                       [](void*, std::int64_t, void (*)(void*, std::int64_t, int), void*) {}};
  options.thread_pool = &thread_pool;
  try {
    attention_forward(tensors.forward(), options);
    ADD_FAILURE() << "nothing was said";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::error);
    EXPECT_EQ(error.details().argument, "thread_pool");
  }
}

TEST_P(Baselines, StopWhenCancelled) {
  const verification::AttentionCase c = verification::attention_case("pass=e2e lq=64 d=16");
  verification::CaseTensors tensors = verification::make_tensors(c);
  tensors.saved = verification::host_buffer(saved_bytes(c, GetParam()));
  AttentionOptions options = options_for(c, GetParam());
  attention_forward(tensors.forward(), options);
  const std::atomic<bool> cancel = true;
  options.cancel = &cancel;
  try {
    attention_forward(tensors.forward(), options);
    FAIL() << "ran to its end";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::cancelled);
  }
  options.cancel = nullptr;
  try {
    attention_backward(tensors.backward(), options);
    FAIL() << "took state that is not whole";
  } catch (const Error& error) {
    EXPECT_EQ(error.details().argument, "saved");
  }
}

TEST_P(Baselines, RefuseStateSavedForAnotherProblem) {
  const verification::AttentionCase c = verification::attention_case("pass=e2e hq=2 lq=32 d=16 mask=causal");
  verification::CaseTensors tensors = verification::make_tensors(c);
  tensors.saved = verification::host_buffer(saved_bytes(c, GetParam()));
  const AttentionOptions right = options_for(c, GetParam());
  const auto refuses = [&](const AttentionOptions& options) {
    tensors.dq.poison();
    try {
      attention_backward(tensors.backward(), options);
      return false;
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::invalid_argument);
      EXPECT_EQ(error.details().argument, "saved");
      EXPECT_NE(error.details().line, "");
      EXPECT_TRUE(std::isnan(static_cast<const float*>(tensors.dq.view().data)[0])) << "written before the refusal";
      return true;
    }
  };
  EXPECT_TRUE(refuses(right)) << "nothing saved yet";
  attention_forward(tensors.forward(), right);
  AttentionOptions other_mask = right, other_scale = right, other_form = right;
  other_mask.mask = Mask::none;
  other_scale.scale = 0.5;
  other_form.implementation = GetParam() == "naive" ? "fused" : "naive";
  EXPECT_TRUE(refuses(other_mask));
  EXPECT_TRUE(refuses(other_scale));
  EXPECT_TRUE(refuses(other_form));
  EXPECT_FALSE(refuses(right));
}

TEST_P(Baselines, RefuseAScaleBeyondFp32) {
  const verification::AttentionCase c = verification::attention_case("lq=8 d=8");
  const verification::CaseTensors tensors = verification::make_tensors(c);
  for (const double scale : {1e39, -1e300, 1e-40, -1e-300}) {
    AttentionOptions options = options_for(c, GetParam());
    options.scale = scale;
    try {
      attention_forward(tensors.forward(), options);
      ADD_FAILURE() << scale << " was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::unsupported);
      EXPECT_NE(std::string(error.what()).find("scale"), std::string::npos) << error.what();
    }
    EXPECT_TRUE(std::isnan(static_cast<const float*>(tensors.out.view().data)[0])) << "written before the refusal";
  }
}

TEST_P(Baselines, RefuseToPromiseReproducibility) {
  const verification::AttentionCase c = verification::attention_case("lq=8 d=8");
  const verification::CaseTensors tensors = verification::make_tensors(c);
  AttentionOptions options = options_for(c, GetParam());
  options.reproducible = true;
  try {
    attention_forward(tensors.forward(), options);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), Status::unsupported);
    EXPECT_NE(std::string(error.what()).find("reproducible=false"), std::string::npos) << error.what();
  }
}

TEST_P(Baselines, KeepOneMatrixOfTheInputsTypeForBackward) {
  for (const auto& [dtype, width] : {std::pair{"fp32", 4}, {"bf16", 2}, {"fp16", 2}}) {
    const verification::AttentionCase c = verification::attention_case("b=8 lq=256 d=16 dtype=" + std::string(dtype));
    EXPECT_EQ(saved_bytes(c, GetParam()), 64 + 8 * 256 * 256 * width);
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, Baselines, testing::ValuesIn(kForms),
                         [](const auto& form) { return std::string(form.param); });

}  // namespace
}  // namespace fovea
