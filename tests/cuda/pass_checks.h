// Runs a pass of the model on the device and on the CPU, and judges its results.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/float16.h"
#include "cuda/runtime/device_info.h"
#include "model/device_work.h"
#include "model/tiny_models.h"
#include "model_verdicts.h"

namespace fovea::cuda {

using cpu::Element;
using model::DeviceWork;
using Values = std::vector<float>;
using Exact = std::vector<double>;

// Arrays in the memory of one device.
class Arrays {
 public:
  explicit Arrays(Device device) : work_(model::work_on(device, kBytes, kTokens)) {}

  const DeviceWork& work() const { return *work_; }
  void forget() { used_ = 0; }

  template <class T>
  T* put(const std::vector<T>& values) {
    T* const to = room<T>(static_cast<std::int64_t>(values.size()));
    work_->write(to, values.data(), static_cast<std::int64_t>(values.size() * sizeof(T)), {});
    return to;
  }
  template <class T = float>
  T* room(std::int64_t count) {
    auto* const to = reinterpret_cast<T*>(static_cast<char*>(work_->memory()) + used_);
    used_ += (count * static_cast<std::int64_t>(sizeof(T)) + 255) / 256 * 256;
    return to;
  }
  // As the type, from and to fp32.
  void* put(const Values& values, Element element) {
    if (element == Element::fp32) return put(values);
    std::vector<std::uint16_t> bits;
    for (const float one : values) bits.push_back(core::float_to_bf16(one));
    return put(bits);
  }
  Values get(const void* from, std::int64_t count, Element element) const {
    if (element == Element::fp32) return get(static_cast<const float*>(from), count);
    Values values;
    for (const std::uint16_t one : get(static_cast<const std::uint16_t*>(from), count))
      values.push_back(core::bf16_to_float(one));
    return values;
  }
  template <class T = float>
  std::vector<T> get(const T* from, std::int64_t count) const {
    std::vector<T> values(static_cast<std::size_t>(count));
    work_->read(values.data(), from, count * static_cast<std::int64_t>(sizeof(T)), {});
    return values;
  }

 private:
  static constexpr std::int64_t kBytes = std::int64_t{128} << 20, kTokens = 1 << 16;
  std::unique_ptr<DeviceWork> work_;
  std::int64_t used_ = 0;
};

struct Result {
  std::string name;
  std::int64_t columns;
  Values values;
  DType dtype = DType::fp32;
};
using Results = std::vector<Result>;

class PassChecks {
 public:
  explicit PassChecks(Verdicts& verdicts) : verdicts_(verdicts) {}

  // `run` makes the same results on each device; `expected` has them in double precision.
  void check(const std::string& what, double factor, const std::vector<Exact>& expected,
             const std::function<Results(Arrays&)>& run) {
    const Results plain = results_on(host_, run), got = results_on(gpu_, run), again = results_on(gpu_, run);
    for (std::size_t i = 0; i < got.size(); ++i) {
      const auto reference = model::rows_of(expected[i], got[i].columns);
      const auto error = verification::error_of(model::rows_of(plain[i].values, got[i].columns), reference);
      const auto answer = model::rows_of(got[i].values, got[i].columns);
      verdicts_.judge(what + " " + got[i].name, model::fault_of(answer, reference, error, factor, got[i].dtype));
      verdicts_.judge(what + " " + got[i].name + " again", got[i].values == again[i].values ? "" : "other bits");
    }
  }

  // For passes that compute the same sums in the same order on all devices.
  void check_equal(const std::string& what, const std::function<Results(Arrays&)>& run) {
    const Results wanted = results_on(host_, run), got = results_on(gpu_, run);
    for (std::size_t i = 0; i < got.size(); ++i)
      verdicts_.judge(what + " " + got[i].name, got[i].values == wanted[i].values ? "" : "not the CPU's bits");
  }

 private:
  static Results results_on(Arrays& arrays, const std::function<Results(Arrays&)>& run) {
    arrays.forget();
    return run(arrays);
  }

  Verdicts& verdicts_;
  Arrays host_{Device{}}, gpu_{Device{DeviceKind::cuda, current_device()}};
};

}  // namespace fovea::cuda
