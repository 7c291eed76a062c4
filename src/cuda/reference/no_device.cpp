// Built instead of this folder where FOVEA_CUDA is off.
#include "core/check.h"
#include "cuda/reference/chosen_rows.h"

namespace fovea::cuda::reference {
namespace {

[[noreturn]] void refuse() {
  core::fail({.status = Status::unsupported, .call = "cuda", .problem = "no device: this build has no CUDA backend"});
}

}  // namespace

ForwardRows forward_rows(const AttentionProblem&, const ForwardTensors&, const std::vector<Row>&) { refuse(); }
BackwardRows backward_rows(const AttentionProblem&, const BackwardTensors&, const std::vector<Row>&,
                           const std::vector<Row>&) {
  refuse();
}

}  // namespace fovea::cuda::reference
