// Takes the shortest of a few runs in turns, so that a disturbance does not decide.
#include "linear/blas/faster_library.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "core/hash.h"
#include "core/plan_cache.h"

namespace fovea::linear::blas {
namespace {

constexpr std::size_t kMostKept = 1024;

// A shape that a FasterLibrary was asked for.
struct Known {
  const FasterLibrary* of;
  std::array<std::int64_t, 5> shape;  // m, n, k, row strides
  Multiply faster;

  template <class Request>
  bool answers(const Request& request) const {
    return of == request.of && shape == request.shape;
  }
};

}  // namespace

Multiply FasterLibrary::for_shape_of(const BatchedProduct& p) {
  const std::int64_t a = p.a.row_stride, b = p.b.row_stride;
  const struct {
    const FasterLibrary* of;
    Shape shape;
    std::size_t hash;
  } request{this, {p.m, p.n, p.k, a, b}, core::hash_of(this, p.m, p.n, p.k, a, b)};
  const auto make = [&] {
    const Multiply known = decided(request.shape);
    const Multiply faster = known != nullptr ? known : decide(request.shape, timed(p));
    return std::make_shared<Known>(Known{this, request.shape, faster});
  };
  return core::PlanCache<Known, kMostKept>::instance().find(request, make)->faster;
}

Multiply FasterLibrary::decided(const Shape& shape) const {
  const std::lock_guard lock(mutex_);
  const auto found = faster_.find(shape);
  return found == faster_.end() ? nullptr : found->second;
}

Multiply FasterLibrary::decide(const Shape& shape, Multiply faster) {
  const std::lock_guard lock(mutex_);
  if (faster_.size() >= kMostKept) faster_.clear();
  return faster_.emplace(shape, faster).first->second;
}

Multiply FasterLibrary::timed(const BatchedProduct& product) const {
  constexpr int kRuns = 5;
  double first = time_(first_, product), second = time_(second_, product);
  for (int run = 1; run < kRuns; ++run) {
    first = std::min(first, time_(first_, product));
    second = std::min(second, time_(second_, product));
  }
  return first < second ? first_ : second_;
}

double time_product(Multiply library, const BatchedProduct& product) {
  constexpr std::int64_t kMostDepth = 1024;  // as fast per element as any longer sum
  std::vector<float> sums(static_cast<std::size_t>(product.m * product.n));
  BatchedProduct timed = product;
  timed.k = std::min(product.k, kMostDepth);
  timed.beta = 0.0f;
  timed.c = {sums.data(), DType::fp32, product.n};
  const auto start = std::chrono::steady_clock::now();
  library(timed);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace fovea::linear::blas
