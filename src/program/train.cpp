// fovea train: a small transformer learns bytes of text.
#include <algorithm>
#include <cstdio>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "core/check.h"
#include "fovea/threads.h"
#include "program/command_line.h"
#include "program/machine/device.h"
#include "program/model_options.h"
#include "program/train/training.h"
#include "program/verbs.h"
#include "verification/attention/operation.h"

namespace fovea::program {
namespace {

constexpr const char* kTrainExamples = R"(Examples:
  fovea train                           # four layers, minutes on two cores
  fovea train --resume                  # after Ctrl-C, to the same bits
  fovea train --steps 200 --layers 2 -o out/small
  fovea train --weights FILE            # begins with weights of another run
The folder holds checkpoint.safetensors and losses.jsonl. Threads do not change
the bits.
Exit codes: 0 done, 1 the loss is not finite or the memory too small, 2 bad
usage or input, 3 the disk is full, 4 no such device, 130 interrupted; the
state is saved.
)";

struct TrainOptions {
  TrainingSettings settings;
  std::string preset;
  ModelSizes sizes;
  ModelModes modes;
  std::optional<std::int64_t> context;
};

int run_train(const TrainOptions& o) {
  TrainingSettings s = o.settings;
  if (!o.preset.empty()) {
    refuse_sizes_beside("--preset", o.sizes);
    const double theta = s.config.theta;
    s.config = preset_named("--preset", o.preset);
    s.config.theta = theta;
  }
  s.config = o.modes.applied_to(o.sizes.applied_to(s.config));
  s.config.context = o.context.value_or(s.config.context);
  if (s.schedule.warm_up > s.schedule.steps)
    core::fail({.status = Status::invalid_argument,
                .argument = "--warm-up",
                .problem = "a warm-up longer than the training",
                .got = std::to_string(s.schedule.warm_up),
                .wanted = "at most --steps, " + std::to_string(s.schedule.steps)});
  if (s.schedule.least > s.schedule.largest)
    core::fail({.status = Status::invalid_argument,
                .argument = "--least-learning-rate",
                .problem = "above the largest learning rate",
                .got = std::to_string(s.schedule.least),
                .wanted = "at most --learning-rate, " + std::to_string(s.schedule.largest)});
  if (s.force && !s.resume)
    core::fail({.status = Status::invalid_argument,
                .argument = "--force",
                .problem = "only has an effect with --resume",
                .got = "no --resume",
                .wanted = "--resume",
                .hint = "leave --force out"});
  if (s.resume && !s.weights.empty())
    core::fail({.status = Status::invalid_argument,
                .argument = "--weights",
                .problem = "a resumed training has its own weights",
                .got = "--weights and --resume",
                .wanted = "one of them"});
  const verification::Operation& attention = verification::attention_operation();  // part of every model
  if (const std::string missing = missing_device(attention, s.device.kind, "train"); !missing.empty()) {
    std::fputs(missing.c_str(), stderr);
    return kNoDevice;
  }
  if (s.threads == 0) s.threads = default_threads();
  return Training(s).run();
}

CLI::Option* add_count(CLI::App* verb, const std::string& name, auto& value, const std::string& help,
                       std::uint64_t least = 1) {
  return verb->add_option(name, value, help)
      ->check(whole_number_within(least, std::numeric_limits<std::int32_t>::max()))
      ->type_name("N");
}

void add_model_options(CLI::App* verb, TrainOptions& o) {
  verb->add_option("--preset", o.preset, "sizes of a published profile, such as\nreport-d1:sm or cs336-2026:small")
      ->check(not_empty())
      ->type_name("NAME");
  add_size_options(verb, o.sizes);
  add_count(verb, "--context", o.context, "bytes of a sequence (256)");
  verb->add_option("--theta", o.settings.config.theta, "base of the rotary embedding")
      ->check(number_within(1, 1e12))
      ->capture_default_str()
      ->type_name("X");
}

void add_training_options(CLI::App* verb, TrainOptions& o) {
  TrainingSettings& s = o.settings;
  add_count(verb, "--batch", s.batch, "sequences of a pass")->capture_default_str();
  add_count(verb, "--accumulate", s.accumulate, "passes of a step")->capture_default_str();
  add_count(verb, "--steps", s.schedule.steps, "steps of the training")->capture_default_str();
  add_count(verb, "--warm-up", s.schedule.warm_up,
            "steps in which the learning rate rises\n(100, or all if there are fewer)", 0);
  const auto add_number = [verb](const char* name, double& value, const char* help) {
    verb->add_option(name, value, help)->check(number_within(0, 1e6))->capture_default_str()->type_name("X");
  };
  add_number("--learning-rate", s.schedule.largest, "after the warm-up");
  add_number("--least-learning-rate", s.schedule.least, "at the end of the cosine");
  add_number("--weight-decay", s.optimizer.weight_decay, "of matrices, by AdamW");
  verb->add_option("--clip", s.optimizer.largest_norm, "largest norm of all gradients together")
      ->check(number_within(1e-6, 1e9))
      ->capture_default_str()
      ->type_name("X");
  verb->add_option("--seed", s.seed, "seed of weights and samples")
      ->check(whole_number_within(0, UINT64_MAX))
      ->capture_default_str()
      ->type_name("N");
}

void add_run_options(CLI::App* verb, TrainOptions& o) {
  TrainingSettings& s = o.settings;
  verb->add_option("--text", s.text, "file, or folder of text files; the last tenth of\neach is held out")
      ->check(not_empty())
      ->capture_default_str()
      ->type_name("PATH");
  add_count(verb, "--held-out-every", s.held_out_every, "steps between losses of the held-out bytes")
      ->capture_default_str();
  add_count(verb, "--save-every", s.save_every, "steps between checkpoints")->capture_default_str();
  verb->add_option("--threads", s.threads,
                   "CPU threads (default: FOVEA_THREADS, else all\nprocessors that this process may use)")
      ->check(whole_number_within(1, kMaxThreads))
      ->type_name("N");
  verb->add_option("-o,--output", s.folder, "folder of the checkpoint and the losses")
      ->check(not_empty())
      ->capture_default_str()
      ->type_name("FOLDER");
  verb->add_flag("--resume", s.resume, "continue the training in the folder");
  verb->add_flag("--force", s.force, "resume one of another machine or build too");
  verb->add_flag("--json", s.json, "print the last step's record instead of text");
}

}  // namespace

void add_train(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("train", "Train a small transformer on text");
  auto options = std::make_shared<TrainOptions>();
  options->settings.text = "/usr/share/common-licenses";
  options->settings.folder = "out/train";
  options->settings.threads = 0;  // the default number
  options->settings.schedule = {.largest = 2e-3, .least = 1e-4, .warm_up = 100, .steps = 1000};
  add_model_options(verb, *options);
  add_device_option(verb, options->settings.device.kind);
  add_mode_options(verb, options->modes);
  add_weights_option(verb, options->settings.weights);
  add_training_options(verb, *options);
  add_run_options(verb, *options);
  verb->footer(kTrainExamples);
  verb->callback([options, verb, &action] {
    TrainingSettings& s = options->settings;
    s.typed = typed_words();
    if (verb->count("--warm-up") == 0) s.schedule.warm_up = std::min(s.schedule.warm_up, s.schedule.steps);
    action = [options] { return run_train(*options); };
  });
}

}  // namespace fovea::program
