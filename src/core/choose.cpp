// The refusals of a choice.
#include "core/choose.h"

#include "core/check.h"
#include "core/problem_line.h"

namespace fovea::core {

void refuse_name(std::string_view name, std::string_view wanted, const std::vector<std::string>& known,
                 std::string_view call, std::string line) {
  std::string list;
  for (const auto& word : known) list += (list.empty() ? "" : ", ") + word;
  const std::string near = nearest_word(wanted, known);
  const bool by_call = !name.empty();  // or by the environment
  fail({.status = Status::invalid_argument,
        .call = std::string(call),
        .argument = by_call ? "implementation" : "FOVEA_IMPL",
        .problem = by_call ? "no implementation of this name" : "no implementation of the name in the environment",
        .got = std::string(wanted),
        .wanted = "one of " + list,
        .hint = !near.empty() ? "did you mean `" + near + "`?"
                : by_call     ? "leave it out for the best that takes the problem"
                              : "unset it for the best that takes the problem",
        .line = std::move(line)});
}

void refuse_everywhere(std::string refusals, std::string_view call, std::string line) {
  fail({.status = Status::unsupported,
        .call = std::string(call),
        .problem = "no implementation takes this problem",
        .got = std::move(refusals),
        .wanted = "a problem that one of them takes",
        .hint = "`fovea info --matrix` lists what each takes",
        .line = std::move(line)});
}

}  // namespace fovea::core
