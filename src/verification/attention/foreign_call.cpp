// Loads the function, fills its struct, and turns its return code into an exception.
#include "verification/attention/foreign_call.h"

#include <dlfcn.h>

#include <new>
#include <stdexcept>

#include "attention/mask.h"
#include "core/check.h"
#include "fovea/bench_call.h"

namespace fovea::verification {
namespace {

using Function = int (*)(const fovea_bench_call*);

Function function_of(const std::string& spec) {
  const std::size_t colon = spec.rfind(':');
  void* const library = dlopen(spec.substr(0, colon).c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw std::runtime_error(dlerror());
  void* const symbol = dlsym(library, spec.c_str() + colon + 1);
  if (symbol == nullptr) throw std::runtime_error(dlerror());
  return reinterpret_cast<Function>(symbol);
}

fovea_bench_tensor bench_tensor(const TensorView& view) {
  return {const_cast<void*>(view.data), view.strides[0], view.strides[1], view.strides[2]};
}

// With equal lengths, both alignments mean the same.
int bench_mask(const Mask& mask) {
  if (mask == Mask::none) return FOVEA_BENCH_NO_MASK;
  const bool is_window = core::word_of(mask).is_window;
  if (mask.alignment == Mask::Alignment::bottom_right)
    return is_window ? FOVEA_BENCH_WINDOW_BOTTOM_RIGHT : FOVEA_BENCH_CAUSAL_BOTTOM_RIGHT;
  return is_window ? FOVEA_BENCH_WINDOW_TOP_LEFT : FOVEA_BENCH_CAUSAL_TOP_LEFT;
}

void run(Function function, const fovea_bench_call& call) {
  const int code = function(&call);
  if (code == FOVEA_BENCH_OK) return;
  if (code == FOVEA_BENCH_OUT_OF_MEMORY) throw std::bad_alloc();
  const Status status = code == FOVEA_BENCH_UNSUPPORTED ? Status::unsupported : Status::error;
  core::fail({.status = status,
              .call = call.pass == 0 ? "forward" : "backward",
              .problem = "the kernel returned " + std::to_string(code)});
}

}  // namespace

Call attention_foreign_call(const AttentionCase& c, const ForwardTensors& forward, const BackwardTensors& backward,
                            const CallSettings& settings) {
  const AttentionProblem& p = c.problem;
  const bool is_window = core::word_of(p.mask).is_window;
  fovea_bench_call call{.size = sizeof call,
                        .pass = 0,
                        .dtype = static_cast<int>(p.dtype),
                        .mask = bench_mask(p.mask),
                        .threads = settings.threads,
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
                        .stream = settings.stream,
                        .mask_left = is_window ? p.mask.left : 0,
                        .mask_right = is_window ? p.mask.right : 0};
  fovea_bench_call back = call;
  back.pass = 1;
  back.dout = bench_tensor(backward.dout);
  back.dq = bench_tensor(backward.dq);
  back.dk = bench_tensor(backward.dk);
  back.dv = bench_tensor(backward.dv);
  const Function function = function_of(settings.implementation);
  return {.forward = [function, call] { run(function, call); }, .backward = [function, back] { run(function, back); }};
}

}  // namespace fovea::verification
