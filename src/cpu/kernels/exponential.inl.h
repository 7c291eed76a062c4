// 2^x of several vectors at once: each step runs over all of them, so that their latencies overlap.
#pragma once

#include "cpu/kernels/transpose.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

template <int kCount>
FOVEA_INLINE void multiply_add_each(Vec (&p)[kCount], const Vec (&f)[kCount], float c) {
  FOVEA_UNROLL for (int i = 0; i < kCount; ++i) p[i] = fma(p[i], f[i], broadcast(c));
}

// x = 2^(x factor), to 2.7 half ulps of the rounded product. The product is at most 128; very negative ones give 0. NaN
// for NaN. x factor = whole + f, |f| <= 1/2, minimax polynomial in f whose value at 0 is exactly 1.
template <int kCount>
FOVEA_INLINE void exp2_each(Vec (&x)[kCount], Vec factor) {
  Vec power[kCount], p[kCount];
  FOVEA_UNROLL for (int i = 0; i < kCount; ++i) x[i] = split_exponent(mul(x[i], factor), power[i]);
  FOVEA_UNROLL for (int i = 0; i < kCount; ++i)
    p[i] = fma(broadcast(0.001326472731307149f), x[i], broadcast(0.009671512991189957f));
  multiply_add_each(p, x, 0.05550733581185341f);
  multiply_add_each(p, x, 0.24022242426872253f);
  multiply_add_each(p, x, 0.6931470036506653f);
  multiply_add_each(p, x, 1.0f);
  FOVEA_UNROLL for (int i = 0; i < kCount; ++i) x[i] = multiply_by_power(p[i], power[i]);
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET
