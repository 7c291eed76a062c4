// The implementations that this machine can run, and calls of one of them on a case.
#pragma once

#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/float16.h"
#include "verification/attention/case_tensors.h"
#include "verification/attention/check.h"

namespace fovea {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Names of the CPU implementations that this machine can run. The baselines are not registered in tests.
inline std::vector<std::string> engines() {
  std::vector<std::string> names;
  for (const auto& one : implementations()) {
    if (one.unavailable.empty() && one.device == DeviceKind::cpu) names.push_back(one.name);
  }
  return names;
}

inline bool takes(const std::string& engine, const AttentionProblem& problem) {
  return !explain(problem, engine).chosen.empty();
}

// Of them those that take every element type, not bf16 alone.
inline std::vector<std::string> engines_of_all_types() {
  std::vector<std::string> names = engines();
  std::erase_if(names, [](const std::string& engine) { return !takes(engine, {.dtype = DType::fp32}); });
  return names;
}

inline AttentionProblem backward_of(AttentionProblem problem) {
  problem.pass = Pass::backward;
  return problem;
}

inline AttentionOptions options_on(const std::string& engine, const verification::AttentionCase& c) {
  AttentionOptions options = verification::options_of(c);
  options.implementation = engine;
  return options;
}

// Tensors of a case with its forward, and unless it is pass=fwd its backward, computed by the engine.
inline verification::CaseTensors solved_by(const std::string& engine, const verification::AttentionCase& c) {
  verification::CaseTensors tensors = verification::make_tensors(c);
  attention_forward(tensors.forward(), options_on(engine, c));
  if (c.pass != verification::CasePass::fwd) attention_backward(tensors.backward(), options_on(engine, c));
  return tensors;
}

inline verification::CaseTensors solved_by(const std::string& engine, std::string_view line) {
  return solved_by(engine, verification::attention_case(line));
}

// Right by the contract's accuracy rule, forward and backward as the case says, on every named engine.
inline void expect_right(const std::vector<std::string>& engines, std::string_view line) {
  const verification::AttentionCase c = verification::attention_case(line);
  const verification::CaseTensors inputs = verification::make_tensors(c);
  std::optional<verification::Expectation> forward;  // the same for all; that of backward depends on out and lse
  for (const std::string& engine : engines) {
    SCOPED_TRACE(engine + ": " + std::string(line));
    const verification::CaseTensors tensors = solved_by(engine, c);
    if (!forward) forward = verification::expect_forward(c.problem, inputs.forward(), c.seed);
    const verification::Verdict out = verification::compare(*forward, tensors.forward());
    EXPECT_TRUE(out.ok) << out.reason();
    EXPECT_TRUE(tensors.padding_intact());
    if (c.pass == verification::CasePass::fwd) continue;
    const verification::Verdict gradients =
        verification::check_backward(backward_of(c.problem), tensors.backward(), c.seed);
    EXPECT_TRUE(gradients.ok) << gradients.reason();
  }
}

// The same for every engine that takes the problem; `backward` asks for both passes.
inline void expect_right_everywhere(const std::string& line) {
  const verification::AttentionCase c = verification::attention_case(line);
  std::vector<std::string> takers = engines();
  std::erase_if(takers, [&c](const std::string& engine) {
    return !takes(engine, c.problem) ||
           (c.pass != verification::CasePass::fwd && !takes(engine, backward_of(c.problem)));
  });
  expect_right(takers, line);
}

inline float at(const MutableTensorView& view, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t c) {
  return core::load_as_float(view.data, view.dtype,
                             b * view.strides[0] + h * view.strides[1] + i * view.strides[2] + c);
}

inline void set(const MutableTensorView& view, std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t c,
                float value) {
  core::store_from_float(view.data, view.dtype, b * view.strides[0] + h * view.strides[1] + i * view.strides[2] + c,
                         value);
}

// All elements in logical order.
inline std::vector<float> values_of(const MutableTensorView& view) {
  std::vector<float> values;
  for (std::int64_t b = 0; b < view.sizes[0]; ++b) {
    for (std::int64_t h = 0; h < view.sizes[1]; ++h) {
      for (std::int64_t i = 0; i < view.sizes[2]; ++i) {
        for (std::int64_t c = 0; c < view.sizes[3]; ++c) values.push_back(at(view, b, h, i, c));
      }
    }
  }
  return values;
}

}  // namespace fovea
