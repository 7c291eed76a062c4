// Attention layers, forward and backward: projections of x to q, k and v, attention between the heads, and a projection
// of its result. A layer is Linear (linear.h) and attention (attention.h) on views of one another's memory.
//
// Shapes: x, y, dx and dy [batch, 1, len_q, width], x_kv and dx_kv [batch, 1, len_k, width_kv]. A weight is
// [1, 1, columns_out, columns_in], its bias [1, 1, 1, columns_out]. Per kind (H = heads_q, G = heads_kv, D = dim_qk,
// V = dim_v, E = width, F = width_kv, which is E without x_kv; Lq and Lkv are the latent sizes):
//
//   mha_fused        qkv [3 H D, E]: rows of q, then of k, then of v                     G = H, V = D, no x_kv
//   mha, gqa, mqa    q [H D, E], k [G D, F], v [G V, F]                                  G = H, G divides H, G = 1
//   mla              q_down [Lq, E], q [H D, Lq], kv_down [Lkv, F], k [H D, Lkv], v [H V, Lkv]              G = H
//   all              out [E, H V]
//
// The rows of q, k and v that belong to one head are neighbours, and so are its columns of out. D and V follow from the
// weights' sizes.
//
// mla has two forms. If k has as many rows as q, it is the one above. If k has fewer, [H N, Lkv] with N < D, it is
// DeepSeek's form: kv_down is [Lkv + S, F], S = D - N, and its last S rows make one rotary key that all heads share. A
// head of k is N columns of k, then the shared key. This form needs rotary embedding, which rotates these S columns of
// k and the last S of each head of q. DeepSeek's sizes: Lq 1536, Lkv 512, N 128, S 64, V 128.
//
// RMS norm divides a row by sqrt(mean of its squares + epsilon) and multiplies it by a weight [1, 1, 1, its columns]. q
// and k are normalised head by head, all heads with one weight, then rotated (rotary.h). Latents are normalised as
// wholes, without the shared key.
//
// Activations between the parts have the type of x and are rounded to it; sums are fp32. Gradients are rounded once:
// where several projections read one input, its gradient is summed in fp32 over all of them. One exception: on a GPU, if
// bf16 weights are large, it is rounded once for each projection. Norm and rotary embedding round their results, and
// gradients through them, once more. If a gradient between two parts exceeds what the type of x holds (65504 in fp16),
// results that depend on it may be infinite or NaN. batch, len_q and len_k may be 0; every other size is 1 or more.
//
// Sources: Vaswani et al., "Attention Is All You Need", arXiv 1706.03762, 3.2 (mha); Shazeer, arXiv 1911.02150 (mqa);
// Ainslie et al., arXiv 2305.13245 (gqa); DeepSeek-AI, "DeepSeek-V2", arXiv 2405.04434, 2.1 (mla); Henry et al.,
// arXiv 2010.04245 (norms of q and k); Zhang and Sennrich, arXiv 1910.07467 (RMS norm).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/attention.h"
#include "fovea/linear.h"
#include "fovea/rotary.h"

