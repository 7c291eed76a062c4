// The kernels of a transformer beside products and attention: norm, SwiGLU, token rows, loss, optimizer. All matrices
// are dense [rows, columns]; those that are void* have the task's `element`, fp32 or bf16. The same rules as in
// kernels.h hold for this header.
#pragma once

#include <stdint.h>

#include "cpu/kernels/element.h"

namespace fovea::cpu {

// y = x * inverse * weight, inverse = 1 / sqrt(mean of a row's x^2 + epsilon). Zhang, Sennrich, arXiv 1910.07467.
struct RmsNormTask {
  const float* x;
  const void* branch;   // added to x first; null: none
  float* sum;           // x + branch; not written without a branch
  const float* weight;  // [columns]
  void* y;
  float* inverse;  // [rows]
  int64_t rows, columns;
  float epsilon;
  Element element = Element::fp32;
};

// dx = inverse * (g - x * inverse^2 * mean of a row's g * x), g = dy * weight.
struct RmsNormBackwardTask {
  const float *x, *weight, *inverse;
  const void* dy;
  float* dx;
  bool accumulate;  // add to dx
  float* dweight;   // [columns]: the sum over these rows
  int64_t rows, columns;
  float epsilon;  // that `inverse` has; for devices that compute it again
  Element element = Element::fp32;
  uint16_t* rounded = nullptr;  // dx once more, in bf16; null: not wanted
  // Add the sum over all rows to what dweight holds. A kernel on the CPU has only some of the rows: it always writes
  // its own sum, and the caller adds.
  bool accumulate_dweight = false;
};

// out = silu(gate) * up, silu(a) = a / (1 + exp(-a)). A row holds its gates, then its ups. Shazeer, arXiv 2002.05202.
struct SwigluTask {
  const void* gate_up;  // [rows, 2 columns]
  void* out;            // [rows, columns]
  int64_t rows, columns;
  Element element = Element::fp32;
};

struct SwigluBackwardTask {
  const void *gate_up, *dout;
  void* dgate_up;  // may be gate_up
  int64_t rows, columns;
  Element element = Element::fp32;
  void* out = nullptr;  // what forward wrote, once more; may be dout. Null: not wanted
};

// rows[i] = table[tokens[i]].
struct GatherTask {
  const float* table;
  const int32_t* tokens;
  float* rows;
  int64_t count, columns;
};

// dtable[tokens[i]] += drows[i] for these columns, in the order of i.
struct ScatterTask {
  const float* drows;
  const int32_t* tokens;
  float* dtable;
  int64_t count, stride;  // floats from one row to the next, of both
  int64_t first_column, columns;
};

struct RowLoss {
  float maximum, sum, logit;  // loss = log(sum of exp(x - maximum)) + (maximum - the target's logit)
};

// Softmax and cross-entropy. If `gradient` is not 0, logits become gradient * (softmax - one at the target). As bf16
// the gradient of a row fills the first half of the row's memory.
struct CrossEntropyTask {
  float* logits;
  const int32_t* targets;  // [rows]
  RowLoss* losses;         // [rows]
  int64_t rows, columns;
  float gradient;
  Element element = Element::fp32;  // of the gradient
};

// Loshchilov, Hutter, "Decoupled Weight Decay Regularization", arXiv 1711.05101, algorithm 2, for step t.
struct AdamWTask {
  float *weight, *m, *v;
  const float* gradient;
  int64_t count;
  float gradient_factor;  // of clipping
  float rest1, rest2;     // 1 - beta1, 1 - beta2
  float beta2;
  float step_size;  // learning rate / (1 - beta1^t)
  float v_factor;   // 1 / sqrt(1 - beta2^t)
  float epsilon;
  float decay;                  // 1 - learning rate * weight decay
  uint16_t* rounded = nullptr;  // the new weights as bf16; null: not wanted
  bool streams = false;         // a CPU writes `rounded` past its caches, if it begins at a multiple of 32 bytes
};

struct ModelKernels {
  void (*rms_norm)(const RmsNormTask&);
  void (*rms_norm_backward)(const RmsNormBackwardTask&);
  void (*swiglu)(const SwigluTask&);
  void (*swiglu_backward)(const SwigluBackwardTask&);
  void (*gather)(const GatherTask&);
  void (*scatter)(const ScatterTask&);
  void (*cross_entropy)(const CrossEntropyTask&);
  float (*sum_of_squares)(const float* x, int64_t count);
  void (*adamw)(const AdamWTask&);
};

}  // namespace fovea::cpu
