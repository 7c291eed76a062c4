// Exact attention, forward and backward: out = softmax(scale * q k^T + mask) v. This comment is the contract; fovea.h
// and bench_call.h follow it.
//
// Shapes: q [batch, heads_q, len_q, dim_qk], k [batch, heads_kv, len_k, dim_qk], v [batch, heads_kv, len_k, dim_v],
// out and dout [batch, heads_q, len_q, dim_v], lse and delta [batch, heads_q, len_q, 1] fp32; each gradient has the
// shape of its tensor. Query head h reads key head h / (heads_q / heads_kv). Head dimensions are 1 to 4096; other sizes
// may be 0. Layouts are strides: see tensor.h.
//
// A score s is scale times q.k, for the keys that the mask shows the row (mask.h). `scale` is 1 / sqrt(dim_qk) by
// default; any finite value is legal, also zero and negative ones. On CUDA no implementation takes a scale whose
// magnitude is below 8.2e-39 (except 0) or above 2.3e38: such a call is refused.
//
// lse is the natural logarithm of the sum of exp(s) over those keys; delta is the sum of dout * out over a row. A fully
// masked query row has out = 0, lse = -inf, and no gradient flows from it. Other special values, and how exact results
// are: docs/numerics.md.
//
// Forward and backward formulas: Dao, "FlashAttention-2", arXiv 2307.08691, sections 2.3 and 3.1.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/error.h"
#include "fovea/export.h"
#include "fovea/plan.h"
#include "fovea/problem.h"
#include "fovea/tensor.h"
#include "fovea/threads.h"

