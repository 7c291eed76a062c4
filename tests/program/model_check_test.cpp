// What is compared before a model is timed: right answers pass, and one wrong number does not.
#include "program/profile/model_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "program/profile/model_memory.h"
#include "run_program.h"
#include "small_profile.h"

namespace fovea::tests {
namespace {

using program::CheckedStep;
using program::ModelVerdict;
using program::ProfileResult;

const std::vector<std::string> kKinds{"gradients", "losses", "new weights"};

model::Config small(DType dtype, bool checkpoints = false) {
  return {.vocabulary = 40,
          .layers = 2,
          .width = 32,
          .heads = 2,
          .hidden = 48,
          .dtype = dtype,
          .checkpoints_activations = checkpoints};
}

CheckedStep small_step(DType dtype) { return program::checked_step(small(dtype), {.context = 16}, 1); }

void expect_wrong(const CheckedStep& step, const std::vector<std::string>& tensors) {
  const ModelVerdict verdict = program::verdict_on(step);
  EXPECT_EQ(verdict.status, "mismatch");
  for (const std::string& tensor : tensors) EXPECT_NE(verdict.reason.find(tensor), std::string::npos) << verdict.reason;
}

TEST(ModelCheck, AcceptsRightAnswersWithErrorsOfEachKind) {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    for (const bool checkpoints : {false, true}) {
      const ModelVerdict verdict = program::check_model(small(dtype, checkpoints), {.context = 16, .threads = 2});
      EXPECT_EQ(verdict.status, "ok") << verdict.reason;
      EXPECT_EQ(verdict.reason, "");
      const std::string layers = checkpoints ? "two layers" : "one layer";
      EXPECT_EQ(verdict.compared, layers + " of these sizes, 2 x 16 tokens") << "no more tokens than are profiled";
      std::vector<std::string> kinds;
      for (const auto& [kind, error] : verdict.error) {
        EXPECT_EQ(kind.find(layers + ": "), 0u) << kind;
        kinds.push_back(kind.substr(layers.size() + 2));
        EXPECT_GT(error.rel_l2, 0) << kind;
        EXPECT_LT(error.rel_l2, dtype == DType::fp32 ? 1e-5 : 0.05) << kind;
        EXPECT_GT(error.ratio_to_plain, 0) << kind;
      }
      EXPECT_EQ(kinds, kKinds);
    }
  }
}

// Each tensor is judged by itself.
TEST(ModelCheck, RefusesOneWrongNumber) {
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    const CheckedStep right = small_step(dtype);
    ASSERT_EQ(program::verdict_on(right).status, "ok");
    const auto head = static_cast<std::size_t>(right.inputs->map.head);
    for (const float spoiled : {2.0f, -1.0f, std::numeric_limits<float>::quiet_NaN()}) {
      CheckedStep wrong = right;
      wrong.answers.losses[3] = spoiled;
      wrong.answers.gradients[head] = spoiled;
      wrong.answers.weights[head] = spoiled;
      expect_wrong(wrong, {"losses ", "gradient.head.weight ", "updated.head.weight "});
    }
  }
}

// A step that forgot the moments, or one layer's norm: each makes numbers that look right.
TEST(ModelCheck, ReadsMomentsAndWeightsOfNorms) {
  CheckedStep step = small_step(DType::bf16);
  CheckedStep other = step;
  other.update.first_moment.assign(other.update.first_moment.size(), 0);
  expect_wrong(other, {"updated."});
  const auto inputs = std::make_shared<verification::ModelInputs>(*step.inputs);
  const auto norm = inputs->weights.begin() + inputs->map.norm;
  std::fill_n(norm, inputs->config.width, 1.0f);
  step.inputs = inputs;
  expect_wrong(step, {"losses "});
}

TEST(ModelCheck, TakesFewerTokensOfWideModels) {
  const model::Config narrow = small(DType::fp32), wide = model::find_preset("report-d1:lg")->config;
  EXPECT_GT(program::checked_extent(narrow, 4096).length, program::checked_extent(wide, 4096).length);
  EXPECT_EQ(program::checked_extent(wide, 1).length, 1);
}

TEST(ModelCheck, ComesBeforeAnythingIsTimed) {
  program::ProfileSettings s{.batch = 1, .context = 8, .passes = {"forward"}, .warm_up = 0, .steps = 3};
  s.free_bytes = std::int64_t{1} << 30;
  std::vector<std::string> told;
  s.on_check = [&told] { told.emplace_back("check"); };
  s.on_step = [&told](const program::ProfileStep& step) { told.push_back(std::to_string(step.made)); };
  const model::Config config = small(DType::fp32);
  EXPECT_TRUE(program::profile({"custom", config}, s, [&told](const ProfileResult& result) {
    EXPECT_EQ(result.error.size(), kKinds.size());
    told.push_back(result.status);
  }));
  EXPECT_EQ(told, (std::vector<std::string>{"check", "0", "1", "2", "3", "ok"}));
  s.stops = [] { return true; };
  EXPECT_FALSE(program::profile({"custom", config}, s, [](const ProfileResult&) { FAIL() << "stopped in the check"; }));
}

TEST(ModelCheck, IsToldByTableAndRecord) {
  const Folder folder;
  const std::string file = folder / "run.jsonl";
  const Ended run = fovea(small_profile({"--passes", "step", "--dtype", "bf16", "-o", file}));
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_NE(run.out.find("\nchecked: one layer of these sizes, 2 x 16 tokens, against the reference\n"),
            std::string::npos)
      << run.out;
  expect_valid_records(file);
  for (const program::Row& row : program::load_records(file).rows) EXPECT_EQ(row.error.size(), kKinds.size());
}

TEST(ModelCheck, AWrongModelHasNoTimesAndAReason) {
  program::ProfileSettings s{.batch = 1, .context = 8, .passes = {"step"}};
  const program::ProfiledModel model{"custom", small(DType::fp32)};
  CheckedStep step = small_step(DType::fp32);
  step.answers.gradients[0] = 2;
  const ModelVerdict verdict = program::verdict_on(step);
  ProfileResult result{.row = program::planned_row(model, s), .problem = program::problem_of(model, s)};
  result.status = result.row.status = verdict.status, result.reason = result.row.reason = verdict.reason;
  result.error = verdict.error, result.checked = verdict.compared;
  EXPECT_TRUE(program::is_failure(result.status)) << "exit code 1";
  const std::string table = program::profile_table({result}, {});
  EXPECT_NE(table.find("wrong: one layer of these sizes, 2 x 16 tokens, against the reference\n"), std::string::npos);
  EXPECT_NE(table.find("gradient.embedding.weight row"), std::string::npos) << table;
  EXPECT_EQ(program::profile_row_of(program::json_line(result.row)).status, "mismatch");
  for (const program::Row& row : program::rows_of(result, {}, 1e9)) {
    EXPECT_FALSE(row.time_s.has_value());
    EXPECT_EQ(program::row_of(program::json_line(row)).status, "mismatch");
  }
}

}  // namespace
}  // namespace fovea::tests
