// Calls from a destructor that runs while the process exits, after every object of the library that is destroyed at
// all is gone. A program of its own; its exit status is the verdict.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "attention/small_call.h"
#include "fovea/fovea.h"

namespace {

using fovea::Call;

constexpr int kSequences = 4;  // tasks for both threads

void expect(bool right, const char* what, const std::string& engine) {
  if (right) return;
  std::fprintf(stderr, "%s, %s\n", what, engine.c_str());
  std::_Exit(1);  // nothing else ends a process that is exiting with another status
}

bool all_are(const std::vector<float>& values, float value) {
  for (const float each : values) {
    if (each != value) return false;
  }
  return true;
}

// Equal values weigh to themselves; and equal rows of out and dout, so that delta is dP, give no gradient to q.
void call_in_cpp(const std::string& engine) {
  Call call(kSequences);
  call.out_in.assign(call.out_in.size(), 0.25f);
  call.options.implementation = engine;
  call.options.threads = 2;
  fovea::attention_forward(call.forward, call.options);
  expect(all_are(call.out, 0.25f), "forward is wrong", engine);
  call.backward.lse = call.forward.lse;
  fovea::attention_backward(call.backward, call.options);
  expect(all_are(call.dq, 0.0f) && !all_are(call.dv, fovea::kPoison), "backward is wrong", engine);
  expect(fovea::explain(fovea::describe(call.forward), engine).chosen == engine, "explain is wrong", engine);
  call.forward.k.sizes[1] = 3;
  try {
    fovea::attention_forward(call.forward, call.options);
    expect(false, "nothing was refused", engine);
  } catch (const fovea::Error& error) {
    expect(error.status() == fovea::Status::invalid_argument, error.what(), engine);
  }
}

void call_in_c(const char* engine) {
  std::vector<float> q(kSequences * 2 * 3 * 8, 0.5f), out(q.size());
  fovea_tensor inputs = {sizeof inputs}, output = {sizeof output};
  fovea_init_dense_tensor(&inputs, q.data(), FOVEA_FP32, kSequences, 2, 3, 8);
  fovea_init_dense_tensor(&output, out.data(), FOVEA_FP32, kSequences, 2, 3, 8);
  fovea_options options = {sizeof options};
  options.implementation = engine;
  options.threads = 2;
  fovea_forward_tensors tensors = {sizeof tensors, &inputs, &inputs, &inputs, &output, nullptr};
  expect(fovea_attention_forward(&tensors, &options) == FOVEA_OK && all_are(out, 0.5f), fovea_last_error(), engine);
  options.mask = 99;
  expect(fovea_attention_forward(&tensors, &options) == FOVEA_INVALID_ARGUMENT, "nothing was refused", engine);
  expect(std::strstr(fovea_last_error(), "`mask`") != nullptr, fovea_last_error(), engine);
}

// On this machine and of fp32, as the calls here are.
bool can_be_called(const fovea::ImplementationInfo& one) {
  return one.unavailable.empty() && one.device == fovea::DeviceKind::cpu &&
         !fovea::explain({.dtype = fovea::DType::fp32}, one.name).chosen.empty();
}

void call_all() {
  for (const auto& one : fovea::implementations()) {
    if (can_be_called(one)) call_in_cpp(one.name);
  }
  for (std::size_t i = 0; i < fovea_implementation_count(); ++i) {
    const char* const name = fovea_implementation_name(i);
    for (const auto& one : fovea::implementations()) {
      if (one.name == name && can_be_called(one)) call_in_c(name);
    }
  }
}

struct AtExit {
  ~AtExit() { call_all(); }
};
const AtExit at_exit;  // made before anything of the library that a first call makes, so destroyed after it

}  // namespace

int main() { call_all(); }
