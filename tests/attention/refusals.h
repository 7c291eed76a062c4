// Expecting a refusal: status, argument, got, wanted, hint and problem line in the message, outputs untouched, and the
// next valid call works.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "attention/engines.h"
#include "attention/mask.h"
#include "attention/small_call.h"

namespace fovea {

struct Refusal {
  const char* name;
  std::function<void(Call&)> spoil;
  const char* argument;
  std::vector<const char*> words;  // what was got and what is wanted
  bool forward = true, backward = true;
  Status status = Status::invalid_argument;
};

// Problems that no line can say: their refusals have none.
inline bool has_line(const AttentionOptions& options, const TensorView& q) {
  return core::has_words(options.mask) && std::isfinite(options.scale.value_or(1)) && q.dtype <= DType::fp16 &&
         q.device.kind <= DeviceKind::cuda && q.sizes[2] >= 0;
}

// Hint and problem line; a line that describes a possible problem reads back.
inline void expect_help(const Error& error, bool forward, const Call& call) {
  const std::string text = error.what(), line = error.details().line;
  EXPECT_FALSE(error.details().hint.empty()) << text;
  EXPECT_NE(text.find("\n  hint:   "), std::string::npos) << text;
  EXPECT_EQ(text.find("replay"), std::string::npos) << "the problem alone would not be refused: " << text;
  if (!has_line(call.options, forward ? call.forward.q : call.backward.q)) {
    EXPECT_EQ(line, "");
    return;
  }
  EXPECT_TRUE(line.starts_with(forward ? "op=attention pass=fwd b=1 " : "op=attention pass=bwd b=1 ")) << text;
  EXPECT_TRUE(text.ends_with("\n  problem: " + line)) << text;
  if (error.details().argument == "workspace") {
    EXPECT_EQ(verification::attention_case(line).problem.len_k, 4) << text;
  }
}

inline void expect_refused(const Refusal& refusal, bool forward, const std::string& engine) {
  SCOPED_TRACE(std::string(refusal.name) + (forward ? " forward " : " backward ") + engine);
  Call call;
  call.options.implementation = engine;
  refusal.spoil(call);
  try {
    forward ? attention_forward(call.forward, call.options) : attention_backward(call.backward, call.options);
    ADD_FAILURE() << "was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.status(), refusal.status) << error.what();
    EXPECT_EQ(error.details().argument, refusal.argument) << error.what();
    EXPECT_EQ(error.details().call, forward ? "attention_forward" : "attention_backward");
    for (const char* word : refusal.words)
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << word << " is not in\n" << error.what();
    EXPECT_NE(std::string(error.what()).find("\n  got:    "), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("\n  wanted: "), std::string::npos) << error.what();
    expect_help(error, forward, call);
  }
  EXPECT_TRUE(call.outputs_untouched());
  Call next;
  next.options.implementation = engine;
  attention_forward(next.forward, next.options);
  attention_backward(next.backward, next.options);
  EXPECT_FALSE(next.outputs_untouched());
}

inline void expect_all_refused(const std::vector<Refusal>& refusals) {
  for (const Refusal& refusal : refusals) {
    for (const std::string& engine : engines_of_all_types()) {
      if (refusal.forward) expect_refused(refusal, true, engine);
      if (refusal.backward) expect_refused(refusal, false, engine);
    }
  }
}

}  // namespace fovea
