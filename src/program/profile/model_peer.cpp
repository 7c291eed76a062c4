// Commands of python/fovea_bench/model_worker.py: prepare, compare, train, step.
#include "program/profile/model_peer.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/binary_size.h"
#include "core/names.h"
#include "model/optimizer.h"
#include "model/schedule.h"
#include "program/machine/device.h"
#include "program/machine/machine.h"

namespace fovea::program {
namespace {

using Json = nlohmann::ordered_json;

// A step moves a weight by about g / (|g| + epsilon), if g is its clipped gradient. Where |g| is far above epsilon only
// its sign counts, so the few elements near 0 make the error: an error of a share d of gradients whose root mean square
// is s changes the step by about d sqrt(s / (3 epsilon)) of its norm, or by d if s is small. Gradients of a parameter
// have up to some tens of the root mean square of all, which is the epsilon of these steps.
constexpr double kStepSensitivity = 4;
// A step rounds a weight at its decay and at its sum, in both models.
constexpr std::int64_t kComparedSteps = 3;
constexpr double kRoundings = 2 * 2 * kComparedSteps * 0x1p-24;

double norm_of(const std::vector<float>& values) {
  double squares = 0;
  for (const double one : values) squares += one * one;
  return std::sqrt(squares);
}

// So that clipping, epsilon and decay all matter: AdamW alone forgets the size of gradients, and weights are small.
model::AdamW compared_optimizer(double gradient_norm, std::int64_t parameters) {
  const double clipped = gradient_norm / 2;
  return {.epsilon = clipped / std::sqrt(static_cast<double>(parameters)), .weight_decay = 10, .largest_norm = clipped};
}

constexpr model::Schedule kComparedSchedule{
    .largest = kProfileLearningRate, .least = kProfileLearningRate / 10, .warm_up = 2, .steps = kComparedSteps};

Json words_of(const model::AdamW& s) {
  return {{"betas", {s.beta1, s.beta2}},
          {"adam_epsilon", s.epsilon},
          {"weight_decay", s.weight_decay},
          {"largest_norm", s.largest_norm}};
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
// and the gradients of both are fp32. A model in bf16 has its weights and their gradients in bf16 too.
std::int64_t peer_bytes(const model::Config& c, const model::Extent& e) {
  constexpr std::int64_t kProgram = std::int64_t{1} << 30, kFloat = sizeof(float);
  const std::int64_t size = size_of(c.dtype), rows = e.rows(), parameters = model::parameter_count(c);
  const std::int64_t kept = size * (9 * c.width + 4 * c.hidden), in_fp32 = kFloat * 4 * c.width;
  const std::int64_t copies = c.dtype == DType::fp32 ? 0 : 2 * size * parameters;
  return kProgram + 4 * kFloat * parameters + copies +
         rows * ((c.layers + 1) * (kept + in_fp32) + 4 * kFloat * c.vocabulary);
}

// Of sums in another order, and in bf16 of other places to round. There a block rounds about 24 tensors, half of them
// in backward. A rounding errs by at most 2^-9 / sqrt(3) of the tensor's norm, two models differ by sqrt(2) of that,
// and errors of different roundings add in squares: sqrt(layers) / 128 in all. Gradients may differ by twice as much.
// One that is absent or of another function differs by about 1.
ModelPeer::Tolerance ModelPeer::tolerance_of(const model::Config& c) {
  if (c.dtype == DType::fp32) return {1e-5, 1e-4};
  return {1e-3, std::sqrt(static_cast<double>(c.layers)) / 64};
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
    const double own_loss = model.forward_backward(batch, 1, context);
    judge_loss("loss", own_loss, number(reply, "loss"), 0);
    const std::vector<float> gradients = model.read(model::State::gradients, context);
    judge_each({"gradients", "gradient", 1, 0}, model.map(), gradients, nullptr);
    if (!failed())
      compare_steps(model, batch, compared_optimizer(norm_of(gradients), model.map().count()), own_loss, context);
    process_.outputs().resize(0);
    inputs_.resize(0);
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

// Three arrays of all parameters at once: as they were given to the worker, of this library, of the worker. It has
// weights, gradients and moments too. Linux may end this process if it asks for more than there is.
void ModelPeer::want_memory(std::int64_t parameter_bytes) const {
  const std::int64_t wanted = (settings_.device.kind == DeviceKind::cpu ? 7 : 3) * parameter_bytes;
  const std::int64_t free = free_bytes(DeviceKind::cpu);
  if (wanted > free)
    throw WorkerFailure{
        "oom", "wants " + core::binary_size(wanted) + " beside this library's model, free " + core::binary_size(free)};
}

void ModelPeer::prepare(model::Model& model, const model::Batch& batch, const core::RunContext& context) {
  const model::Config& c = model.config();
  tolerance_ = tolerance_of(c);
  const std::vector<float> weights = model.read(model::State::weights, context);
  const auto bytes = static_cast<std::int64_t>(weights.size() * sizeof(float));
  const auto token_bytes = static_cast<std::int64_t>(batch.tokens.size_bytes());
  inputs_.resize(bytes + 2 * token_bytes);
  std::memcpy(inputs_.data(), weights.data(), static_cast<std::size_t>(bytes));
  std::memcpy(inputs_.data() + bytes, batch.tokens.data(), batch.tokens.size_bytes());
  std::memcpy(inputs_.data() + bytes + token_bytes, batch.targets.data(), batch.targets.size_bytes());
  Json command{{"command", "prepare"},
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
               {"learning_rate", kProfileLearningRate}};
  command.update(words_of({}));
  const Json reply = process_.call(command, settings_.timeout);
  const auto named = reply.find("peer");
  framework_ = named != reply.end() && named->is_string() ? named->get<std::string>() : name_;
}

// Both models make the same steps from the weights that the worker was given. Their changes are compared. In every
// second step tokens and targets change places, so that gradients differ and their means matter.
void ModelPeer::compare_steps(model::Model& model, const model::Batch& batch, const model::AdamW& optimizer,
                              double first_loss, const core::RunContext& context) {
  std::vector<double> rates;
  for (std::int64_t i = 0; i < kComparedSteps; ++i) rates.push_back(model::learning_rate(kComparedSchedule, i));
  Json command{{"command", "train"}, {"learning_rates", rates}};
  command.update(words_of(optimizer));
  const Json reply = process_.call(command, settings_.timeout);
  measured_bytes_ = bytes_of(reply, "peak_bytes").value_or(0);
  for (const std::span<float> moments : {model.first_moment(), model.second_moment()})
    model.work().clear(moments.data(), static_cast<std::int64_t>(moments.size_bytes()), context);
  for (std::int64_t i = 0; i < kComparedSteps; ++i) {
    model.forward_backward(i % 2 == 0 ? batch : model::Batch{batch.targets, batch.tokens}, 1, context);
    model::update(model, optimizer, rates[static_cast<std::size_t>(i)], i, context);
  }
  const double loss = model.forward(batch, 0, context);
  judge_loss("loss after three steps", loss, number(reply, "loss"), loss - first_loss);
  judge_each({"three steps", "change in three steps", kStepSensitivity, kRoundings}, model.map(),
             model.read(model::State::weights, context), reinterpret_cast<const float*>(inputs_.data()));
}

// `change`: of the loss, by steps that may differ.
void ModelPeer::judge_loss(const std::string& what, double own, double theirs, double change) {
  if (failed()) return;
  const double error = std::fabs(theirs - own);
  error_[what + " against fovea"] = {error / std::fabs(own), error, std::numeric_limits<double>::quiet_NaN()};
  const double allowed = tolerance_.loss * std::fabs(own) + kStepSensitivity * tolerance_.gradient * std::fabs(change);
  if (!(error <= allowed))
    fail({"mismatch", fmt::format("its {} is {:.9g}, this library's {:.9g}", what, theirs, own)});
}

// Each parameter is judged by itself, so that a small one cannot hide behind the others.
void ModelPeer::judge_each(const Comparison& compared, const model::ParameterMap& map, const std::vector<float>& own,
                           const float* before) {
  if (failed()) return;
  const double most = compared.sensitivity * tolerance_.gradient;
  const auto* const theirs = reinterpret_cast<const float*>(process_.outputs().data());
  ErrorFigures& worst = error_[std::string(compared.all) + " against fovea"];
  worst = {0, 0, std::numeric_limits<double>::quiet_NaN()};
  for (const model::Parameter& one : map.all()) {
    Difference d;
    double squares = 0;
    for (std::int64_t i = one.offset; i < one.offset + one.count(); ++i) {
      const double value = own[static_cast<std::size_t>(i)], first = before == nullptr ? 0 : before[i];
      d.add(value - first, theirs[i] - first);
      squares += value * value;
    }
    worst.rel_l2 = std::fmax(worst.rel_l2, d.relative());
    worst.max_abs = std::fmax(worst.max_abs, d.largest);
    if (!(std::sqrt(d.square) <= most * std::sqrt(d.of) + compared.roundings * std::sqrt(squares)))
      return fail({"mismatch",
                   fmt::format("the {} of {} differs by {:.3g} of its norm", compared.one, one.name, d.relative())});
  }
}

void ModelPeer::step(const std::string& passes, bool is_measured) {
  if (failed()) return;
  try {
    const Json reply = process_.call({{"command", "step"}, {"passes", passes}}, settings_.timeout);
    const auto seconds = reply.find("seconds");
    if (seconds == reply.end() || !seconds->is_object()) process_.refuse(reply.dump(), "no seconds");
    state_bytes_ = bytes_of(reply, "state_bytes"), held_bytes_ = bytes_of(reply, "held_bytes"),
    peak_bytes_ = bytes_of(reply, "peak_bytes");
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
    result.state_bytes = state_bytes_, result.held_bytes = held_bytes_;
    result.more_bytes = *peak_bytes_ - *held_bytes_;
  }
  return result;
}

}  // namespace fovea::program
