// The error type: what was refused or failed, the values, what would be accepted, and the problem line that replays it.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "fovea/export.h"

namespace fovea {

enum class Status {
  ok,
  invalid_argument,  // the call contradicts the contract
  unsupported,       // the call is legal, but no available implementation takes it
  out_of_memory,
  cancelled,  // the cancel flag was raised while the call ran
  error,      // a device, a library underneath or the caller's thread pool failed
};

// One of: ok, invalid, unsupported, oom, cancelled, error.
FOVEA_API std::string_view to_string(Status status);

struct ErrorDetails {
  Status status = Status::error;
  std::string call = {};      // such as attention_forward
  std::string argument = {};  // such as k; empty if no single argument is at fault
  std::string problem = {};   // what is wrong, in one clause
  std::string got = {};       // the value that was given
  std::string wanted = {};    // values that would be accepted
  std::string hint = {};      // what to do instead; may be empty
  std::string line = {};      // problem line of the call (README.md); empty if its sizes or types have none
};

// what() holds all details, one per line. Copying never throws. Which statuses leave outputs unspecified: attention.h.
class FOVEA_API Error : public std::runtime_error {
 public:
  explicit Error(ErrorDetails details);

  Status status() const { return details_->status; }
  const ErrorDetails& details() const { return *details_; }

 private:
  std::shared_ptr<const ErrorDetails> details_;
};

}  // namespace fovea
