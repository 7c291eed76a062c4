// Trains a small transformer on bytes of text, step by step, with a record of losses and checkpoints.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "model/model.h"
#include "model/optimizer.h"
#include "model/schedule.h"
#include "program/record/record_file.h"
#include "program/train/text.h"
#include "program/weights/weights_file.h"

namespace fovea::program {

struct TrainingSettings {
  model::Config config;
  model::Schedule schedule;
  model::AdamW optimizer;
  std::int64_t batch = 8;       // sequences of a forward pass
  std::int64_t accumulate = 1;  // passes of a step
  std::uint64_t seed = 0;
  std::int64_t held_out_every = 200, save_every = 200;  // steps
  std::string text, folder;
  std::string weights;  // a file that the weights come from; empty: random ones. Not beside `resume`
  Device device;
  int threads = 1;
  bool resume = false, force = false;
  bool json = false;               // the last step's record instead of the summary
  std::vector<std::string> typed;  // the words of the command line
};

// Everything that decides the bits of the training, as words.
Metadata words_of(const TrainingSettings& settings, const Text& text);

class Training {
 public:
  // Throws Error: invalid_argument for settings, for a file of weights that does not fit, for a folder that holds a
  // training already or, with `resume`, one without a checkpoint that fits; out_of_memory if the plan is larger than
  // the free memory. Writes the first checkpoint.
  explicit Training(const TrainingSettings& settings);

  // Returns the exit code: 0, or 130 after an interrupt, when the state was saved. Throws OutputLost if the disk is
  // full, and Error if the loss is not finite; the last checkpoint is then intact.
  int run();

 private:
  model::Extent extent() const { return {settings_.batch, settings_.config.context}; }
  core::RunContext context() const { return {.threads = settings_.threads}; }
  std::string checkpoint_path() const;
  std::string losses_path() const;
  Environment environment() const;
  std::int64_t start();
  double compute_gradients(std::int64_t step);  // returns the loss
  TrainingStep train(std::int64_t step);
  double held_out_loss();
  void save();
  std::string command_to_resume() const;
  int interrupted_at_step() const;
  int run_steps();
  std::int64_t used_bytes() const;
  void print_plan() const;
  void print_summary() const;

  TrainingSettings settings_;
  std::optional<WeightsFile> weights_;
  Text text_;
  HeldOut held_out_;
  double trigram_;
  Metadata words_;
  std::int64_t free_before_;  // memory of the device
  model::Model model_;
  std::int64_t step_;   // steps that were made
  std::int64_t saved_;  // of them, those that the checkpoint holds
  RecordFile losses_;
  std::map<std::int64_t, TrainingStep> history_;
};

}  // namespace fovea::program
