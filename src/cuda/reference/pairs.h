// The steps of one head's attention between its products, to be enqueued. Matrices of pairs are [len_q, len_k], their
// rows are dense. Pairs that the mask hides are neither read nor written.
#pragma once

#include <cstdint>

#include "cuda/reference/device_matrix.h"
#include "cuda/reference/plain_form.h"
#include "fovea/attention.h"

namespace fovea::cuda::reference {

// Row i sees the columns from i + shift - left to i + shift + right.
struct Band {
  std::int64_t shift, left, right;
  Band transposed() const { return {-shift, right, left}; }
};
Band band_of(const AttentionProblem& problem);

// In double precision. Over scores q.k: probabilities. A NaN that a row sees makes all its probabilities NaN.
void write_softmax(const DeviceMatrix<double>& scores, const Band& band, double scale);
// Over dP: scale dS, with dS = P (dP - delta) and delta the sum of P dP over the row.
void write_score_gradients(const DeviceMatrix<double>& probabilities, const DeviceMatrix<double>& dp, const Band& band,
                           double scale);

// One head of a plain evaluation.
struct PlainPairs {
  Band band;
  PlainForm form;
  DType stored;  // P and dS are rounded to it, unless the form is fused
  float scale;
};
// Over scores: P as it is stored, before the division if the form divides last. Writes the divisor of each row's out to
// `sum`, and `lse` if it is not null; both [len_q].
void write_softmax(const PlainPairs& pairs, const DeviceMatrix<float>& scores, float* sum, float* lse);
// The same for backward, with P = exp(s - lse).
void write_softmax_of_lse(const PlainPairs& pairs, const DeviceMatrix<float>& scores, const float* lse);
// delta [len_q], the sums of out dout.
void write_delta(const PlainPairs& pairs, const DeviceMatrix<float>& out, const DeviceMatrix<float>& dout,
                 float* delta);
// Over dP: dS as it is stored; times the scale if the form is fused.
void write_score_gradients(const PlainPairs& pairs, const DeviceMatrix<float>& probabilities, const float* delta,
                           const DeviceMatrix<float>& dp);

// Adds pairs [rows, terms] times b [terms, columns] to the results: a row's terms are those that the band shows it.
void add_seen_sums(const DeviceMatrix<double>& pairs, const Band& band, const DeviceMatrix<double>& b,
                   const DeviceMatrix<double>& results);
// Sums of a fused form start from the results. Others are multiplied by the factor and added to them. Then each row is
// divided by its divisor, if there are divisors.
void add_seen_sums(const DeviceMatrix<float>& pairs, const Band& band, const DeviceMatrix<float>& b,
                   const DeviceMatrix<float>& results, const PlainForm& form, float factor,
                   const float* divisors = nullptr);

}  // namespace fovea::cuda::reference
