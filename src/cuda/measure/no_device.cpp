// Replaces this folder in builds without CUDA: no devices, no memory, nothing to measure.
#include "core/check.h"
#include "cuda/measure/call_timer.h"
#include "cuda/measure/device_ceilings.h"
#include "cuda/measure/device_facts.h"
#include "cuda/measure/device_memory.h"
#include "cuda/measure/device_tensors.h"
#include "cuda/measure/nvtx_ranges.h"
#include "cuda/measure/stream_marks.h"
#include "cuda/measure/stream_timer.h"

namespace fovea::cuda {
namespace {

[[noreturn]] void refuse() {
  core::fail({.status = Status::unsupported, .call = "cuda", .problem = "no device: this build has no CUDA backend"});
}

}  // namespace

struct StreamTimer::Impl {};
struct CallTimer::Impl {};

DeviceMemory::DeviceMemory(std::int64_t) { refuse(); }
DeviceMemory::~DeviceMemory() = default;
void DeviceMemory::poison() { refuse(); }
void DeviceMemory::upload(const void*) { refuse(); }
void DeviceMemory::download(void*) const { refuse(); }
std::int64_t free_device_bytes() { return 0; }
std::int64_t workspace_peak() { return 0; }
void reset_workspace_peak() {}
void give_workspaces_back() {}

std::vector<DeviceFacts> device_facts() { return {}; }
std::string driver_text() { return ""; }
double datasheet_flops(const DeviceFacts&, DType) { return 0; }
DeviceState device_state() { return {}; }

StreamTimer::StreamTimer(Timing) { refuse(); }
StreamTimer::~StreamTimer() = default;
const char* StreamTimer::name() const { return ""; }
void* StreamTimer::stream() const { return nullptr; }
StreamTimer::Samples StreamTimer::sample(const std::function<void()>&, int, int) { refuse(); }

CallTimer::CallTimer(bool) { refuse(); }
CallTimer::~CallTimer() = default;
void* CallTimer::stream() const { return nullptr; }
CallTimer::Samples CallTimer::sample(const std::function<void()>&, const std::function<void()>&, int, int) { refuse(); }

struct StreamMarks::Impl {};
StreamMarks::StreamMarks() { refuse(); }
StreamMarks::~StreamMarks() = default;
StreamMarks::StreamMarks(StreamMarks&&) noexcept = default;
StreamMarks& StreamMarks::operator=(StreamMarks&&) noexcept = default;
void StreamMarks::mark() { refuse(); }
std::vector<double> StreamMarks::take() { refuse(); }

void begin_range(const char*) {}
void end_range() {}

double product_flops(DType, double) { return 0; }
double copy_bandwidth() { return 0; }

class DeviceTensors::Copy {};
DeviceTensors::DeviceTensors(const std::vector<HostTensorView>&) { refuse(); }
DeviceTensors::~DeviceTensors() = default;
MutableTensorView DeviceTensors::view(std::size_t) const { return {}; }
void DeviceTensors::bring_back() const { refuse(); }
DeviceScratch::DeviceScratch(const Buffer&) : bytes_(0) { refuse(); }
DeviceScratch::~DeviceScratch() = default;
Buffer saved_on_device(const Buffer&, bool) { return {}; }
void* checked_stream() { return nullptr; }
bool device_lost() { return false; }

}  // namespace fovea::cuda
