// Where the time of a sweep goes: a sum of seconds for each kind of work.
#pragma once

#include <chrono>

namespace fovea::program {

struct SpentSeconds {
  double inputs = 0;    // filling them
  double runs = 0;      // starting workers, their first runs, copies to and from a device
  double checks = 0;    // expected results and comparisons
  double sampling = 0;  // warm-up and samples
};

// Adds the time of its scope.
class SpentTime {
 public:
  explicit SpentTime(double& seconds) : seconds_(seconds) {}
  ~SpentTime() { seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }
  SpentTime(const SpentTime&) = delete;
  SpentTime& operator=(const SpentTime&) = delete;

 private:
  double& seconds_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace fovea::program
