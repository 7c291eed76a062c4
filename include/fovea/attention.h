// Exact attention, forward and backward: out = softmax(scale * q k^T + mask) v.
//
// Shapes: q [batch, heads_q, len_q, dim_qk], k [batch, heads_kv, len_k, dim_qk], v [batch, heads_kv, len_k, dim_v],
// out and dout [batch, heads_q, len_q, dim_v], lse and delta [batch, heads_q, len_q, 1] fp32; each gradient has the
// shape of its tensor. A query row that may see no key has out = 0, lse = -inf and sends no gradient.
// Definition and backward formulas: Dao, "FlashAttention-2", arXiv 2307.08691, sections 2.3 and 3.1.
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
#include "fovea/problem.h"
#include "fovea/tensor.h"
#include "fovea/threads.h"

namespace fovea {

// Memory that the caller lends for the length of a call: 64-byte aligned, and of all that the call reads or writes only
// its own. What forward saved may be kept as long as it is wanted.
struct Buffer {
  void* data = nullptr;
  std::int64_t bytes = 0;
};

// Wait for `stream` before it is destroyed, and before a thread ends whose own it is: a driver was seen to hang where
// calls were under way (docs/kernels/cuda_any.md, "Calls and the host").
struct AttentionOptions {
  Mask mask = Mask::none;
  std::optional<double> scale = {};           // default 1 / sqrt(dim_qk); NaN and infinity are refused
  std::string_view implementation = {};       // a name of implementations(); empty: the first of the list that accepts
  int threads = 0;                            // CPU; 0: default_threads()
  const ThreadLender* lender = nullptr;       // CPU; null: the library's own pool
  const std::atomic<bool>* cancel = nullptr;  // CPU; polled once per tile
  void* stream = nullptr;                     // CUDA; a cudaStream_t
  Buffer workspace = {};                      // at least workspace_bytes(); null: the library's own pool
  bool reproducible = true;                   // false also admits implementations that promise no bitwise equality
};

struct ForwardTensors {
  TensorView q = {}, k = {}, v = {};
  MutableTensorView out = {};  // of the inputs' type, or fp32
  MutableTensorView lse = {};  // optional: natural logarithm of the sum of exponentials of the scaled, masked scores
  Buffer saved = {};           // optional: state for the backward of the same implementation (explain tells its size)
};

// `out` and `lse` are those of the forward call. `delta`, if given, replaces rowsum(dout * out), and then `out` may be
// absent: together with an outside `lse` this serves attention whose keys are split over several calls.
struct BackwardTensors {
  TensorView q = {}, k = {}, v = {}, out = {}, lse = {}, dout = {};
  TensorView delta = {};
  MutableTensorView dq = {}, dk = {}, dv = {};  // each optional; of the inputs' type, or all fp32
  Buffer saved = {};                            // what the forward of the same implementation wrote, if it saves
  bool accumulate = false;                      // add to dq, dk, dv (fp32 only) instead of overwriting them
};

// Calls compute in the default floating-point mode (rounding to nearest, subnormal numbers kept), whatever the calling
// thread's is, and leave that as it was.
// Throws Error with status invalid_argument, unsupported or out_of_memory before any output is written; `cancelled` if
// the flag was raised, or `error` if a device or library underneath failed, which leave the outputs unspecified.
FOVEA_API void attention_forward(const ForwardTensors& tensors, const AttentionOptions& options = {});
FOVEA_API void attention_backward(const BackwardTensors& tensors, const AttentionOptions& options = {});

// Joins attention over disjoint sets of keys: parts are (out, lse) pairs of the same shape, `out` and `lse` receive
// attention over all their keys. Every tensor fp32; CPU. The parts are added in the order given. Throws Error with
// status invalid_argument or out_of_memory before anything is written.
struct PartialResult {
  TensorView out = {}, lse = {};
};
FOVEA_API void merge_partials(std::span<const PartialResult> parts, const MutableTensorView& out,
                              const MutableTensorView& lse);

// The problem that a call with these tensors and options would pose. Validates everything that needs no memory access:
// throws Error with status invalid_argument.
FOVEA_API AttentionProblem describe(const ForwardTensors& tensors, const AttentionOptions& options = {});
FOVEA_API AttentionProblem describe(const BackwardTensors& tensors, const AttentionOptions& options = {});

// Bytes of workspace that the implementation which would run needs. Throws Error with status invalid_argument, or
// unsupported if none would run.
FOVEA_API std::int64_t workspace_bytes(const AttentionProblem& problem, std::string_view implementation = {});

// The walk through the list of implementations for one problem: every verdict. The first that accepts runs, or a later
// one if both predict their time and the later one's is smaller.
struct Explanation {
  struct Step {
    std::string name = {};
    bool accepted = false;
    std::string reason = {};       // why it refuses, or is not asked unless named; "" where it accepts
    double predicted_seconds = 0;  // 0: it refuses, or predicts no time
  };
  std::vector<Step> walk = {};
  std::string chosen = {};  // empty if none accepts
  std::string tiles = {};   // how the chosen one cuts the problem
  std::int64_t workspace_bytes = 0;
  std::int64_t saved_bytes = 0;  // state kept between forward and backward beside out and lse
  double flops = 0;
  double bytes = 0;
  double predicted_seconds = 0;  // of the chosen one; 0: it predicts no time
};
// Throws Error with status invalid_argument for a problem that breaks the contract or a name that is not known; none
// accepting is no error.
FOVEA_API Explanation explain(const AttentionProblem& problem, std::string_view implementation = {});

struct ImplementationInfo {
  std::string name = {};
  DeviceKind device = DeviceKind::cpu;
  bool automatic = false;        // chosen without being named
  std::string unavailable = {};  // why this machine cannot run it; empty if it can
};
FOVEA_API std::vector<ImplementationInfo> implementations();

}  // namespace fovea
