// The C interface to attention.h, linear.h and layers.h, with plain structs and status codes. C99. Plans that the
// caller keeps (prepare) exist in C++ only.
//
// Every struct that is passed by address starts with its size, which tells the version of this header that the caller
// was compiled with. Write `fovea_options options = {.struct_size = sizeof options};`: the rest is zero, the default.
// Structs grow at their end. A caller with an older header runs on a newer library: fields that it lacks count as zero.
// A caller with a newer header runs on an older library as long as the fields that the library lacks are zero. A
// function that fills a struct writes at most struct_size bytes. A struct_size above 4096 is refused, whatever the
// struct holds: it was not set. Before version 1 a new minor version may break this.
// The library keeps no pointer to a struct after a call returns.
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

// See Status in error.h.
typedef int32_t fovea_status;
enum {
  FOVEA_OK = 0,
  FOVEA_INVALID_ARGUMENT = 1,
  FOVEA_UNSUPPORTED = 2,
  FOVEA_OUT_OF_MEMORY = 3,
  FOVEA_CANCELLED = 4,
  FOVEA_ERROR = 5
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

// A tensor that the caller owns: see BasicTensorView in tensor.h.
typedef struct fovea_tensor {
  size_t struct_size;
  void* data;  // not written if the tensor is an input
  int32_t dtype;
  int32_t rank;  // 4
  int64_t sizes[4];
  int64_t strides[4];
  int32_t device_kind;
  int32_t device_index;
  int64_t buffer_bytes;  // bytes that may be accessed from `data` on; 0: unknown, so not checked
} fovea_tensor;

// Memory of the caller: see Buffer in attention.h. Always a member of another struct, so it has no struct_size.
typedef struct fovea_buffer {
  void* data;
  int64_t bytes;
} fovea_buffer;

// A thread pool of the caller: see ExternalThreadPool in threads.h.
typedef struct fovea_external_thread_pool {
  size_t struct_size;
  int32_t threads;  // 1 to 4096
  void* host;
  void (*run)(void* host, int64_t count, void (*task)(void* argument, int64_t index, int worker), void* argument);
} fovea_external_thread_pool;

// See AttentionOptions in attention.h.
typedef struct fovea_options {
  size_t struct_size;
  int32_t mask;
  int32_t has_scale;           // 0: scale is 1 / sqrt(dim_qk)
  double scale;                // any finite value
  const char* implementation;  // a name; null or "": chosen automatically
  int32_t threads;             // CPU; 0: the default; at most 4096
  int32_t irreproducible;      // 1 also admits implementations that are not bitwise reproducible
  const fovea_external_thread_pool* thread_pool;
  const unsigned char* cancel;  // CPU; one byte, 0 until another thread sets it to 1; may be null
  void* stream;                 // CUDA; a cudaStream_t
  fovea_buffer workspace;       // at least fovea_workspace_bytes; null: the library's own pool
  int64_t mask_left;            // windows: `left` of Mask, or FOVEA_UNLIMITED
  int64_t mask_right;           // windows: `right` of Mask, or FOVEA_UNLIMITED
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

// A problem without pointers: the fields of AttentionProblem (problem.h). irreproducible and skip_* are the opposite of
// reproducible and wants_*. `scale` has no default here: 0 makes all scores 0.
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
  int32_t unaligned;
  int32_t reserved;  // 0
} fovea_problem;

// Fills in a dense row-major fp32, bf16 or fp16 tensor in CPU memory. `tensor->struct_size` must be set.
FOVEA_API fovea_status fovea_init_dense_tensor(fovea_tensor* tensor, void* data, int32_t dtype, int64_t batch,
                                               int64_t heads, int64_t length, int64_t dim);

// `options` may be null for the defaults.
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

// Writes as text how the implementation is chosen: at most `capacity` bytes, including the final zero. Sets `needed`
// (may be null) to the size of the whole text with its zero. `text` may be null if `capacity` is 0.
FOVEA_API fovea_status fovea_explain(const fovea_problem* problem, const char* implementation, char* text,
                                     size_t capacity, size_t* needed);

// A linear layer, y = x weight^T + bias, and its gradients: shapes, types and what is refused as in linear.h.
typedef struct fovea_linear_options {
  size_t struct_size;
  const char* implementation;  // a name; null or "": chosen automatically
  const fovea_external_thread_pool* thread_pool;
  const unsigned char* cancel;  // CPU; one byte, 0 until another thread sets it to 1; may be null
  void* stream;                 // CUDA; a cudaStream_t
  fovea_buffer workspace;       // at least what fovea_explain_linear_forward or _backward tells; null: the pool
  int32_t threads;              // CPU; 0: the default; at most 4096
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

// Both set `workspace_bytes` (may be null) to what the call needs, and write as text how the implementation is chosen.
// `text`, `capacity` and `needed` are those of fovea_explain.
FOVEA_API fovea_status fovea_explain_linear_forward(const fovea_linear_forward_tensors* tensors,
                                                    const fovea_linear_options* options, int64_t* workspace_bytes,
                                                    char* text, size_t capacity, size_t* needed);
FOVEA_API fovea_status fovea_explain_linear_backward(const fovea_linear_backward_tensors* tensors,
                                                     const fovea_linear_options* options, int64_t* workspace_bytes,
                                                     char* text, size_t capacity, size_t* needed);

// Attention layers and their gradients: kinds, shapes, types and what is refused as in layers.h.
enum { FOVEA_MHA_FUSED = 0, FOVEA_MHA = 1, FOVEA_GQA = 2, FOVEA_MQA = 3, FOVEA_MLA = 4 };
// Rotary embedding, and which columns form its pairs: see rotary.h.
enum { FOVEA_ROTARY_NONE = 0, FOVEA_ROTARY_INTERLEAVED = 1, FOVEA_ROTARY_HALVES = 2 };

// See LayerOptions in layers.h.
typedef struct fovea_layer_options {
  size_t struct_size;
  int32_t kind;
  int32_t mask;
  int64_t heads_q, heads_kv;      // heads_kv 0: heads_q, or 1 for mqa; gqa must say it
  int64_t mask_left, mask_right;  // see fovea_options
  double scale;                   // any finite value
  int32_t has_scale;              // 0: scale is 1 / sqrt(dim_qk)
  int32_t threads;                // CPU; 0: the default; at most 4096
  const char* attention;          // names of implementations; null or "": chosen automatically
  const char* product;
  const fovea_external_thread_pool* thread_pool;
  const unsigned char* cancel;  // CPU; one byte, 0 until another thread sets it to 1; may be null
  void* stream;                 // CUDA; a cudaStream_t
  fovea_buffer workspace;       // at least what fovea_explain_layer_forward or _backward tells; null: the pool
  int32_t irreproducible;       // 1 also admits attention that is not bitwise reproducible
  int32_t reserved;             // 0
  int32_t rotary;
  int32_t reserved_2;                            // 0
  double rotary_theta;                           // 0: 10000
  int64_t rotary_columns;                        // 0: all
  int64_t rotary_position_q, rotary_position_k;  // of the first rows
  double epsilon;                                // of the norms; 0: 1e-6
} fovea_layer_options;

// A projection's parameters, or their gradients. Always a member of another struct, so it has no struct_size.
typedef struct fovea_projection {
  const fovea_tensor *weight, *bias;  // each may be null: see LayerForwardTensors and LayerBackwardTensors
} fovea_projection;

typedef struct fovea_layer_projections {
  size_t struct_size;
  fovea_projection qkv, q_down, q, kv_down, k, v, out;  // a kind uses those of its row in layers.h
} fovea_layer_projections;

// Weights of RMS norms, or their gradients; each may be null: see LayerNorms.
typedef struct fovea_layer_norms {
  size_t struct_size;
  const fovea_tensor *q, *k, *q_latent, *kv_latent;
} fovea_layer_norms;

// Keys and values of earlier tokens: see LayerCache.
typedef struct fovea_layer_cache {
  size_t struct_size;
  const fovea_tensor *k, *v, *latent;  // written; null where the kind has none
  int64_t length;
} fovea_layer_cache;

typedef struct fovea_layer_forward_tensors {
  size_t struct_size;
  const fovea_tensor *x, *x_kv;  // x_kv may be null
  const fovea_layer_projections* parameters;
  const fovea_tensor* y;
  fovea_buffer saved;              // optional: state for backward
  const fovea_layer_norms* norms;  // may be null
  const fovea_layer_cache* cache;  // may be null
} fovea_layer_forward_tensors;

typedef struct fovea_layer_backward_tensors {
  size_t struct_size;
  const fovea_tensor *x, *x_kv;
  const fovea_layer_projections* parameters;
  const fovea_tensor *dy, *dx, *dx_kv;       // dx and dx_kv may be null
  const fovea_layer_projections* gradients;  // may be null
  fovea_buffer saved;
  int32_t accumulate;  // 1: add to `gradients` and `norm_gradients` (fp32 only) instead of overwriting them
  int32_t reserved;    // 0
  const fovea_layer_norms *norms, *norm_gradients;  // may be null
} fovea_layer_backward_tensors;

FOVEA_API fovea_status fovea_layer_forward(const fovea_layer_forward_tensors* tensors,
                                           const fovea_layer_options* options);
FOVEA_API fovea_status fovea_layer_backward(const fovea_layer_backward_tensors* tensors,
                                            const fovea_layer_options* options);

// Both set `workspace_bytes` to what the call needs, and write as text what it consists of. `saved_bytes` is what the
// saved state needs, whether this call has it or not. Either may be null; `text`, `capacity` and `needed` are those of
// fovea_explain. `saved` of backward may have any address here, but not null.
FOVEA_API fovea_status fovea_explain_layer_forward(const fovea_layer_forward_tensors* tensors,
                                                   const fovea_layer_options* options, int64_t* workspace_bytes,
                                                   int64_t* saved_bytes, char* text, size_t capacity, size_t* needed);
FOVEA_API fovea_status fovea_explain_layer_backward(const fovea_layer_backward_tensors* tensors,
                                                    const fovea_layer_options* options, int64_t* workspace_bytes,
                                                    int64_t* saved_bytes, char* text, size_t capacity, size_t* needed);

FOVEA_API size_t fovea_implementation_count(void);
FOVEA_API const char* fovea_implementation_name(size_t index);  // of attention, as calls try them; null past the end

FOVEA_API const char* fovea_last_error(void);  // why this thread's last failed call failed; "" if none did
FOVEA_API const char* fovea_version(void);     // of the library; FOVEA_VERSION_STRING is that of the header

#ifdef __cplusplus
}
#endif
