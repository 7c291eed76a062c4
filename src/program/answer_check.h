// Checks what a worker left in shared memory, before any of it is timed.
#pragma once

#include <map>
#include <string>

#include "core/problem_line.h"
#include "program/record.h"
#include "program/shared_tensors.h"

namespace fovea::program {

void fill_inputs(const core::Case& c, const TensorPlaces& places, const SharedBlock& inputs);

struct AnswerCheck {
  std::string wrong;  // what is wrong, with the tensor's name; empty if all is right
  bool sampled = false;
  std::map<std::string, ErrorFigures> error;
};
// `lse_optional`: foreign kernels need not write it.
AnswerCheck check_answer(const core::Case& c, const TensorPlaces& places, const SharedBlock& inputs,
                         const SharedBlock& outputs, bool lse_optional);

}  // namespace fovea::program
