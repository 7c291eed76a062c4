// The loop. All that a step draws depends on the seed and its number, so a checkpoint needs no more than its number.
#include "program/train/training.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <span>

#include "core/binary_size.h"
#include "core/check.h"
#include "core/memory.h"
#include "core/names.h"
#include "program/bench/progress.h"
#include "program/command_line.h"
#include "program/interrupt.h"
#include "program/machine/device.h"
#include "program/machine/machine.h"
#include "program/machine/session.h"
#include "program/output_file.h"
#include "program/terminal_text.h"
#include "program/train/checkpoint.h"
#include "program/train/step_progress.h"

namespace fovea::program {
namespace {

constexpr std::int64_t kLastSteps = 100;  // whose mean loss the summary tells

void check_settings(const TrainingSettings& s) {
  model::check(s.config, {s.batch, s.config.context}, "train");
  if (s.config.vocabulary < 256)
    core::fail({.status = Status::invalid_argument,
                .argument = "--vocabulary",
                .problem = "bytes have 256 values",
                .got = std::to_string(s.config.vocabulary),
                .wanted = "256 or more"});
}

// Refuses a plan of the memory that does not fit.
void check_memory(const TrainingSettings& s) {
  const model::Extent extent{s.batch, s.config.context};
  const model::ParameterMap map(s.config);
  const model::MemoryPlan plan(s.config, extent, map, model::Calls(s.config, extent, s.device));
  const std::int64_t free = free_bytes(s.device.kind);
  if (plan.total_bytes > free)
    core::fail({.status = Status::out_of_memory,
                .argument = "--batch",
                .problem = "the plan is larger than the free memory",
                .got = core::binary_size(plan.total_bytes),
                .wanted = "at most " + core::binary_size(free),
                .hint = "reduce --batch and raise --accumulate, or choose a smaller model"});
}

std::string checkpoint_in(const std::string& folder) { return folder + "/checkpoint.safetensors"; }
std::string losses_in(const std::string& folder) { return folder + "/losses.jsonl"; }

// A training that is resumed has a checkpoint; a new one finds no files of another.
void check_folder(const TrainingSettings& s) {
  const std::string checkpoint = checkpoint_in(s.folder), losses = losses_in(s.folder);
  if (s.resume && !std::filesystem::exists(checkpoint))
    core::fail({.status = Status::invalid_argument,
                .argument = "--resume",
                .problem = "there is no checkpoint to continue from",
                .got = "no file " + checkpoint,
                .wanted = "a folder that `fovea train` wrote",
                .hint = "without --resume a training begins"});
  if (!s.resume && std::filesystem::exists(checkpoint))
    core::fail({.status = Status::invalid_argument,
                .argument = "--output",
                .problem = "the folder holds a checkpoint",
                .got = s.folder,
                .wanted = "a folder without one, or --resume",
                .hint = "--resume continues the training"});
  if (!s.resume && std::filesystem::exists(losses))
    core::fail({.status = Status::invalid_argument,
                .argument = "--output",
                .problem = "the folder holds the losses of a training without its checkpoint",
                .got = losses,
                .wanted = "a folder without this file",
                .hint = "choose another folder, or move the file away"});
}

TrainingSettings checked(const TrainingSettings& settings) {
  check_settings(settings);
  check_folder(settings);
  check_memory(settings);
  return settings;
}

std::optional<WeightsFile> weights_of(const TrainingSettings& s) {
  if (s.weights.empty()) return std::nullopt;
  return std::optional<WeightsFile>(std::in_place, s.weights, s.config);
}

// The command line without its --weights FILE: the checkpoint has other weights by then.
std::vector<std::string> without_weights(const std::vector<std::string>& typed) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < typed.size(); ++i) {
    if (typed[i] == "--weights") {
      ++i;
    } else if (!typed[i].starts_with("--weights=")) {
      words.push_back(typed[i]);
    }
  }
  return words;
}

}  // namespace

std::string Training::checkpoint_path() const { return checkpoint_in(settings_.folder); }
std::string Training::losses_path() const { return losses_in(settings_.folder); }

