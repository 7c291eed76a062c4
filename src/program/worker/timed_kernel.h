// What a worker times: one of our implementations, or a C function of somebody's shared object.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "fovea/attention.h"
#include "verification/attention/case.h"

namespace fovea::program {

class TimedKernel {
 public:
  virtual ~TimedKernel() = default;

  struct Setup {
    std::string implementation;
    int threads = 1;
    void* stream = nullptr;    // of a GPU
    bool may_allocate = true;  // false: calls are captured in a graph
    ForwardTensors forward;    // the views stay valid until the next prepare
    BackwardTensors backward;  // all null in a case of pass fwd
  };
  virtual void prepare(const verification::AttentionCase& c, const Setup& setup) = 0;
  virtual void forward() = 0;   // for a backward that follows, or for its own sake in a case of pass fwd
  virtual void backward() = 0;  // wants an earlier forward()

  // Whether prepare() made a workspace for the calls; from now on they take it, or one of the library's pool instead.
  virtual bool has_workspace() const { return false; }
  virtual void use_pool(bool) {}

  virtual bool is_ours() const { return false; }  // one of the library's list

  // Counted while the calls ran; nothing where it cannot be known.
  virtual std::optional<std::int64_t> workspace_bytes() const { return std::nullopt; }
  virtual std::optional<std::int64_t> saved_bytes() const { return std::nullopt; }
};

// "./libmine.so:symbol" gives a kernel of that shared object, anything else one that calls the library.
std::unique_ptr<TimedKernel> make_kernel(const std::string& spec);

}  // namespace fovea::program
