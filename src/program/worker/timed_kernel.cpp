// The two kinds of kernel that a C++ worker runs.
#include "program/worker/timed_kernel.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <tuple>

#include "attention/implementation.h"
#include "attention/mask.h"
#include "core/check.h"
#include "core/memory.h"
#include "cuda/measure/device_memory.h"
#include "fovea/bench_call.h"

namespace fovea::program {
namespace {

// Memory that lasts from one prepare to the next, where the case's tensors are.
class OwnedMemory {
 public:
  OwnedMemory() = default;
  OwnedMemory(DeviceKind device, std::int64_t bytes) {
    if (device == DeviceKind::cuda) {
      on_device_ = cuda::DeviceMemory(bytes);
      return;
    }
    on_host_.reset(std::aligned_alloc(64, static_cast<std::size_t>((bytes + 63) / 64 * 64)));
    if (on_host_ == nullptr) throw std::bad_alloc();
  }
  void* data() const { return on_host_ != nullptr ? on_host_.get() : on_device_.data(); }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::unique_ptr<void, Free> on_host_;
  cuda::DeviceMemory on_device_;
};

class LibraryKernel final : public TimedKernel {
 public:
  void prepare(const verification::AttentionCase& c, const Setup& setup) override {
    implementation_ = setup.implementation;
    forward_ = setup.forward;
    backward_ = setup.backward;
    options_ = {.mask = c.problem.mask,
                .scale = c.problem.scale,
                .implementation = implementation_,
                .threads = setup.threads,
                .stream = setup.stream,
                .reproducible = attention::promises_reproducibility(implementation_)};
    const bool trains = c.pass != verification::CasePass::fwd;
    AttentionProblem problem = c.problem;
    problem.reproducible = options_.reproducible;
    problem.pass = Pass::forward;
    saved_bytes_ = trains ? explain(problem, implementation_).saved_bytes : 0;
    core::release_cached_memory();
    saved_ = {};
    workspace_ = {};
    lent_ = {};
    if (saved_bytes_ > 0) {
      saved_ = OwnedMemory(c.problem.device.kind, saved_bytes_);
      forward_.saved = backward_.saved = {saved_.data(), saved_bytes_};
    }
    on_device_ = c.problem.device.kind == DeviceKind::cuda;
    if (!setup.may_allocate) {
      problem.saved_state = saved_bytes_ > 0;
      std::int64_t bytes = fovea::workspace_bytes(problem, implementation_);
      problem.pass = Pass::backward;
      if (trains) bytes = std::max(bytes, fovea::workspace_bytes(problem, implementation_));
      workspace_ = OwnedMemory(c.problem.device.kind, bytes);
      if (bytes > 0) options_.workspace = lent_ = {workspace_.data(), bytes};
    }
    core::reset_memory_peak();
    if (on_device_) cuda::reset_workspace_peak();
  }
  void forward() override { attention_forward(forward_, options_); }
  void backward() override { attention_backward(backward_, options_); }
  bool has_workspace() const override { return lent_.data != nullptr; }
  void use_pool(bool wanted) override { options_.workspace = wanted ? Buffer{} : lent_; }
  bool is_ours() const override { return true; }
  std::optional<std::int64_t> workspace_bytes() const override {
    if (has_workspace()) return lent_.bytes;
    return on_device_ ? cuda::workspace_peak() : core::memory_count().peak;
  }
  std::optional<std::int64_t> saved_bytes() const override { return saved_bytes_; }

 private:
  std::string implementation_;
  ForwardTensors forward_;
  BackwardTensors backward_;
  AttentionOptions options_;
  bool on_device_ = false;
  OwnedMemory saved_, workspace_;
  Buffer lent_;  // the latter, for calls that must not allocate
  std::int64_t saved_bytes_ = 0;
};

fovea_bench_tensor bench_tensor(const TensorView& view) {
  return {const_cast<void*>(view.data), view.strides[0], view.strides[1], view.strides[2]};
}

// Of equal lengths both alignments are the same.
int bench_mask(const Mask& mask) {
  if (mask == Mask::none) return FOVEA_BENCH_NO_MASK;
  const bool is_window = core::word_of(mask).is_window;
  if (mask.alignment == Mask::Alignment::bottom_right)
    return is_window ? FOVEA_BENCH_WINDOW_BOTTOM_RIGHT : FOVEA_BENCH_CAUSAL_BOTTOM_RIGHT;
  return is_window ? FOVEA_BENCH_WINDOW_TOP_LEFT : FOVEA_BENCH_CAUSAL_TOP_LEFT;
}

class SharedObjectKernel final : public TimedKernel {
 public:
  SharedObjectKernel(const std::string& path, const std::string& symbol) {
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(dlerror());
    function_ = reinterpret_cast<Function>(dlsym(library, symbol.c_str()));
    if (function_ == nullptr) throw std::runtime_error(dlerror());
  }
  void prepare(const verification::AttentionCase& c, const Setup& setup) override {
    const AttentionProblem& p = c.problem;
    const auto& [forward, backward] = std::tie(setup.forward, setup.backward);
    const bool is_window = core::word_of(p.mask).is_window;
    call_ = {.size = sizeof call_,
             .pass = 0,
             .dtype = static_cast<int>(p.dtype),
             .mask = bench_mask(p.mask),
             .threads = setup.threads,
             .batch = p.batch,
             .heads_q = p.heads_q,
             .heads_kv = p.heads_kv,
             .len_q = p.len_q,
             .len_k = p.len_k,
             .dim_qk = p.dim_qk,
             .dim_v = p.dim_v,
             .scale = p.scale,
             .q = bench_tensor(forward.q),
             .k = bench_tensor(forward.k),
             .v = bench_tensor(forward.v),
             .out = bench_tensor(forward.out),
             .lse = bench_tensor(forward.lse),
             .device = p.device.kind == DeviceKind::cuda ? FOVEA_BENCH_CUDA : FOVEA_BENCH_CPU,
             .stream = setup.stream,
             .mask_left = is_window ? p.mask.left : 0,
             .mask_right = is_window ? p.mask.right : 0};
    backward_ = call_;
    backward_.pass = 1;
    backward_.dout = bench_tensor(backward.dout);
    backward_.dq = bench_tensor(backward.dq);
    backward_.dk = bench_tensor(backward.dk);
    backward_.dv = bench_tensor(backward.dv);
  }
  void forward() override { call(call_, "forward"); }
  void backward() override { call(backward_, "backward"); }

 private:
  using Function = int (*)(const fovea_bench_call*);

  void call(const fovea_bench_call& c, const char* pass) const {
    const int code = function_(&c);
    if (code == FOVEA_BENCH_OK) return;
    if (code == FOVEA_BENCH_OUT_OF_MEMORY) throw std::bad_alloc();
    const Status status = code == FOVEA_BENCH_UNSUPPORTED ? Status::unsupported : Status::error;
    core::fail({.status = status, .call = pass, .problem = "the kernel returned " + std::to_string(code)});
  }

  Function function_ = nullptr;
  fovea_bench_call call_{}, backward_{};
};

}  // namespace

std::unique_ptr<TimedKernel> make_kernel(const std::string& spec) {
  const std::size_t colon = spec.rfind(".so:");
  if (colon == std::string::npos) return std::make_unique<LibraryKernel>();
  return std::make_unique<SharedObjectKernel>(spec.substr(0, colon + 3), spec.substr(colon + 4));
}

}  // namespace fovea::program
