// One case on any implementation of its operation, against the reference.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "verification/host_tensor.h"
#include "verification/operation.h"

namespace fovea::verification {

// How a call is made, beside what the case says. Drawn from the case's seed.
struct Trial {
  bool own_workspace = false;  // the caller's, of exactly the planned size
  bool other_threads = false;  // a second run with another number of threads must give the same bits
  int threads = 1;
  bool operator==(const Trial&) const = default;
};
Trial trial_of(const Case& c);
std::string text_of(const Case& c, const Trial& trial);  // "accumulate no_dk own_workspace threads=3"

// A call's tensors where it is made, if that is not the host: copies on a device.
class CarriedCall {
 public:
  virtual ~CarriedCall() = default;
  virtual const TensorSet& tensors() const = 0;
  virtual CallSettings settings(CallSettings on_host) const = 0;  // with memory of the device and its stream
  // Copies results back. Throws Error for a write outside a tensor and for a changed input.
  virtual void bring_back() = 0;
};
// Makes the copies; `written` names the tensors that the pass writes.
using Carry = std::function<std::unique_ptr<CarriedCall>(const TensorSet& host, const std::vector<std::string>& written,
                                                         Pass pass, const CallSettings& settings)>;

struct Outcome {
  enum class Kind { passed, failed, refused, exempt };
  Kind kind = Kind::passed;
  std::string reason;  // what is wrong, why it refuses, or why nothing is judged
};

// Holds a case's inputs and, computed once, what every implementation's answer must be close to.
class Differential {
 public:
  // Without `carry` calls are made on the host.
  explicit Differential(const Case& c, const Trial& trial = {}, Carry carry = {});

  // Runs the case's passes. Besides the values, checks that nothing outside the outputs was written and no input
  // changed, and, where the trial says so, that another number of threads gives the same bits.
  Outcome run(const ImplementationFacts& implementation);

 private:
  struct Tensor {
    TensorSpec spec;
    HostTensor memory;
    bool is_written(Pass pass) const;
  };
  using Bytes = std::vector<std::vector<std::byte>>;

  Outcome run_forward(const ImplementationFacts& implementation);
  Outcome run_backward(const ImplementationFacts& implementation, const CasePlan& plan);
  Outcome judge(const Verdict& verdict) const;
  // An Error's text, or empty.
  std::string answer(Pass pass, const ImplementationFacts& implementation, std::int64_t workspace_bytes, int threads);
  void call(Pass pass, const CallSettings& settings) const;
  void clear_results(Pass pass);
  bool gives_other_bits(Pass pass, const ImplementationFacts& implementation, std::int64_t workspace_bytes);
  TensorSet set() const;
  TensorSet results(Pass pass) const;
  TensorSet given_to_backward(bool keeps_state) const;
  Bytes bytes_of(const std::function<bool(const Tensor&)>& wanted) const;

  Case case_;
  Trial trial_;
  Carry carry_;
  std::vector<Tensor> tensors_;
  std::vector<Tensor> before_;  // what gradients accumulate into
  HostTensor workspace_, saved_;
  std::optional<Expectation> expected_forward_, expected_backward_;
};

}  // namespace fovea::verification
