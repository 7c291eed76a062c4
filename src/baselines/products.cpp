// Which library: measured on attention's shapes, oneDNN's sgemm is the faster one except where the first factor is
// transposed, where OpenBLAS is up to twice as fast (docs/kernels/baselines.md).
#include "baselines/products.h"

#include <cblas.h>
#include <dnnl.h>
#include <omp.h>

#include <string>

#include "core/check.h"

namespace fovea::baselines {
namespace {

void openblas(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const Factor& a, const Factor& b, float beta,
              float* c, std::int64_t c_stride) {
  [[maybe_unused]] static const bool one_thread = (openblas_set_num_threads(1), true);
  const auto size = [](std::int64_t value) { return static_cast<blasint>(value); };
  cblas_sgemm(CblasRowMajor, a.transposed ? CblasTrans : CblasNoTrans, b.transposed ? CblasTrans : CblasNoTrans,
              size(m), size(n), size(k), alpha, a.data, size(a.stride), b.data, size(b.stride), beta, c,
              size(c_stride));
}

void onednn(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const Factor& a, const Factor& b, float beta,
            float* c, std::int64_t c_stride) {
  // oneDNN takes as many threads as OpenMP would give the calling thread.
  const int threads = omp_get_max_threads();
  omp_set_num_threads(1);
  const dnnl_status_t status = dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', m, n, k, alpha, a.data,
                                          a.stride, b.data, b.stride, beta, c, c_stride);
  omp_set_num_threads(threads);
  if (status != dnnl_success)
    core::fail({.problem = "oneDNN's sgemm failed", .got = "status " + std::to_string(static_cast<int>(status))});
}

}  // namespace

void multiply(std::int64_t m, std::int64_t n, std::int64_t k, float alpha, const Factor& a, const Factor& b, float beta,
              float* c, std::int64_t c_stride) {
  (a.transposed ? openblas : onednn)(m, n, k, alpha, a, b, beta, c, c_stride);
}

}  // namespace fovea::baselines
