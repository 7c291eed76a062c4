// Which of two libraries multiplies faster: either may take twice the other's time, depending on shape and machine.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include "core/fork_safe_mutex.h"
#include "linear/product.h"

namespace fovea::linear::blas {

using Multiply = void (*)(const BatchedProduct&);

// Keeps a choice for each shape (sizes and row strides): what is faster for one shape may be slower for another. Never
// destroyed (core/never_destroyed.h).
class FasterLibrary {
 public:
  // Multiplies once and returns the seconds. Leaves the product's c as it is.
  using Time = double (*)(Multiply library, const BatchedProduct& product);

  FasterLibrary(Multiply first, Multiply second, Time time) : first_(first), second_(second), time_(time) {}

  // Times both at the first product of a shape. Threads that come meanwhile time them too, so none waits for another,
  // which a child of fork() may lack; the first to end decides for all. A thread that knows the shape takes no lock
  // (core/plan_cache.h).
  Multiply for_shape_of(const BatchedProduct& product);

 private:
  using Shape = std::array<std::int64_t, 5>;

  Multiply decided(const Shape& shape) const;  // null if no thread has timed it
  Multiply timed(const BatchedProduct& product) const;
  Multiply decide(const Shape& shape, Multiply faster);  // the earlier decision if there is one

  Multiply first_, second_;
  Time time_;
  mutable core::ForkSafeMutex mutex_;
  std::map<Shape, Multiply> faster_;
};

double time_product(Multiply library, const BatchedProduct& product);

}  // namespace fovea::linear::blas