namespace fovea {

enum class LayerKind : std::uint8_t { mha_fused, mha, gqa, mqa, mla };

// One of: mha_fused, mha, gqa, mqa, mla.
FOVEA_API std::string_view to_string(LayerKind kind);

// One T for each projection; a kind uses those that its row of the table above names, and out.
template <class T>
struct PerProjection {
  T qkv{}, q_down{}, q{}, kv_down{}, k{}, v{}, out{};
  bool operator==(const PerProjection&) const = default;
};

struct Projection {
  TensorView weight = {};  // its rows do not overlap
  TensorView bias = {};    // optional
};
struct ProjectionGradient {
  MutableTensorView weight = {}, bias = {};  // each optional
};
using LayerParameters = PerProjection<Projection>;
using LayerGradients = PerProjection<ProjectionGradient>;

// One T for each RMS norm. Only mla has norms of latents; its DeepSeek form has no other norms.
template <class T>
struct PerNorm {
  T q{}, k{}, q_latent{}, kv_latent{};
  bool operator==(const PerNorm&) const = default;
};
using LayerNorms = PerNorm<TensorView>;  // weights; each optional: without it nothing is normalised there
using LayerNormGradients = PerNorm<MutableTensorView>;

// A part of a call: a projection by its member of PerProjection, `attention`, or `row passes` (norms, rotary embedding,
// copies). Gradients of one input through several projections are a part `dx`, `dkv_latent`, .. of its own.
struct LayerPart {
  std::string_view name;
  double flops = 0, bytes = 0;  // that its definition takes, each tensor read or written once
};

// Everything of a call but its tensors. See AttentionOptions for stream, graphs and reproducible.
struct LayerOptions {
  LayerKind kind = LayerKind::mha_fused;
  std::int64_t heads_q = 1;                         // divides the rows of q
  std::int64_t heads_kv = 0;                        // 0: heads_q, or 1 for mqa; gqa must say it
  Mask mask = Mask::none;                           // len_k is len_q, unless there is x_kv or a cache
  std::optional<double> scale = {};                 // absent: 1 / sqrt(dim_qk)
  std::string_view attention = {};                  // a name of implementations(), as AttentionOptions::implementation
  std::string_view product = {};                    // a name of linear_implementations(), for every projection
  int threads = 0;                                  // CPU; 0: as many as thread_pool has, or default_threads()
  const ExternalThreadPool* thread_pool = nullptr;  // CPU; null: the library's own pool
  const std::atomic<bool>* cancel = nullptr;        // CPU; polled once per tile
  void* stream = nullptr;                           // CUDA; a cudaStream_t
  Buffer workspace = {};                            // at least workspace_bytes(); null: the library's own pool
  bool reproducible = true;                         // false also admits attention that is not bitwise reproducible
  const Plan* plan = nullptr;         // of prepare() for this very problem and these names; null: chosen by the call
  std::optional<Rotary> rotary = {};  // of q and k; absent: none. DeepSeek's form fixes its columns
  double epsilon = 1e-6;              // of the norms; above 0
  // Told on the calling thread before each part begins, to profile a call. On CUDA earlier parts may only be enqueued.
  std::function<void(const LayerPart&)> watch = {};
};

// Keys and values of earlier tokens, for inference step by step: x holds the next len_q tokens. The call writes their
// keys and values behind the first `length` rows, and attends to all length + len_q = len_k rows. Then the caller
// raises `length` by len_q. Rows are tokens, as attention reads them; all have the type of x. Row i of x is token
// length + i; Rotary's first position is that of the cache's first token. The queries are the last len_q of len_k
// tokens, so the causal mask is causal_bottom_right.
struct LayerCache {
  // [batch, 1, capacity, G D] and [batch, 1, capacity, G V], normalised and rotated; not for mla.
  MutableTensorView k = {}, v = {};
  // mla: [batch, 1, capacity, Lkv + S], the normalised latent and the rotated shared key.
  MutableTensorView latent = {};
  std::int64_t length = 0;  // length + len_q is at most the capacity
  explicit operator bool() const { return k || v || latent; }
};

// x and all parameters have one type and one device.
struct LayerForwardTensors {
  TensorView x = {};
  TensorView x_kv = {};  // optional: another sequence for keys and values (cross-attention); not for mha_fused
  LayerParameters parameters = {};
  MutableTensorView y = {};  // of the type of x, or fp32
  Buffer saved = {};         // optional: at least saved_bytes(), for backward; without it nothing is kept
  LayerNorms norms = {};
  LayerCache cache = {};  // optional; without x_kv and `saved`
};

// x, x_kv, parameters, norms and `saved` are the forward call's. Weights are needed; biases are not read and may be
// absent. At least one gradient must be given; work that none of them needs is left out.
struct LayerBackwardTensors {
  TensorView x = {}, x_kv = {};
  LayerParameters parameters = {};
  TensorView dy = {};                     // of the type of x
  MutableTensorView dx = {}, dx_kv = {};  // each optional; of the type of x, or both fp32
  LayerGradients gradients = {};          // each optional; all of the type of x, or all fp32
  Buffer saved = {};                      // what forward wrote with the same options
  bool accumulate = false;  // add to `gradients` and `norm_gradients`, which must be fp32, instead of overwriting them
  LayerNorms norms = {};
  LayerNormGradients norm_gradients = {};  // each optional, of a norm that is given; of the type of `gradients`
};

// What a problem knows of one projection.
struct ProjectionFacts {
  bool bias = false;                                // forward: it has one
  bool wants_dweight = false, wants_dbias = false;  // backward
  bool operator==(const ProjectionFacts&) const = default;
};

struct NormFacts {
  bool given = false;
  bool wants_dweight = false;  // backward
  bool operator==(const NormFacts&) const = default;
};

// The properties of a call that decide its parts, without pointers. Build one with `describe` or by hand.
struct LayerProblem {
  LayerKind kind = LayerKind::mha_fused;
  Pass pass = Pass::forward;
  std::int64_t batch = 1, len_q = 1, len_k = 1;  // len_k is len_q without x_kv and cache
  std::int64_t width = 1, width_kv = 1;          // width_kv is width without x_kv
  std::int64_t heads_q = 1, heads_kv = 1;
  std::int64_t dim_qk = 1, dim_v = 1;
  std::int64_t latent_q = 0, latent_kv = 0;  // of mla; 0 for the others
  DType dtype = DType::fp32;                 // of x, x_kv, the parameters, dy
  DType result_dtype = DType::fp32;          // of y, or of dx and dx_kv
  DType parameter_dtype = DType::fp32;       // of the gradients of parameters
  Mask mask = Mask::none;
  double scale = 1.0;
  Device device{};
  bool cross = false;        // x_kv is given
  bool saves = false;        // forward writes `saved`; always true of backward
  bool reproducible = true;  // the same bits on every run and for any number of threads
  bool accumulate = false;   // backward adds to fp32 gradients of parameters
  bool wants_dx = false, wants_dx_kv = false;
  PerProjection<ProjectionFacts> projections = {};
  bool copies_x = false, copies_x_kv = false, copies_dy = false;  // strides that products cannot read (LinearProblem)
  std::int64_t dim_shared = 0;        // S above: columns of each head that the shared rotary key has; 0: none
  std::optional<Rotary> rotary = {};  // its columns are counted: dim_qk, dim_shared or fewer
  PerNorm<NormFacts> norms = {};
  double epsilon = 0;            // 0 without norms
  bool caches = false;           // forward appends to a cache, which holds len_k - len_q rows
  bool unaligned_cache = false;  // AttentionProblem::unaligned

