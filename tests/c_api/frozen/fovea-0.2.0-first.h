// The C interface: the same calls as attention.h and linear.h, with plain structs and status codes. C99.
//
// Every struct that is passed by address starts with its size, which says what version of this header it was compiled
// with: write `fovea_options options = {.struct_size = sizeof options};` and the rest is zero, the default.
// Structs grow at their end. A caller with an older header runs on a newer library: fields that it lacks count as zero.
// A caller with a newer header runs on an older library as long as the fields that the library lacks are zero. A
// function that fills a struct writes at most struct_size bytes. Before version 1 a new minor version may break this.
// Nothing is kept after a call returns.
// All functions may be called from any thread at the same time; fovea_last_error is per thread. Shapes, the meaning of
// every tensor and what is refused: attention.h, tensor.h, problem.h.
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "fovea/export.h"
#include "fovea/version.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef int32_t fovea_status;
enum {
  FOVEA_OK = 0,
  FOVEA_INVALID_ARGUMENT = 1,  // the call contradicts the contract
  FOVEA_UNSUPPORTED = 2,       // legal, but no implementation here takes it
  FOVEA_OUT_OF_MEMORY = 3,
  FOVEA_CANCELLED = 4,  // the cancel flag was raised while the call ran; outputs are unspecified
  FOVEA_ERROR = 5       // a device or library underneath failed
};

// Values of the int32_t fields below; any other is refused.
enum { FOVEA_FP32 = 0, FOVEA_BF16 = 1, FOVEA_FP16 = 2 };
enum { FOVEA_CPU = 0, FOVEA_CUDA = 1 };
enum { FOVEA_FORWARD = 0, FOVEA_BACKWARD = 1 };
// See Mask in mask.h. Windows take mask_left and mask_right, which are 0 for the others.
enum {
  FOVEA_MASK_NONE = 0,
  FOVEA_MASK_CAUSAL = 1,
  FOVEA_MASK_CAUSAL_TOP_LEFT = 2,
  FOVEA_MASK_CAUSAL_BOTTOM_RIGHT = 3,
  FOVEA_MASK_WINDOW = 4,
  FOVEA_MASK_WINDOW_TOP_LEFT = 5,
  FOVEA_MASK_WINDOW_BOTTOM_RIGHT = 6
};
#define FOVEA_UNLIMITED INT64_MAX  // of mask_left or mask_right, not of both

// A [batch, heads, length, dim] tensor that the caller owns; lse and delta have dim 1. Strides count elements;
// strides of an output must not make elements overlap (tensor.h).
typedef struct fovea_tensor {
  size_t struct_size;
  void* data;  // never written through where the tensor is an input
  int32_t dtype;
  int32_t rank;  // 4
  int64_t sizes[4];
  int64_t strides[4];
  int32_t device_kind;
  int32_t device_index;
  int64_t buffer_bytes;  // bytes that may be accessed from `data` on; 0: unknown, so not checked
} fovea_tensor;

// Memory of the caller: 64-byte aligned; must not overlap any tensor of the call, nor another buffer. It is always a
// member of another struct and has no struct_size of its own.
typedef struct fovea_buffer {
  void* data;
  int64_t bytes;
} fovea_buffer;

// A thread pool of the caller: see ExternalThreadPool in threads.h.
typedef struct fovea_external_thread_pool {
  size_t struct_size;
  int32_t threads;
  void* host;
  void (*run)(void* host, int64_t count, void (*task)(void* argument, int64_t index, int worker), void* argument);
} fovea_external_thread_pool;

// Synchronize `stream` before it is destroyed, and a per-thread default stream before the thread that owns it exits: a
// driver was seen to hang while calls were running (docs/kernels/cuda_any.md, "Calls and the host").
typedef struct fovea_options {
  size_t struct_size;
  int32_t mask;
  int32_t has_scale;           // 0: scale is 1 / sqrt(dim_qk)
  double scale;                // any finite value
  const char* implementation;  // a name; null or "": chosen automatically
  int32_t threads;             // CPU; 0: the default
  int32_t irreproducible;      // 1 also admits implementations that are not bitwise reproducible
  const fovea_external_thread_pool* thread_pool;
  const unsigned char* cancel;  // CPU; one byte, 0 until another thread sets it to 1; may be null
  void* stream;                 // CUDA; a cudaStream_t
  fovea_buffer workspace;       // at least fovea_workspace_bytes; null: the library's own pool
  int64_t mask_left;            // windows: keys that a row sees before its own, 0 to 2^62, or FOVEA_UNLIMITED
  int64_t mask_right;           // and after it
} fovea_options;

typedef struct fovea_forward_tensors {
  size_t struct_size;
  const fovea_tensor *q, *k, *v;
  const fovea_tensor *out, *lse;  // lse may be null
  fovea_buffer saved;             // optional: state for backward of the same implementation
} fovea_forward_tensors;

typedef struct fovea_backward_tensors {
  size_t struct_size;
  const fovea_tensor *q, *k, *v, *out, *lse, *dout;
  const fovea_tensor* delta;         // may be null; if given, out may be null
  const fovea_tensor *dq, *dk, *dv;  // each may be null, but not all
  fovea_buffer saved;
  int32_t accumulate;  // 1: add to dq, dk, dv (fp32 only) instead of overwriting them
  int32_t reserved;    // 0
} fovea_backward_tensors;

