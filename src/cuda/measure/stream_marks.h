// Marks between the parts of what is enqueued on the default stream of the first GPU, and the device's time between
// them.
#pragma once

#include <memory>
#include <vector>

namespace fovea::cuda {

class StreamMarks {
 public:
  StreamMarks();
  ~StreamMarks();
  StreamMarks(StreamMarks&&) noexcept;
  StreamMarks& operator=(StreamMarks&&) noexcept;

  void mark();  // is reached once all earlier work has ended; the host does not wait
  // Seconds from the first mark to each of them, the first included; waits for the last. Marks then begin anew.
  std::vector<double> take();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace fovea::cuda