  bool operator==(const LayerProblem&) const = default;
};

// The sizes of each weight (a bias has its columns_out); all 0 for projections that the kind does not use.
FOVEA_API PerProjection<Sizes> weight_sizes(const LayerProblem& problem);
// The sizes of each norm's weight; all 0 for norms that the kind does not have.
FOVEA_API PerNorm<Sizes> norm_sizes(const LayerProblem& problem);

// Floating-point operations: two for each multiply-add of the products that run, and those of attention (problem.h).
// Norms and rotary embedding are not counted; nor is what no wanted gradient needs.
FOVEA_API double flops(const LayerProblem& problem);

// Bytes if every tensor of the call, `saved` included, is read or written once; accumulated gradients are read too.
FOVEA_API double bytes(const LayerProblem& problem);

// Bytes of LayerForwardTensors::saved: q, k, v, attention's result and lse; of mla the latents; the results of norms; k
// with the shared columns in DeepSeek's form; and the saved state of `attention` if one is named. explain() lists each
// (docs/kernels/layers.md, "Saved state"). The same for both passes. Throws as workspace_bytes does.
FOVEA_API std::int64_t saved_bytes(const LayerProblem& problem, std::string_view attention = {});

// Both throw Error as attention_forward does (attention.h). On the CPU they give the same bits for any number of
// threads. On CUDA they only enqueue work, and can be captured into a graph.
FOVEA_API void layer_forward(const LayerForwardTensors& tensors, const LayerOptions& options = {});
FOVEA_API void layer_backward(const LayerBackwardTensors& tensors, const LayerOptions& options = {});

// The problem of a call with these tensors and options. Throws Error with status invalid_argument.
FOVEA_API LayerProblem describe(const LayerForwardTensors& tensors, const LayerOptions& options = {});
FOVEA_API LayerProblem describe(const LayerBackwardTensors& tensors, const LayerOptions& options = {});

// Plans the parts, for LayerOptions::plan. `attention` and `product` are those of LayerOptions. A call refuses a plan
// of another problem, device or names (invalid_argument). Throws Error as workspace_bytes does. The plan's
// implementation() is `composed`.
FOVEA_API Plan prepare(const LayerProblem& problem, std::string_view attention = {}, std::string_view product = {});

// Workspace of a call, in bytes: activations that are not saved, gradients of activations, and the parts' workspace.
// Throws Error with status invalid_argument, or unsupported if no implementation takes a part.
FOVEA_API std::int64_t workspace_bytes(const LayerProblem& problem, std::string_view attention = {},
                                       std::string_view product = {});

// The parts of a layer in the order in which they run, and what they need.
struct LayerExplanation {
  struct Part {
    std::string name = {};         // a projection or attention, such as q, kv_down, attention
    Explanation explanation = {};  // of this part's call
  };
  struct SavedTensor {
    std::string name = {};  // such as qkv, q_latent, lse
    Sizes sizes{};
    std::int64_t bytes = 0;
  };
  std::vector<Part> parts = {};
  std::vector<std::string> row_passes = {};  // "q: RMS norm, rotary embedding", in the order in which they run
  std::string attention = {};                // the chosen implementation; empty: none runs
  std::string product = {};                  // the chosen ones, separated by ", "; empty: none runs
  std::vector<SavedTensor> saved = {};
  std::int64_t workspace_bytes = 0;
  std::int64_t saved_bytes = 0;
  double flops = 0;
  double bytes = 0;
};
// Throws Error with status invalid_argument for a problem that breaks the contract or an unknown name. If a part has no
// implementation, its `chosen` is empty.
FOVEA_API LayerExplanation explain(const LayerProblem& problem, std::string_view attention = {},
                                   std::string_view product = {});

}  // namespace fovea
