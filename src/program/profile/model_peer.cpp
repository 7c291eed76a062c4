// Commands of python/bench/model_worker.py: prepare, compare, step.
#include "program/profile/model_peer.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/binary_size.h"
#include "core/names.h"
#include "model/optimizer.h"
#include "program/machine/device.h"
#include "program/machine/machine.h"

namespace fovea::program {
namespace {

using Json = nlohmann::ordered_json;

// Of sums in another order, and in bf16 of other places to round. A gradient that is absent or of another function
// differs by about 1.
struct Tolerance {
  double loss, gradient;  // relative
};
constexpr Tolerance tolerance_of(DType dtype) {
  return dtype == DType::fp32 ? Tolerance{1e-5, 1e-4} : Tolerance{1e-3, 5e-2};
}

Json parameters_of(const model::ParameterMap& map) {
  Json all = Json::object();
  for (const model::Parameter& one : map.all()) all[one.name] = one.offset;
  return all;
}

double number(const Json& reply, const char* key) {
  const auto found = reply.find(key);
  return found != reply.end() && found->is_number() ? found->get<double>() : std::numeric_limits<double>::quiet_NaN();
}

std::optional<std::int64_t> bytes_of(const Json& reply, const char* key) {
  const double bytes = number(reply, key);
  if (!(bytes >= 0 && bytes < 1e15)) return std::nullopt;
  return static_cast<std::int64_t>(bytes);
}

struct Difference {
  double square = 0, of = 0, largest = 0;
  double relative() const { return of > 0 ? std::sqrt(square / of) : std::sqrt(square); }
  void add(double own, double other) {
    square += (other - own) * (other - own), of += own * own;
    largest = std::fmax(largest, std::fabs(other - own));
  }
};

}  // namespace

// In a block autograd keeps the input of each norm and what it normalised in fp32, and in the model's type: the result
// of each norm, q, k and v before and behind the rotary embedding, attention's result in two orders, gate and up,
// silu(gate) and its product with up. A block's gradients are there at once. Logits, their logarithms of probabilities
// and the gradients of both are fp32. Under autocast a bf16 copy of each weight stays until backward.
std::int64_t peer_bytes(const model::Config& c, const model::Extent& e) {
  constexpr std::int64_t kProgram = std::int64_t{1} << 30, kFloat = sizeof(float);
  const std::int64_t size = size_of(c.dtype), rows = e.rows(), parameters = model::parameter_count(c);
  const std::int64_t kept = size * (9 * c.width + 4 * c.hidden), in_fp32 = kFloat * 4 * c.width;
  const std::int64_t copies = c.dtype == DType::fp32 ? 0 : size * parameters;
  return kProgram + 4 * kFloat * parameters + copies +
         rows * ((c.layers + 1) * (kept + in_fp32) + 4 * kFloat * c.vocabulary);
}

ModelPeer::ModelPeer(const ProfilePeer& peer, const ProfileSettings& settings)
    : name_(peer.name),
      settings_(settings),
      process_({.command = peer.command, .threads = settings.threads}, inputs_) {}

void ModelPeer::compare(model::Model& model, const model::Batch& batch, const core::RunContext& context) {
  try {
    want_memory(model.map().floats() * static_cast<std::int64_t>(sizeof(float)));
    prepare(model, batch, context);
    process_.outputs().resize(model.map().floats() * static_cast<std::int64_t>(sizeof(float)));
    const Json reply = process_.call({{"command", "compare"}}, settings_.timeout);
    model::clear_gradients(model, context);
    const double own_loss = model.add_gradients(batch, 1, context);
    const std::int64_t moments = 2 * model.map().floats() * static_cast<std::int64_t>(sizeof(float));
    if (const auto peak = bytes_of(reply, "peak_bytes")) measured_bytes_ = *peak + moments;
    judge(own_loss, number(reply, "loss"), model, model.read(model::State::gradients, context));
    process_.outputs().resize(0);
  } catch (const WorkerFailure& failure) {
    fail(failure);
  } catch (const Error& error) {  // memory for weights and gradients
    if (error.status() != Status::out_of_memory) throw;
    fail({"oom", error.what()});
  }
  if (failed()) process_.kill();
}

void ModelPeer::leave_out(std::int64_t wanted_bytes, std::int64_t free_bytes) {
  fail({"oom",
        "with its model the run wants " + core::binary_size(wanted_bytes) + ", free " + core::binary_size(free_bytes)});
  process_.kill();
}

// Two arrays of all parameters at once on their way from or to the worker, which has weights and gradients too. Linux
// may end this process if it asks for more than there is.
void ModelPeer::want_memory(std::int64_t parameter_bytes) const {
  const std::int64_t wanted = (settings_.device.kind == DeviceKind::cpu ? 4 : 2) * parameter_bytes;
  const std::int64_t free = free_bytes(DeviceKind::cpu);
  if (wanted > free)
    throw WorkerFailure{
        "oom", "wants " + core::binary_size(wanted) + " beside this library's model, free " + core::binary_size(free)};
}

// The worker copies the weights, so that their block can be given back.
void ModelPeer::prepare(model::Model& model, const model::Batch& batch, const core::RunContext& context) {
  const model::Config& c = model.config();
  const std::vector<float> weights = model.read(model::State::weights, context);
  const auto bytes = static_cast<std::int64_t>(weights.size() * sizeof(float));
  const auto token_bytes = static_cast<std::int64_t>(batch.tokens.size_bytes());
  inputs_.resize(bytes + 2 * token_bytes);
  std::memcpy(inputs_.data(), weights.data(), static_cast<std::size_t>(bytes));
  std::memcpy(inputs_.data() + bytes, batch.tokens.data(), batch.tokens.size_bytes());
  std::memcpy(inputs_.data() + bytes + token_bytes, batch.targets.data(), batch.targets.size_bytes());
  const model::AdamW optimizer;
  const Json reply = process_.call({{"command", "prepare"},
                                    {"layers", c.layers},
                                    {"width", c.width},
                                    {"heads", c.heads},
                                    {"hidden", c.hidden},
                                    {"vocabulary", c.vocabulary},
                                    {"theta", c.theta},
                                    {"epsilon", c.epsilon},
                                    {"batch", model.extent().batch},
                                    {"length", model.extent().length},
                                    {"threads", settings_.threads},
                                    {"dtype", core::name_of(c.dtype)},
                                    {"device", core::name_of(settings_.device.kind)},
                                    {"floats", model.map().floats()},
                                    {"parameters", parameters_of(model.map())},
                                    {"learning_rate", kProfileLearningRate},
                                    {"betas", {optimizer.beta1, optimizer.beta2}},
                                    {"adam_epsilon", optimizer.epsilon},
                                    {"weight_decay", optimizer.weight_decay},
                                    {"largest_norm", optimizer.largest_norm}},
                                   settings_.timeout);
  const auto named = reply.find("peer");
  framework_ = named != reply.end() && named->is_string() ? named->get<std::string>() : name_;
  inputs_.resize(0);
}

// Each parameter's gradient is judged by itself, so that a small one cannot hide behind the others.
void ModelPeer::judge(double own_loss, double loss, const model::Model& model, const std::vector<float>& own) {
  const Tolerance tolerance = tolerance_of(model.config().dtype);
  const auto* const theirs = reinterpret_cast<const float*>(process_.outputs().data());
  const double none = std::numeric_limits<double>::quiet_NaN();
  const double loss_error = std::fabs(loss - own_loss) / std::fabs(own_loss);
  error_["loss against fovea"] = {loss_error, std::fabs(loss - own_loss), none};
  if (!(loss_error <= tolerance.loss))
    return fail({"mismatch", fmt::format("its loss is {:.9g}, this library's {:.9g}", loss, own_loss)});
  ErrorFigures& worst = error_["gradients against fovea"] = {0, 0, none};
  for (const model::Parameter& one : model.map().all()) {
    Difference d;
    for (std::int64_t i = one.offset; i < one.offset + one.count(); ++i)
      d.add(own[static_cast<std::size_t>(i)], theirs[i]);
    worst.rel_l2 = std::fmax(worst.rel_l2, d.relative());
    worst.max_abs = std::fmax(worst.max_abs, d.largest);
    if (!(d.relative() <= tolerance.gradient))
      return fail(
          {"mismatch", fmt::format("the gradient of {} differs by {:.2g} of its norm", one.name, d.relative())});
  }
}

void ModelPeer::step(const std::string& passes, bool is_measured) {
  if (failed()) return;
  try {
    const Json reply = process_.call({{"command", "step"}, {"passes", passes}}, settings_.timeout);
    const auto seconds = reply.find("seconds");
    if (seconds == reply.end() || !seconds->is_object()) process_.refuse(reply.dump(), "no seconds");
    held_bytes_ = bytes_of(reply, "held_bytes"), peak_bytes_ = bytes_of(reply, "peak_bytes");
    for (const char* phase : {"forward", "backward", "optimizer"}) {
      if (!seconds->contains(phase)) continue;
      const double one = number(*seconds, phase);
      if (!(one > 0)) process_.refuse(reply.dump(), "no time");
      if (is_measured) seconds_[phase].push_back(one);
    }
  } catch (const WorkerFailure& failure) {
    fail(failure);
    process_.kill();
  }
}

ProfileResult ModelPeer::result(ProfileResult of_library) const {
  ProfileResult result{.row = std::move(of_library.row),
                       .problem = std::move(of_library.problem),
                       .impl = name_,
                       .peer = framework_,
                       .forward_flops = of_library.forward_flops,
                       .backward_flops = of_library.backward_flops,
                       .error = error_};
  if (failed()) {
    result.status = failure_.status, result.reason = failure_.reason;
    return result;
  }
  result.seconds = seconds_;
  if (held_bytes_ && peak_bytes_) {
    result.held_bytes = held_bytes_;
    result.more_bytes = *peak_bytes_ - *held_bytes_;
  }
  return result;
}

}  // namespace fovea::program
