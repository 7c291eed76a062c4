// Refuses buffers that are too small for a plan, and plans that were made for something else.
#include "core/planned_call.h"

#include "core/check.h"
#include "core/names.h"

namespace fovea::core {

void check_buffer(const Plan& plan, std::string_view argument, const Buffer& buffer, std::int64_t wanted,
                  std::string_view hint) {
  if (buffer.data == nullptr || buffer.bytes >= wanted) return;
  fail({.status = Status::invalid_argument,
        .call = std::string(plan.call),
        .argument = std::string(argument),
        .problem = "the buffer is too small",
        .got = std::to_string(buffer.bytes) + " bytes",
        .wanted = "at least " + std::to_string(wanted) + " bytes",
        .hint = std::string(hint),
        .line = plan.line()});
}

void refuse_plan(const fovea::Plan& given, std::string_view call, const Device& device, std::string_view unmet,
                 const std::string& line) {
  const auto refuse = [&](std::string_view problem, std::string_view got, std::string_view wanted) {
    fail({.status = Status::invalid_argument,
          .call = std::string(call),
          .argument = "plan",
          .problem = std::string(problem),
          .got = std::string(got),
          .wanted = std::string(wanted),
          .hint = "prepare(describe(..)) makes a plan for a call; null: the call chooses",
          .line = line});
  };
  const auto words = [](const Device& d) { return std::string(name_of(d.kind)) + " " + std::to_string(d.index); };
  const Plan* const plan = given.held();
  if (plan == nullptr) refuse("it holds nothing", "an empty plan", "one that prepare() returned");
  if (plan->call != call) refuse("it was made for another call", plan->call, call);
  if (plan->device != device) refuse("it was made for another device", words(plan->device), words(device));
  if (!unmet.empty()) refuse("it is of another implementation", given.implementation(), unmet);
  refuse("it was made for another problem", plan->line(), line);
  __builtin_unreachable();
}

}  // namespace fovea::core

namespace fovea {

Plan::Plan(std::string_view implementation, std::shared_ptr<const void> choice, const core::Plan& plan)
    : implementation_(implementation), choice_(std::move(choice)), plan_(&plan) {}

std::int64_t Plan::workspace_bytes() const { return plan_ == nullptr ? 0 : plan_->workspace_bytes; }
std::int64_t Plan::saved_bytes() const { return plan_ == nullptr ? 0 : plan_->saved_bytes; }
double Plan::predicted_seconds() const { return plan_ == nullptr ? 0 : plan_->seconds; }

}  // namespace fovea
