// Verdicts on calls that must be refused, and how many there were.
#pragma once

#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "device_call.h"
#include "fovea/error.h"
#include "verification/attention/case.h"

namespace fovea::cuda::refusals {

inline int passed = 0, failed = 0;

inline void judge(const std::string& name, const std::string& wrong) {
  if (!wrong.empty()) std::printf("REFUSAL %s: %s\n", name.c_str(), wrong.c_str());
  ++(wrong.empty() ? passed : failed);
}

inline verification::AttentionCase case_of(const char* line) { return verification::attention_case(line); }

// The call is refused with a message that holds all `words`, and nothing is written.
inline void expect_refused(const std::string& name, const DeviceCall& call, const std::vector<std::string>& words,
                    const std::function<void()>& run) {
  const auto before = call.bytes();
  std::string wrong = "was accepted";
  try {
    run();
  } catch (const Error& error) {
    wrong.clear();
    const std::string text = error.what();
    for (const std::string& word : words) {
      if (text.find(word) == std::string::npos) wrong = "does not say `" + word + "`: " + text;
    }
  }
  if (wrong.empty() && call.bytes() != before) wrong = "wrote before it refused";
  judge(name, wrong);
}

}  // namespace fovea::cuda::refusals
