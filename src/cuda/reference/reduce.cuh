// Values of all threads of a thread block, combined into one.
#pragma once

#include <cuda_runtime_api.h>

namespace fovea::cuda::reference {

constexpr int kReducedThreads = 256;  // of every thread block that calls reduce

template <class Number>
__device__ Number larger(Number a, Number b) {
  return a < b ? b : a;  // b is ignored if it is NaN
}

template <class Number>
__device__ Number sum_of(Number a, Number b) {
  return a + b;
}

// Combines the values of all threads and returns the result to each. The order is fixed, so every run gives the same
// bits.
template <class Number>
__device__ Number reduce(Number value, Number (*combine)(Number, Number)) {
  __shared__ Number values[kReducedThreads];
  values[threadIdx.x] = value;
  __syncthreads();
  for (int step = kReducedThreads / 2; step > 0; step /= 2) {
    if (threadIdx.x < step) values[threadIdx.x] = combine(values[threadIdx.x], values[threadIdx.x + step]);
    __syncthreads();
  }
  const Number all = values[0];
  __syncthreads();  // the next reduction writes where others still read
  return all;
}

}  // namespace fovea::cuda::reference