Metadata words_of(const TrainingSettings& s, const Text& text) {
  const auto word = [](auto value) { return fmt::format("{}", value); };
  return {{"model", model::line_of(s.config)},
          {"theta", word(s.config.theta)},
          {"epsilon", word(s.config.epsilon)},
          {"batch", word(s.batch)},
          {"accumulate", word(s.accumulate)},
          {"steps", word(s.schedule.steps)},
          {"warm_up", word(s.schedule.warm_up)},
          {"learning_rate", word(s.schedule.largest)},
          {"least_learning_rate", word(s.schedule.least)},
          {"weight_decay", word(s.optimizer.weight_decay)},
          {"clip", word(s.optimizer.largest_norm)},
          {"seed", word(s.seed)},
          {"device", std::string(core::name_of(s.device.kind))},
          {"text_sha256", text.sha256}};
}

Training::Training(const TrainingSettings& settings)
    : settings_(checked(settings)),
      weights_(weights_of(settings)),
      text_(read_text(settings.text, settings.config.context)),
      held_out_(held_out_sequences(text_, settings.config.context, settings.batch)),
      trigram_(trigram_loss(text_)),
      words_(words_of(settings, text_)),
      free_before_(free_bytes(settings.device.kind)),
      model_(settings.config, extent(), settings.seed, settings.device),
      step_(start()),
      saved_(step_),
      losses_(losses_path(), environment(), settings.resume, settings.force),
      history_(losses_.before().steps) {
  history_.erase(history_.upper_bound(step_), history_.end());
}

Environment Training::environment() const {
  Environment e = session_environment(this_machine(), settings_.typed, settings_.threads);
  for (const auto& [key, value] : words_) e.facts[key] = value;
  e.facts["training_bytes"] = std::to_string(text_.training_bytes);
  e.facts["held_out_bytes"] = std::to_string(text_.held_out_bytes);
  return e;
}

// The step that the checkpoint holds. A new training has one before its first step, so that whatever ends it, --resume
// finds a state.
std::int64_t Training::start() {
  watch_interrupts();  // from here on, an interrupt waits for the end of a step
  if (settings_.resume) return load_checkpoint(checkpoint_path(), model_, words_);
  if (weights_) {
    model_.write(model::State::weights, weights_->values(), context());
    fmt::print(stderr, "{}\n", wrapped(weights_->summary(), 2));
  }
  make_folder(settings_.folder);
  save_checkpoint(checkpoint_path(), model_, words_, 0);
  return 0;
}

double Training::compute_gradients(std::int64_t step) {
  const std::int64_t rows = extent().rows();
  const Sequences all = training_sequences(text_, settings_.config.context, settings_.batch * settings_.accumulate,
                                           settings_.seed, static_cast<std::uint64_t>(step));
  const std::span<const std::int32_t> tokens(all.tokens), targets(all.targets);
  const double share = 1.0 / static_cast<double>(settings_.accumulate);
  double loss = 0;
  for (std::int64_t pass = 0; pass < settings_.accumulate; ++pass) {
    const auto first = static_cast<std::size_t>(pass * rows), count = static_cast<std::size_t>(rows);
    const model::Batch batch{tokens.subspan(first, count), targets.subspan(first, count)};
    loss += share * model_.forward_backward(batch, share, context(), pass > 0);
  }
  return loss;
}

TrainingStep Training::train(std::int64_t step) {
  const auto begin = std::chrono::steady_clock::now();
  TrainingStep result{.step = step + 1,
                      .loss = compute_gradients(step),
                      .learning_rate = model::learning_rate(settings_.schedule, step),
                      .bytes = extent().rows() * settings_.accumulate};
  result.gradient_norm = model::update(model_, settings_.optimizer, result.learning_rate, step, context());
  if (!std::isfinite(result.loss) || !std::isfinite(result.gradient_norm))
    core::fail({.status = Status::error,
                .call = "train",
                .problem = "the loss or its gradient is not finite",
                .got = fmt::format("loss {}, gradient norm {} in step {}", result.loss, result.gradient_norm, step + 1),
                .wanted = "finite numbers",
                .hint = "a smaller --learning-rate, from the last checkpoint or anew"});
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return result;
}

