// Runs one case on any implementation of its operation and compares it with the reference.
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

// Properties of a call that are not in the case. Drawn from the case's seed.
struct Trial {
  bool own_workspace = false;  // the caller's workspace, of exactly the planned size
  bool other_threads = false;  // a second run with another number of threads must give the same bits
  int threads = 1;
  bool operator==(const Trial&) const = default;
};
Trial trial_of(const Case& c);
std::string text_of(const Case& c, const Trial& trial);  // "accumulate no_dk own_workspace threads=3"

// A call that runs on a device, with copies of the host's tensors there.
class DeviceCall {
 public:
  virtual ~DeviceCall() = default;
  virtual const TensorSet& tensors() const = 0;
  virtual CallSettings settings(CallSettings on_host) const = 0;  // with the device's memory and stream
  // Copies the results to the host. Throws Error after a write outside a tensor or a changed input.
  virtual void copy_back() = 0;
};
// Makes the device's copies; `written` names the tensors that the pass writes.
using MakeDeviceCall = std::function<std::unique_ptr<DeviceCall>(
    const TensorSet& host, const std::vector<std::string>& written, Pass pass, const CallSettings& settings)>;

struct Outcome {
  enum class Kind { passed, failed, refused, exempt, out_of_memory };
  Kind kind = Kind::passed;
  std::string reason;  // for all but passed
};

// Holds a case's inputs and its expected results, which are computed once for all implementations.
class Differential {
 public:
  // Without `make_device_call` calls run on the host.
  explicit Differential(const Case& c, const Trial& trial = {}, MakeDeviceCall make_device_call = {});

  // Runs the case's passes. Checks the values, and that nothing outside the outputs was written. If the trial says so,
  // also checks that another number of threads gives the same bits.
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
  // Makes the call. The outcome of a call that throws an Error has its text.
  Outcome answer(Pass pass, const ImplementationFacts& implementation, std::int64_t workspace_bytes, int threads);
  void call(Pass pass, const CallSettings& settings) const;
  void clear_results(Pass pass);
  // Fails if another number of threads gives other bits; passes if the trial does not ask.
  Outcome repeat(Pass pass, const ImplementationFacts& implementation, std::int64_t workspace_bytes);
  TensorSet set() const;
  TensorSet results(Pass pass) const;
  TensorSet given_to_backward(bool keeps_state) const;
  Bytes bytes_of(const std::function<bool(const Tensor&)>& wanted) const;

  Case case_;
  Trial trial_;
  MakeDeviceCall make_device_call_;
  std::vector<Tensor> tensors_;
  std::vector<Tensor> before_;  // gradients before the call, if it accumulates
  HostTensor workspace_, saved_;
  std::optional<Expectation> expected_forward_, expected_backward_;
};

}  // namespace fovea::verification
