// Converts between the values of a line and attention's types.
#include "verification/attention/case.h"

#include "attention/problem_line.h"
#include "core/check.h"
#include "verification/attention/operation.h"
#include "verification/problem_line.h"

namespace fovea::verification {
namespace {

constexpr std::string_view kLayoutNames[] = {"bhld", "blhd"};

void want_attention(const Case& c) {
  if (c.operation == &attention_operation()) return;
  core::fail({.status = Status::invalid_argument,
              .argument = "problem line",
              .problem = "a line of another operation",
              .got = std::string(c.operation->name()),
              .wanted = "op=attention"});
}

}  // namespace

std::string_view name_of(Layout layout) { return kLayoutNames[static_cast<std::size_t>(layout)]; }

AttentionCase attention_case(const Case& c) {
  return {.pass = c.pass(),
          .problem = core::attention_problem(c.values),
          .layout = c["layout"] == "blhd" ? Layout::blhd : Layout::bhld,
          .data = c.data(),
          .place = c.place(),
          .seed = c.seed()};
}

Case case_of(const AttentionCase& typed) {
  Case c(attention_operation());
  const core::LineValues problem = core::values_of(typed.problem);
  for (const core::Key& key : core::attention_keys().keys) c.values.set(key.name, problem[key.name]);
  c.values.set("pass", std::string(name_of(typed.pass)));
  c.values.set("layout", std::string(name_of(typed.layout)));
  c.values.set("data", typed.data);
  c.values.set("place", typed.place);
  c.values.set("seed", std::to_string(typed.seed));
  return c;
}

AttentionCase attention_case(std::string_view line) {
  const Case c = parse_case(line);
  want_attention(c);
  return attention_case(c);
}

std::vector<AttentionCase> attention_sweep(std::string_view line, std::int64_t max_cases) {
  std::vector<AttentionCase> cases;
  for (const Case& c : parse_sweep(line, max_cases)) {
    want_attention(c);
    cases.push_back(attention_case(c));
  }
  return cases;
}

std::string line_of(const AttentionCase& c) { return line_of(case_of(c)); }

}  // namespace fovea::verification
