// Refuses buffers that are too small for a plan.
#include "core/planned_call.h"

#include "core/check.h"

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

}  // namespace fovea::core