namespace fovea {

// Memory of the caller on the tensors' device: 64-byte aligned; must not overlap any tensor of the call, nor another
// buffer. The call uses it until it returns, or on a stream until its work there has ended. Keep `saved` until the
// backward call.
struct Buffer {
  void* data = nullptr;
  std::int64_t bytes = 0;
};

// If `implementation` is empty, FOVEA_IMPL may name one.
//
// On CUDA a call enqueues its work on `stream` and returns. Synchronize `stream` before it is destroyed, and a
// per-thread default stream before the thread that owns it exits. One driver hung when streams were destroyed while
// calls were running (docs/kernels/cuda_any.md, "Calls and the host"). Backward of cuda.sm90 without a mask must not run
// on streams of three different priorities at once: the calls may wait for each other for ever
// (docs/kernels/sm90_backward.md, "The order of dQ").
//
// If the stream is captured into a graph, `workspace` must live as long as the graph. A call without `workspace` adds
// memory nodes to the graph. Then each replay takes up to 1 us longer, and CUDA allows only one executable instance of
// the graph at a time.
struct AttentionOptions {
  Mask mask = Mask::none;
  std::optional<double> scale = {};                 // absent: 1 / sqrt(dim_qk); NaN and infinity are refused
  std::string_view implementation = {};             // a name of implementations(); empty: chosen automatically
  int threads = 0;                                  // CPU; 0: as many as thread_pool has, or default_threads()
  const ExternalThreadPool* thread_pool = nullptr;  // CPU; null: the library's own pool
  const std::atomic<bool>* cancel = nullptr;        // CPU; polled once per tile
  void* stream = nullptr;                           // CUDA; a cudaStream_t
  Buffer workspace = {};                            // at least workspace_bytes(); null: the library's own pool
  bool reproducible = true;    // false also admits implementations that are not bitwise reproducible
  const Plan* plan = nullptr;  // of prepare() for this very problem; null: chosen by the call
};

struct ForwardTensors {
  TensorView q = {}, k = {}, v = {};
  MutableTensorView out = {};  // of the inputs' type, or fp32
  MutableTensorView lse = {};  // optional
  Buffer saved = {};           // optional: state for backward of the same implementation; explain() tells its size
};

// q, k, v and dout have one type; `out` has it too, or fp32. `out` and `lse` come from the forward call; `lse` is
// needed even with `saved`. `delta`, if given, replaces rowsum(dout * out); then `out` may be absent. If the keys of
// one attention are split over several calls, give each call the lse and delta over all keys. At least one gradient
// must be given.
struct BackwardTensors {
  TensorView q = {}, k = {}, v = {}, out = {}, lse = {}, dout = {};
  TensorView delta = {};
  MutableTensorView dq = {}, dk = {}, dv = {};  // each optional; of the inputs' type, or all fp32
  Buffer saved = {};                            // what forward of the same implementation wrote; optional
  bool accumulate = false;                      // add to dq, dk, dv (fp32 only) instead of overwriting them
};

// Calls compute in the default floating-point mode (round to nearest, subnormal numbers kept) and leave the calling
// thread's mode as it was. They throw Error. With status invalid_argument, unsupported or out_of_memory, no output was
// written. With `cancelled` (the flag was raised) or `error` (error.h), outputs are unspecified.
FOVEA_API void attention_forward(const ForwardTensors& tensors, const AttentionOptions& options = {});
FOVEA_API void attention_backward(const BackwardTensors& tensors, const AttentionOptions& options = {});

// Combines partial results over disjoint sets of keys, pairs (out, lse) of one shape, into attention over all their
// keys. All tensors are fp32 on the CPU. Partials are added in the order given. Throws Error with status
// invalid_argument or out_of_memory before anything is written.
struct PartialResult {
  TensorView out = {}, lse = {};
};
FOVEA_API void merge_partials(std::span<const PartialResult> partials, const MutableTensorView& out,
                              const MutableTensorView& lse);

// The problem of a call with these tensors and options. Checks everything that needs no memory access; throws Error
// with status invalid_argument.
FOVEA_API AttentionProblem describe(const ForwardTensors& tensors, const AttentionOptions& options = {});
FOVEA_API AttentionProblem describe(const BackwardTensors& tensors, const AttentionOptions& options = {});

// Chooses an implementation for the problem and plans its runs, for AttentionOptions::plan. A call refuses a plan of
// another problem, device or implementation (invalid_argument). Throws Error as workspace_bytes does.
FOVEA_API Plan prepare(const AttentionProblem& problem, std::string_view implementation = {});

// Workspace that the chosen implementation needs, in bytes. Throws Error with status invalid_argument, or unsupported
// if no implementation takes the problem.
FOVEA_API std::int64_t workspace_bytes(const AttentionProblem& problem, std::string_view implementation = {});

// How the implementation of one problem is chosen: the verdict of every implementation, in order. The first that
// accepts leads; a later one replaces it only if both predict a time and its time is smaller.
struct Explanation {
  struct Step {
    std::string name = {};
    bool accepted = false;
    std::string reason = {};       // why it refuses, or why it runs only when named; "" if it accepts
    double predicted_seconds = 0;  // 0: it refuses, or predicts no time
  };
  std::vector<Step> walk = {};
  std::string chosen = {};  // empty if none accepts
  std::string tiles = {};   // how the chosen implementation tiles the problem; for people, not for programs
  std::int64_t workspace_bytes = 0;
  std::int64_t saved_bytes = 0;  // state kept from forward to backward, besides out and lse
  double flops = 0;              // flops(problem)
  double bytes = 0;              // bytes(problem)
  double predicted_seconds = 0;  // of the chosen one; 0: it predicts no time
};
// Throws Error with status invalid_argument for a problem that breaks the contract or an unknown name. If no
// implementation accepts, `chosen` is empty.
FOVEA_API Explanation explain(const AttentionProblem& problem, std::string_view implementation = {});

struct ImplementationInfo {
  std::string name = {};
  DeviceKind device = DeviceKind::cpu;
  bool automatic = false;        // may be chosen without being named
  std::string unavailable = {};  // why this machine cannot run it; empty if it can
};
// The implementations of attention, in the order in which they are asked.
FOVEA_API std::vector<ImplementationInfo> implementations();

}  // namespace fovea