double Training::held_out_loss() {
  const auto rows = static_cast<std::size_t>(extent().rows());
  const std::span<const std::int32_t> tokens(held_out_.sequences.tokens), targets(held_out_.sequences.targets);
  double sum = 0;
  for (std::size_t first = 0; first < tokens.size(); first += rows) {
    const std::vector<double> losses =
        model_.losses({tokens.subspan(first, rows), targets.subspan(first, rows)}, context());
    for (std::size_t i = 0; i < rows; ++i) sum += held_out_.counts[first + i] ? losses[i] : 0;
  }
  return sum / static_cast<double>(text_.held_out_bytes);
}

void Training::save() {
  save_checkpoint(checkpoint_path(), model_, words_, step_);
  saved_ = step_;
}

std::string Training::command_to_resume() const {
  return shell_line(without_weights(settings_.typed)) + (settings_.resume ? "" : " --resume");
}

int Training::interrupted_at_step() const {
  std::fprintf(stderr, "%lld of %lld steps done and saved; resume with %s\n", static_cast<long long>(step_),
               static_cast<long long>(settings_.schedule.steps), command_to_resume().c_str());
  return 130;
}

void Training::print_plan() const {
  const model::MemoryPlan& plan = model_.memory();
  const std::string sizes = fmt::format("{}: {} parameters", model::line_of(settings_.config), model_.map().count());
  fmt::print(stderr, "{}\n{} of memory: {} state, {} activations, {} workspace\n", wrapped(sizes, 2),
             core::binary_size(plan.total_bytes), core::binary_size(plan.state_bytes),
             core::binary_size(plan.activation_bytes), core::binary_size(plan.workspace_bytes));
}

int Training::run() {
  print_plan();
  try {
    return run_steps();
  } catch (const OutputLost& lost) {
    throw OutputLost(fmt::format("{}\n  kept:   the checkpoint of step {}\n  hint:   make room, then {}", lost.what(),
                                 saved_, command_to_resume()));
  }
}

int Training::run_steps() {
  const std::int64_t steps = settings_.schedule.steps;
  StepProgress progress(step_, steps);
  while (step_ < steps) {
    TrainingStep result = train(step_++);
    if (step_ % settings_.held_out_every == 0 || step_ == steps)
      result.held_out = held_out_loss(), result.trigram = trigram_;
    losses_.append(result);
    history_[step_] = result;
    progress.on_step(result);
    const bool stops = interrupted();
    if (stops || step_ % settings_.save_every == 0 || step_ == steps) save();
    if (stops && step_ < steps) {
      progress.end();
      return interrupted_at_step();
    }
  }
  progress.end();
  print_summary();
  return 0;
}

// The most memory at once: on the CPU what the library took; on a GPU what is no longer free.
std::int64_t Training::used_bytes() const {
  const DeviceKind kind = settings_.device.kind;
  return kind == DeviceKind::cpu ? core::memory_count().peak : free_before_ - free_bytes(kind);
}

void Training::print_summary() const {
  double sum = 0, seconds = 0;
  std::int64_t count = 0, bytes = 0;
  for (const auto& [number, one] : history_) {
    seconds += one.seconds, bytes += one.bytes;
    if (number > step_ - kLastSteps) sum += one.loss, ++count;
  }
  if (count == 0) return;
  const TrainingStep& last = history_.rbegin()->second;
  if (settings_.json) {
    fmt::print("{}\n", json_line(last));
    return;
  }
  fmt::print("loss in nats a byte, training: {:.3f} in step {}, {:.3f} mean of the last {} steps\n",
             history_.begin()->second.loss, history_.begin()->first, sum / static_cast<double>(count), count);
  if (last.held_out) fmt::print("held out: {:.3f}; a trigram count model: {:.3f}\n", *last.held_out, *last.trigram);
  fmt::print("{} steps, {} bytes in {}; {:.0f} bytes a second\n", history_.size(), bytes, duration_text(seconds),
             static_cast<double>(bytes) / seconds);
  fmt::print("memory: {} planned, {} measured\n", core::binary_size(model_.memory().total_bytes),
             core::binary_size(used_bytes()));
  fmt::print("checkpoint: {}\nlosses: {}\n", checkpoint_path(), losses_path());
}

}  // namespace fovea::program