// A problem without pointers: the fields of AttentionProblem (problem.h).
typedef struct fovea_problem {
  size_t struct_size;
  int32_t pass;
  int32_t mask;
  int64_t batch, heads_q, heads_kv, len_q, len_k, dim_qk, dim_v;
  int32_t dtype;
  int32_t result_dtype;
  double scale;
  int32_t device_kind;
  int32_t device_index;
  int32_t irreproducible;
  int32_t saved_state;
  int32_t accumulate;
  int32_t skip_dq, skip_dk, skip_dv;
  int64_t mask_left, mask_right;  // see fovea_options
} fovea_problem;

// Fills in a dense row-major fp32, bf16 or fp16 tensor in CPU memory. `tensor->struct_size` must be set.
FOVEA_API fovea_status fovea_init_dense_tensor(fovea_tensor* tensor, void* data, int32_t dtype, int64_t batch,
                                               int64_t heads, int64_t length, int64_t dim);

// `options` may be null for the defaults. Refusals come before anything is written.
FOVEA_API fovea_status fovea_attention_forward(const fovea_forward_tensors* tensors, const fovea_options* options);
FOVEA_API fovea_status fovea_attention_backward(const fovea_backward_tensors* tensors, const fovea_options* options);

// Combines `count` (out, lse) pairs over disjoint sets of keys into one: see merge_partials in attention.h.
FOVEA_API fovea_status fovea_merge_partials(const fovea_tensor* const* partial_outs,
                                            const fovea_tensor* const* partial_lses, size_t count,
                                            const fovea_tensor* out, const fovea_tensor* lse);

// The problem of a call. `problem->struct_size` must be set.
FOVEA_API fovea_status fovea_describe_forward(const fovea_forward_tensors* tensors, const fovea_options* options,
                                              fovea_problem* problem);
FOVEA_API fovea_status fovea_describe_backward(const fovea_backward_tensors* tensors, const fovea_options* options,
                                               fovea_problem* problem);

// What the chosen implementation needs: workspace, and state saved from forward to backward.
FOVEA_API fovea_status fovea_workspace_bytes(const fovea_problem* problem, const char* implementation, int64_t* bytes);
FOVEA_API fovea_status fovea_saved_bytes(const fovea_problem* problem, const char* implementation, int64_t* bytes);

// How the implementation is chosen, as text. Writes at most `capacity` bytes, including the final zero, and sets
// `needed` (may be null) to the size of the whole text with its zero. `text` may be null if `capacity` is 0.
FOVEA_API fovea_status fovea_explain(const fovea_problem* problem, const char* implementation, char* text,
                                     size_t capacity, size_t* needed);

// A linear layer, y = x weight^T + bias, and its gradients: shapes, types and what is refused as in linear.h.
typedef struct fovea_linear_options {
  size_t struct_size;
  const char* implementation;  // a name; null or "": the first that accepts
  const fovea_external_thread_pool* thread_pool;
  const unsigned char* cancel;  // CPU; one byte, 0 until another thread sets it to 1; may be null
  void* stream;                 // CUDA; a cudaStream_t
  fovea_buffer workspace;       // at least what the functions below tell; null: the library's own pool
  int32_t threads;              // CPU; 0: the default
  int32_t reserved;             // 0
} fovea_linear_options;

typedef struct fovea_linear_forward_tensors {
  size_t struct_size;
  const fovea_tensor *x, *weight, *bias, *y;  // bias may be null
} fovea_linear_forward_tensors;

typedef struct fovea_linear_backward_tensors {
  size_t struct_size;
  const fovea_tensor *x, *weight, *dy;       // x may be null without dweight, weight without dx
  const fovea_tensor *dx, *dweight, *dbias;  // each may be null, but not all
  int32_t accumulate;                        // 1: add to dweight and dbias (fp32 only) instead of overwriting them
  int32_t accumulate_dx;                     // 1: add to dx (fp32 only)
} fovea_linear_backward_tensors;

FOVEA_API fovea_status fovea_linear_forward(const fovea_linear_forward_tensors* tensors,
                                            const fovea_linear_options* options);
FOVEA_API fovea_status fovea_linear_backward(const fovea_linear_backward_tensors* tensors,
                                             const fovea_linear_options* options);

// Bytes of workspace that the call needs, and how it would be computed: `text`, `capacity` and `needed` as
// fovea_explain.
FOVEA_API fovea_status fovea_explain_linear_forward(const fovea_linear_forward_tensors* tensors,
                                                    const fovea_linear_options* options, int64_t* workspace_bytes,
                                                    char* text, size_t capacity, size_t* needed);
FOVEA_API fovea_status fovea_explain_linear_backward(const fovea_linear_backward_tensors* tensors,
                                                     const fovea_linear_options* options, int64_t* workspace_bytes,
                                                     char* text, size_t capacity, size_t* needed);

FOVEA_API size_t fovea_implementation_count(void);
FOVEA_API const char* fovea_implementation_name(size_t index);  // best first; null past the end

FOVEA_API const char* fovea_last_error(void);  // why this thread's last failed call failed; "" if none did
FOVEA_API const char* fovea_version(void);     // of the library; FOVEA_VERSION_STRING is that of the header

#ifdef __cplusplus
}
#endif
