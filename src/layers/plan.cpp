// Chooses the parts and lays out their memory.
#include "layers/plan.h"

#include <algorithm>

#include "layers/facts.h"

namespace fovea::layers {
namespace {

std::string_view call_of(const LayerProblem& p) { return p.pass == Pass::forward ? "layer_forward" : "layer_backward"; }

std::vector<Plan::Part> choose_products(const Request& request) {
  std::vector<Plan::Part> parts;
  for (Product& product : products_of(request)) {
    const core::Chooser<linear::Types> chooser(product.problem, request.product_name);
    parts.push_back({std::move(product), chooser.choose(call_of(request))});
  }
  return parts;
}

AttentionChoice choose_attention(const Request& request) {
  if (!needs_attention(request)) return nullptr;
  const AttentionProblem problem = attention_part(request);
  const auto choice = core::Chooser<attention::Types>(problem, request.attention_name).choose(call_of(request));
  return attention::writes_nothing(problem) ? nullptr : choice;
}

MemoryMap map_of(const Request& request, const std::vector<Plan::Part>& parts, const AttentionChoice& attention) {
  std::int64_t largest = attention == nullptr ? 0 : attention->plan->workspace_bytes;
  for (const Plan::Part& part : parts) largest = std::max(largest, part.choice->plan->workspace_bytes);
  return {request, state_bytes(request), largest};
}

}  // namespace

Request::Request(const LayerProblem& problem, std::string_view attention, std::string_view product)
    : LayerProblem(problem),
      attention_name(attention),
      product_name(product),
      attentions(attention::Types::list().generation()),
      products_known(linear::Types::list().generation()) {}

std::int64_t state_bytes(const Request& request) {
  if (attention::Types::requested(request.attention_name).empty()) return 0;
  LayerProblem forward = request;
  forward.pass = Pass::forward;
  AttentionProblem problem = attention_of(forward);
  problem.saved_state = true;
  const core::Chooser<attention::Types> chooser(problem, request.attention_name);
  chooser.check_name(call_of(request));
  const std::vector<core::Verdict> verdicts = chooser.walk();
  const core::Verdict* const chosen = chooser.leader(verdicts);
  return chosen == nullptr ? 0 : chosen->prepared.plan->saved_bytes;
}

AttentionProblem attention_part(const Request& request) {
  AttentionProblem problem = attention_of(request);
  problem.saved_state = (request.saves || request.pass == Pass::backward) && state_bytes(request) > 0;
  return problem;
}

Plan::Plan(const Request& asked)
    : request(asked),
      parts(choose_products(asked)),
      attention(choose_attention(asked)),
      memory(map_of(asked, parts, attention)) {
  call = call_of(request);
  device = request.device;
  workspace_bytes = memory.workspace_bytes;
  saved_bytes = memory.saved_bytes;
}

std::string Plan::line() const { return line_if_any(request); }

}  // namespace fovea::layers
