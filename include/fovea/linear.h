// A linear layer, forward and backward: y = x weight^T + bias, dx = dy weight, dweight = dy^T x. dbias is the sum of
// dy's rows.
//
// Shapes: x and dx [batch, heads_in, len, dim_in], y and dy [batch, heads_out, len, dim_out]. Each is a matrix with
// rows (batch, len) and columns (heads, dim). So a projection writes where attention reads, whatever the strides.
// weight and dweight [1, 1, heads_out * dim_out, heads_in * dim_in], bias and dbias [1, 1, 1, heads_out * dim_out]. A
// plain matrix is [1, 1, rows, columns].
// Sums are fp32; fp32 inputs are multiplied as fp32, without TF32. Results are rounded once. Any size may be 0.
#pragma once

#include <string_view>

#include "fovea/attention.h"

namespace fovea {

struct LinearOptions {
  std::string_view implementation = {};             // a name of linear_implementations(); empty: chosen automatically
  int threads = 0;                                  // CPU; 0: as many as thread_pool has, or default_threads()
  const ExternalThreadPool* thread_pool = nullptr;  // CPU; null: the library's own pool
  const std::atomic<bool>* cancel = nullptr;        // CPU; polled once per tile
  void* stream = nullptr;                           // CUDA; a cudaStream_t: see AttentionOptions
  Buffer workspace = {};                            // at least workspace_bytes(); null: the library's own pool
  const Plan* plan = nullptr;                       // of prepare() for this very problem; null: chosen by the call
};

struct LinearForwardTensors {
  TensorView x = {}, weight = {};  // of one type; the rows of weight do not overlap
  TensorView bias = {};            // optional, of the same type
  MutableTensorView y = {};        // of the inputs' type, or fp32
};

struct LinearBackwardTensors {
  TensorView x = {};                                    // needed for dweight
  TensorView weight = {};                               // needed for dx
  TensorView dy = {};                                   // of the type of x and weight
  MutableTensorView dx = {}, dweight = {}, dbias = {};  // at least one; of the inputs' type or fp32, dbias as dweight
  bool accumulate = false;                              // add to dweight and dbias, which must be fp32
  bool accumulate_dx = false;                           // add to dx, which must be fp32
};

// The properties of a call that decide its implementation, without pointers. Build one with `describe` or by hand.
struct LinearProblem {
  Pass pass = Pass::forward;
  std::int64_t batch = 1, len = 1;
  std::int64_t heads_in = 1, dim_in = 1;
  std::int64_t heads_out = 1, dim_out = 1;
  DType dtype = DType::fp32;            // of x, weight, bias, dy
  DType result_dtype = DType::fp32;     // of y or dx
  DType parameter_dtype = DType::fp32;  // of dweight and dbias
  Device device{};
  bool bias = false;
  bool wants_dx = true, wants_dweight = true, wants_dbias = false;
  bool accumulate = false, accumulate_dx = false;
  bool copies_x = false, copies_dy = false;  // strides that products cannot read: the workspace holds a copy

  std::int64_t rows() const { return batch * len; }
  std::int64_t columns_in() const { return heads_in * dim_in; }
  std::int64_t columns_out() const { return heads_out * dim_out; }
  bool operator==(const LinearProblem&) const = default;
};

// Two floating-point operations for each multiply-add of the products that are wanted: y, dx, dweight.
FOVEA_API double flops(const LinearProblem& problem);

// Bytes if every input is read once and every output written once; accumulated gradients are read too.
FOVEA_API double bytes(const LinearProblem& problem);

// Both throw Error as attention_forward does (attention.h), and give the same bits for any number of threads.
FOVEA_API void linear_forward(const LinearForwardTensors& tensors, const LinearOptions& options = {});
FOVEA_API void linear_backward(const LinearBackwardTensors& tensors, const LinearOptions& options = {});

// The problem of a call with these tensors and options. Throws Error with status invalid_argument.
FOVEA_API LinearProblem describe(const LinearForwardTensors& tensors, const LinearOptions& options = {});
FOVEA_API LinearProblem describe(const LinearBackwardTensors& tensors, const LinearOptions& options = {});

// Chooses an implementation for the problem and plans its runs, for LinearOptions::plan. A call refuses a plan of
// another problem, device or implementation (invalid_argument). Throws Error as workspace_bytes does.
FOVEA_API Plan prepare(const LinearProblem& problem, std::string_view implementation = {});

// Workspace that the chosen implementation needs, in bytes. Throws as attention's function does (attention.h).
FOVEA_API std::int64_t workspace_bytes(const LinearProblem& problem, std::string_view implementation = {});

// How the implementation of one problem is chosen (attention.h).
FOVEA_API Explanation explain(const LinearProblem& problem, std::string_view implementation = {});

// The implementations of Linear, in the order in which they are asked. The first that is `automatic` and takes a
// problem leads (Explanation in attention.h).
FOVEA_API std::vector<ImplementationInfo> linear_implementations();

}  // namespace fovea
