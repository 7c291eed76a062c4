// 2^x of several vectors at once: each step runs over all of them, so that their latencies overlap.
#pragma once

#include "cpu/kernels/transpose.inl.h"

namespace fovea::cpu::FOVEA_TARGET {
namespace {

template <int kCount>
FOVEA_INLINE void multiply_add_each(Vec (&p)[kCount], const Vec (&f)[kCount], float c) {
  FOVEA_UNROLL for (int i = 0; i < kCount; ++i) p[i] = fma(p[i], f[i], broadcast(c));
}

// Minimax polynomials of 2^f whose value at 0 is exactly 1: for f in [0, 1), and for |f| <= 1/2.
struct Exp2Terms {
  float f1, f2, f3, f4, f5;
};
constexpr Exp2Terms kExp2Terms = kRestIsPositive
                                     ? Exp2Terms{0.6931513118046007f, 0.2401644501550961f, 0.05579991310371693f,
                                                 0.009017030322467688f, 0.001867130069866775f}
                                     : Exp2Terms{0.6931470036506653f, 0.24022242426872253f, 0.05550733581185341f,
                                                 0.009671512991189957f, 0.001326472731307149f};

// x = 2^x, to 2.7 half ulps. x is at most 128; very negative x give 0. NaN for NaN.
template <int kCount>
FOVEA_INLINE void exp2_each(Vec (&x)[kCount]) {
  Vec power[kCount], p[kCount];
  FOVEA_UNROLL for (int i = 0; i < kCount; ++i) x[i] = split_exponent(x[i], power[i]);
  FOVEA_UNROLL for (int i = 0; i < kCount; ++i) p[i] = fma(broadcast(kExp2Terms.f5), x[i], broadcast(kExp2Terms.f4));
  multiply_add_each(p, x, kExp2Terms.f3);
  multiply_add_each(p, x, kExp2Terms.f2);
  multiply_add_each(p, x, kExp2Terms.f1);
  multiply_add_each(p, x, 1.0f);
  FOVEA_UNROLL for (int i = 0; i < kCount; ++i) x[i] = multiply_by_power(p[i], power[i]);
}

}  // namespace
}  // namespace fovea::cpu::FOVEA_TARGET
