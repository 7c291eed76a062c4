// oneDNN's products: sgemm, and the matmul primitive, which also multiplies bf16 pairs.
#pragma once

#include "linear/product.h"

namespace fovea::linear::blas {

// Whether the processor has AVX-512, multiplies bf16 pairs (AVX512_BF16, AMX_BF16), or has AMX_BF16, and oneDNN may use
// that.
bool has_avx512();
bool has_bf16_products();
bool has_amx_products();

// Operands of one type, c in fp32 or theirs: fp32 anywhere; bf16 if has_bf16_products() and k is a multiple of
// kBf16Depth (on AMX, oneDNN's matmul faults on some other lengths, oneDNN issue 1661, and a value that is not finite
// reaches rows that do not see it, issue 5717). `threads`: of OpenMP, the calling one among them.
inline constexpr std::int64_t kBf16Depth = 32;
void multiply_by_primitive(const BatchedProduct& product, int threads = 1);

// fp32 only.
void multiply_by_sgemm(const BatchedProduct& product, int threads = 1);

// While it lives, oneDNN called from this thread uses so many: it takes as many as OpenMP would give.
class OmpThreads {
 public:
  explicit OmpThreads(int threads);
  ~OmpThreads();
  OmpThreads(const OmpThreads&) = delete;
  OmpThreads& operator=(const OmpThreads&) = delete;

 private:
  int before_;
};

}  // namespace fovea::linear::blas
