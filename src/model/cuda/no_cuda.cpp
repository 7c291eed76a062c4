// Built instead of the CUDA files where FOVEA_CUDA is off.
#include "core/check.h"
#include "model/cuda/work.h"

namespace fovea::model {

std::unique_ptr<DeviceWork> work_on_gpu(Device, std::int64_t, std::int64_t) {
  core::fail({.status = Status::unsupported,
              .call = "model",
              .argument = "device",
              .problem = "this build has no CUDA",
              .got = "cuda",
              .wanted = "cpu",
              .hint = "build with FOVEA_CUDA=ON"});
}

}  // namespace fovea::model
