// Plans of two devices in turns from several threads, of cuda.any and cuda.sm90: kept by the caller, and found again in
// the cache, which has fewer places than there are problems. Every answer has the bits of a call alone.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/runtime/check.h"
#include "device_call.h"
#include "on_device.h"
#include "threads_at_once.h"
#include "verification/attention/case.h"

namespace fovea::cuda {
namespace {

constexpr int kThreads = 8, kProblems = 24, kRounds = 12;  // problems of a thread, half of them on each device

verification::AttentionCase case_on(int device, int number) {
  verification::AttentionCase c =
      verification::attention_case("pass=bwd b=1 hq=2 hkv=1 lq=32 d=32 dtype=bf16 mask=causal");
  c.problem.device = {DeviceKind::cuda, device};
  c.problem.len_q = c.problem.len_k = 32 + number;
  c.seed = static_cast<std::uint64_t>(number);
  return c;
}

// A problem on a device of its own, which is current while this is constructed.
class Job {
 public:
  Job(const verification::AttentionCase& c, std::string_view implementation)
      : call_(c),
        forward_(prepare(describe(call_.forward, call_.options), implementation)),
        backward_(prepare(describe(call_.backward, call_.options), implementation)) {
    call_.options.implementation = implementation;
    enqueue(nullptr, false);
    wanted_ = call_.bytes();
    call_.poison(Pass::forward);
  }

  void enqueue(cudaStream_t stream, bool keeps_plans) {
    AttentionOptions options = call_.options;
    options.stream = stream;
    options.plan = keeps_plans ? &forward_ : nullptr;
    attention_forward(call_.forward, options);
    options.plan = keeps_plans ? &backward_ : nullptr;
    attention_backward(call_.backward, options);
  }
  bool is_right() const { return call_.bytes() == wanted_; }
  const Plan& plan() const { return forward_; }
  const DeviceCall& call() const { return call_; }

 private:
  DeviceCall call_;
  Plan forward_, backward_;
  std::vector<std::byte> wanted_;
};

std::unique_ptr<Job> job_on(int device, int number, std::string_view implementation) {
  const CurrentDevice current(device);
  return std::make_unique<Job>(case_on(device, number), implementation);
}

// Empty, or why the implementation does not run on one of the used devices.
std::string refusal_of(std::string_view implementation) {
  for (int device = 0; device < used_devices(); ++device) {
    const Explanation explained = explain(case_on(device, 0).problem, implementation);
    if (explained.chosen.empty()) return explained.walk.at(0).reason;
  }
  return {};
}

std::string turns_of(int thread, std::string_view implementation) {
  const DeviceStreams streams;
  std::vector<std::unique_ptr<Job>> jobs;
  const auto device_of = [](int number) { return number % used_devices(); };
  for (int number = 0; number < kProblems; ++number)
    jobs.push_back(job_on(device_of(number), thread * kProblems + number, implementation));
  for (int round = 0; round < kRounds; ++round) {
    for (int number = 0; number < kProblems; ++number)
      jobs[static_cast<std::size_t>(number)]->enqueue(streams.get(device_of(number)), (round + number / 2) % 2 == 0);
  }
  for (int number = 0; number < kProblems; ++number) {
    const CurrentDevice current(device_of(number));
    if (!jobs[static_cast<std::size_t>(number)]->is_right())
      return "other bits, problem " + std::to_string(number) + " of thread " + std::to_string(thread);
  }
  return {};
}

// A call on one device refuses the plan of the other.
std::string fault_of_another_devices_plan(std::string_view implementation) {
  const auto first = job_on(0, 1, implementation), second = job_on(1, 1, implementation);
  AttentionOptions options = first->call().options;
  options.plan = &second->plan();
  try {
    attention_forward(first->call().forward, options);
  } catch (const Error& error) {
    return error.details().argument == "plan" ? "" : error.what();
  }
  return "not refused";
}

}  // namespace

int check_devices() {
  int passed = 0, failed = 0;
  const auto judge = [&](std::string_view implementation, const char* what, const std::string& fault) {
    if (!fault.empty()) std::printf("devices: %s, %s: %s\n", std::string(implementation).c_str(), what, fault.c_str());
    ++(fault.empty() ? passed : failed);
  };
  const auto check_plans_of = [&](std::string_view implementation) {
    std::vector<std::string> wrong(kThreads);
    const auto said = at_once(
        kThreads, [&](int thread) { wrong[static_cast<std::size_t>(thread)] = turns_of(thread, implementation); });
    for (std::size_t thread = 0; thread < said.size(); ++thread)
      judge(implementation, "threads at once", said[thread].empty() ? wrong[thread] : said[thread]);
    if (used_devices() > 1)
      judge(implementation, "a plan of another device", fault_of_another_devices_plan(implementation));
  };
  if (used_devices() == 1) std::printf("devices: the machine has one; all plans are for that one\n");
  check_plans_of("cuda.any");
  if (const std::string refusal = refusal_of("cuda.sm90"); refusal.empty())
    check_plans_of("cuda.sm90");
  else
    std::printf("devices: cuda.sm90 is left out: %s\n", refusal.c_str());
  std::printf("devices: %d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace fovea::cuda
