// The floating-point mode that calls compute in: rounding to nearest, subnormal numbers kept, no traps.
#pragma once

#if !defined(__x86_64__)
#include <cfenv>
#endif

namespace fovea::core {

// Sets the thread's mode to the default and restores the former mode at the end.
class DefaultFloatingPoint {
 public:
#if defined(__x86_64__)
  DefaultFloatingPoint() : before_(__builtin_ia32_stmxcsr()) {
    if (changed()) __builtin_ia32_ldmxcsr(kDefault);
  }
  ~DefaultFloatingPoint() {
    if (changed()) __builtin_ia32_ldmxcsr(before_);
  }
#else
  DefaultFloatingPoint() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatingPoint() { std::fesetenv(&before_); }
#endif
  DefaultFloatingPoint(const DefaultFloatingPoint&) = delete;
  DefaultFloatingPoint& operator=(const DefaultFloatingPoint&) = delete;

 private:
#if defined(__x86_64__)
  static constexpr unsigned kDefault = 0x1f80, kFlags = 0x3f;  // of the control and status register MXCSR
  bool changed() const { return (before_ & ~kFlags) != kDefault; }
  unsigned before_;
#else
  std::fenv_t before_;
#endif
};

}  // namespace fovea::core
