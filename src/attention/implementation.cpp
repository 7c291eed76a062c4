// Questions about the list of implementations.
#include "attention/implementation.h"

#include <algorithm>

#include "attention/problem_line.h"
#include "core/choose.h"
#include "core/environment.h"

namespace fovea::attention {

std::string Types::line(const AttentionProblem& problem) { return core::line_of(problem); }

std::size_t Types::hash(const AttentionProblem& p) {
  return core::hash_of(p.pass, p.batch, p.heads_q, p.heads_kv, p.len_q, p.len_k, p.dim_qk, p.dim_v, p.dtype,
                       p.result_dtype, p.mask.alignment, p.mask.left, p.mask.right, p.scale, p.device.kind,
                       p.device.index, p.reproducible, p.saved_state, p.accumulate, p.wants_dq, p.wants_dk, p.wants_dv);
}

std::string_view Types::requested(std::string_view name) {
  static const std::string_view variable = core::environment("FOVEA_IMPL");
  return name.empty() ? variable : name;
}

void register_implementations(std::span<const Implementation> more) { Types::list().add(more); }

std::vector<std::string> known_names() { return core::Chooser<Types>::known_names(); }

bool promises_reproducibility(std::string_view name) {
  const std::string_view wanted = Types::requested(name);
  const auto& all = implementations();
  return std::all_of(all.begin(), all.end(),
                     [wanted](const auto& one) { return one.name != wanted || one.reproducible; });
}

bool writes_nothing(const AttentionProblem& p) {
  const bool queries = p.batch > 0 && p.heads_q > 0 && p.len_q > 0, keys = p.batch > 0 && p.heads_kv > 0 && p.len_k > 0;
  if (p.pass == Pass::forward) return !queries;
  return !(p.wants_dq && queries) && !((p.wants_dk || p.wants_dv) && keys);
}

std::int64_t plans_made() { return core::Chooser<Types>::Cache::instance().made(); }

}  // namespace fovea::attention
