// A model's work on the CPU: every call has ended when it returns.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/memory.h"
#include "model/device_work.h"
#include "model/row_passes.h"

namespace fovea::model {
namespace {

using core::RunContext;

class HostWork final : public DeviceWork {
 public:
  explicit HostWork(std::int64_t bytes) : block_(bytes, "model") {}

  void* memory() const override { return block_.data(); }

  void clear(void* to, std::int64_t bytes, const RunContext&) const override {
    std::memset(to, 0, static_cast<std::size_t>(bytes));
  }
  void write(void* to, const void* from, std::int64_t bytes, const RunContext&) const override {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  void read(void* to, const void* from, std::int64_t bytes, const RunContext&) const override {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }
  void wait(const RunContext&) const override {}
  void send(std::int32_t* to, const Batch& batch, const RunContext&) override {
    std::ranges::copy(batch.targets, std::ranges::copy(batch.tokens, to).out);
  }

  void rms_norm(const cpu::RmsNormTask& t, const RunContext& c) const override { model::rms_norm(t, c); }
  void rms_norm_backward(const cpu::RmsNormBackwardTask& t, float* partials, const RunContext& c) const override {
    model::rms_norm_backward(t, partials, c);
  }
  void swiglu(const cpu::SwigluTask& t, const RunContext& c) const override { model::swiglu(t, c); }
  void swiglu_backward(const cpu::SwigluBackwardTask& t, const RunContext& c) const override {
    model::swiglu_backward(t, c);
  }
  void gather(const cpu::GatherTask& t, const RunContext& c) const override { model::gather(t, c); }
  void scatter(const cpu::ScatterTask& t, const RunContext& c) const override { model::scatter(t, c); }
  void cross_entropy(const cpu::CrossEntropyTask& t, const RunContext& c) const override { model::cross_entropy(t, c); }
  void round(std::uint16_t* to, const float* from, std::int64_t count, const RunContext& c) const override {
    model::round(to, from, count, c);
  }

  void update(const Update& u, const RunContext& c) const override {
    const double norm = norm_of(u.gradients, c);
    const double factor = norm > u.largest_norm ? u.largest_norm / norm : 1.0;
    *u.clipping = {norm, factor};
    if (!std::isfinite(norm)) return;
    std::vector<cpu::AdamWTask> tasks(u.tasks.begin(), u.tasks.end());
    for (cpu::AdamWTask& task : tasks) task.gradient_factor = static_cast<float>(factor);
    adamw(tasks, c);
  }

 private:
  // A model is large. Kept in the cache of workspaces, its block would still be there beside the next model's.
  struct GivesBack {
    ~GivesBack() { core::release_cached_memory(); }
  } gives_back_;
  core::WorkspaceLease block_;  // destroyed before gives_back_, so in the cache by then
};

}  // namespace

std::unique_ptr<DeviceWork> work_on_host(std::int64_t bytes) { return std::make_unique<HostWork>(bytes); }

}  // namespace fovea::model
