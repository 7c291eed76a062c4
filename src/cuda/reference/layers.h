// The parts of a layer's evaluation that take most of its time, on the first GPU: products of matrices and attention
// of all heads, in double precision or as a plain evaluation. They are checked against the CPU's.
#pragma once

#include <cstdint>

#include "cuda/reference/plain_form.h"
#include "fovea/attention.h"

namespace fovea::cuda::reference {

// Dense rows on the host; a factor of a product may be its transpose.
template <class Number>
struct HostMatrix {
  const Number* values = nullptr;
  std::int64_t rows = 0, columns = 0;
  bool is_transposed = false;
};

// All functions wait for the device and write their results to the host. They throw Error(out_of_memory), before they
// write anything, if their matrices do not fit the device.

// result = a b, plus `added` if it has rows. The plain one has the same bits as on the CPU.
void product(const HostMatrix<double>& a, const HostMatrix<double>& b, const HostMatrix<double>& added, double* result);
void product(const HostMatrix<double>& a, const HostMatrix<float>& b, double* result);
void product(const HostMatrix<float>& a, const HostMatrix<float>& b, const HostMatrix<float>& added,
             const PlainForm& form, float* result);

// Rows are (batch, len), columns are (head, dim); the problem has the sizes. Forward reads neither out nor dout; exact
// backward does not read out.
template <class Number>
struct HostHeads {
  const Number *q, *k, *v, *out = nullptr, *dout = nullptr;
};
template <class Number>
struct HostGradients {
  Number *dq, *dk, *dv;
};

void attend(const AttentionProblem& p, const HostHeads<double>& heads, double* out);
void attend_backward(const AttentionProblem& p, const HostHeads<double>& heads, const HostGradients<double>& gradients);

// Results are not rounded to the problem's result type.
void attend(const AttentionProblem& p, const HostHeads<float>& heads, const PlainForm& form, float* out);
// `form_of_lse`: the form whose forward computes the lse that backward reads. Null: backward sums the exponentials
// itself.
void attend_backward(const AttentionProblem& p, const HostHeads<float>& heads, const PlainForm& form,
                     const PlainForm* form_of_lse, const HostGradients<float>& gradients);

}  // namespace fovea::cuda::reference
