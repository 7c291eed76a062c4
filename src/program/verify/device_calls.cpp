// Copies of a case's tensors on the first GPU.
#include "program/verify/device_calls.h"

#include <algorithm>

#include "cuda/measure/device_tensors.h"

namespace fovea::program {
namespace {

using verification::CallSettings;
using verification::TensorSet;

class GpuCall final : public verification::DeviceCall {
 public:
  GpuCall(const TensorSet& host, const std::vector<std::string>& written, Pass pass, const CallSettings& settings)
      : copies_(host_views(host, written)),
        workspace_(settings.workspace),
        saved_(cuda::saved_on_device(settings.saved, pass == Pass::forward)) {
    for (std::size_t n = 0; n < host.all().size(); ++n) tensors_.add(host.all()[n].first, copies_.view(n));
  }
  const TensorSet& tensors() const override { return tensors_; }
  CallSettings settings(CallSettings on_host) const override {
    on_host.stream = cuda::checked_stream();
    on_host.workspace = workspace_.buffer();
    on_host.saved = saved_;
    return on_host;
  }
  void copy_back() override { copies_.bring_back(); }

 private:
  static std::vector<cuda::HostTensorView> host_views(const TensorSet& host, const std::vector<std::string>& written) {
    std::vector<cuda::HostTensorView> all;
    for (const auto& [name, view] : host.all())
      all.push_back({name, view, std::find(written.begin(), written.end(), name) != written.end()});
    return all;
  }

  cuda::DeviceTensors copies_;
  cuda::DeviceScratch workspace_;
  Buffer saved_;
  TensorSet tensors_;
};

}  // namespace

verification::MakeDeviceCall device_calls(DeviceKind device) {
  if (device == DeviceKind::cpu) return {};
  return [](const TensorSet& host, const std::vector<std::string>& written, Pass pass, const CallSettings& settings) {
    return std::make_unique<GpuCall>(host, written, pass, settings);
  };
}

}  // namespace fovea::program
