// Built instead of this folder where FOVEA_CUDA is off.
#include "core/check.h"
#include "cuda/reference/chosen_rows.h"
#include "cuda/reference/layers.h"

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

void product(const HostMatrix<double>&, const HostMatrix<double>&, const HostMatrix<double>&, double*) { refuse(); }
void product(const HostMatrix<double>&, const HostMatrix<float>&, double*) { refuse(); }
void product(const HostMatrix<float>&, const HostMatrix<float>&, const HostMatrix<float>&, const PlainForm&, float*) {
  refuse();
}
void attend(const AttentionProblem&, const HostHeads<double>&, double*) { refuse(); }
void attend_backward(const AttentionProblem&, const HostHeads<double>&, const HostGradients<double>&) { refuse(); }
void attend(const AttentionProblem&, const HostHeads<float>&, const PlainForm&, float*) { refuse(); }
void attend_backward(const AttentionProblem&, const HostHeads<float>&, const PlainForm&, const PlainForm*,
                     const HostGradients<float>&) {
  refuse();
}

}  // namespace fovea::cuda::reference
