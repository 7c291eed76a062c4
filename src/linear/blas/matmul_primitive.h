// oneDNN's matmul primitive: the products that its sgemm does not have, bf16 pairs above all.
#pragma once

#include "linear/product.h"

namespace fovea::linear::blas {

// Whether the processor multiplies bf16 pairs (AVX512_BF16, AMX_BF16) and oneDNN may use that.
bool has_bf16_products();

// Operands of one type, c in fp32 or theirs: fp32 anywhere; bf16 if has_bf16_products() and k is a multiple of
// kBf16Depth (on AMX, oneDNN's matmul faults on some other lengths, oneDNN issue 1661, and a value that is not finite
// reaches rows that do not see it, issue 5717). On the calling thread alone.
inline constexpr std::int64_t kBf16Depth = 32;
void multiply_by_primitive(const BatchedProduct& product);

// While it lives, oneDNN called from this thread uses no other: it takes as many as OpenMP would give.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

}  // namespace fovea::linear::blas
