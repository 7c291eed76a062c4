// The two kinds of kernel that a C++ worker runs.
#include "program/timed_kernel.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <stdexcept>

#include "core/check.h"
#include "core/choose.h"
#include "core/memory.h"
#include "fovea/bench_call.h"

namespace fovea::program {
namespace {

class LibraryKernel final : public TimedKernel {
 public:
  void prepare(const core::Case& c, const std::string& implementation, int threads, const ForwardTensors& forward,
               const BackwardTensors& backward) override {
    implementation_ = implementation;
    forward_ = forward;
    backward_ = backward;
    options_ = {.mask = c.problem.mask,
                .scale = c.problem.scale,
                .implementation = implementation_,
                .threads = threads,
                .reproducible = core::promises_reproducibility(implementation_)};
    AttentionProblem problem = c.problem;
    problem.reproducible = options_.reproducible;
    problem.pass = Pass::forward;
    saved_bytes_ = c.pass == core::CasePass::fwd ? 0 : explain(problem, implementation_).saved_bytes;
    core::release_cached_memory();
    saved_.reset();
    if (saved_bytes_ > 0) {
      const auto bytes = static_cast<std::size_t>((saved_bytes_ + 63) / 64 * 64);
      saved_.reset(std::aligned_alloc(64, bytes));
      if (saved_ == nullptr) throw std::bad_alloc();
      forward_.saved = backward_.saved = {saved_.get(), saved_bytes_};
    }
    core::reset_memory_peak();
  }
  void forward() override { attention_forward(forward_, options_); }
  void backward() override { attention_backward(backward_, options_); }
  std::optional<std::int64_t> workspace_bytes() const override { return core::memory_count().peak; }
  std::optional<std::int64_t> saved_bytes() const override { return saved_bytes_; }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  std::string implementation_;
  ForwardTensors forward_;
  BackwardTensors backward_;
  AttentionOptions options_;
  std::unique_ptr<void, Free> saved_;
  std::int64_t saved_bytes_ = 0;
};

fovea_bench_tensor bench_tensor(const TensorView& view) {
  return {const_cast<void*>(view.data), view.strides[0], view.strides[1], view.strides[2]};
}

class SharedObjectKernel final : public TimedKernel {
 public:
  SharedObjectKernel(const std::string& path, const std::string& symbol) {
    void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) throw std::runtime_error(dlerror());
    function_ = reinterpret_cast<Function>(dlsym(library, symbol.c_str()));
    if (function_ == nullptr) throw std::runtime_error(dlerror());
  }
  void prepare(const core::Case& c, const std::string&, int threads, const ForwardTensors& forward,
               const BackwardTensors& backward) override {
    const AttentionProblem& p = c.problem;
    const int mask = p.mask == Mask::none                  ? FOVEA_BENCH_NO_MASK
                     : p.mask == Mask::causal_bottom_right ? FOVEA_BENCH_CAUSAL_BOTTOM_RIGHT
                                                           : FOVEA_BENCH_CAUSAL_TOP_LEFT;
    call_ = {.size = sizeof call_,
             .pass = 0,
             .dtype = static_cast<int>(p.dtype),
             .mask = mask,
             .threads = threads,
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
             .lse = bench_tensor(forward.lse)};
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
