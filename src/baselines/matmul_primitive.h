// oneDNN's matmul primitive: the products that its sgemm does not have, bf16 pairs above all.
#pragma once

#include "baselines/products.h"

namespace fovea::baselines {

// Whether the processor multiplies bf16 pairs (AVX512_BF16, AMX_BF16) and oneDNN may use that.
bool has_bf16_products();

// Factors of one type: fp32 anywhere, bf16 if has_bf16_products(). On the calling thread alone.
void multiply_by_primitive(const Product& product);

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

}  // namespace fovea::baselines
