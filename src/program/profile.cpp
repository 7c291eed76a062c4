// fovea profile: times the forward pass, the backward pass and the optimizer of a transformer.
#include "program/profile/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/check.h"
#include "core/printable.h"
#include "fovea/threads.h"
#include "model/problem_line.h"
#include "program/bench/contender.h"
#include "program/bench/table.h"
#include "program/command_line.h"
#include "program/interrupt.h"
#include "program/machine/ceilings.h"
#include "program/machine/device.h"
#include "program/machine/machine.h"
#include "program/machine/session.h"
#include "program/model_options.h"
#include "program/profile/model_memory.h"
#include "program/profile/pass_progress.h"
#include "program/profile/presets.h"
#include "program/record/record_file.h"
#include "program/terminal_text.h"
#include "program/verbs.h"
#include "program/weights/weights_file.h"
#include "verification/attention/operation.h"

namespace fovea::program {
namespace {

constexpr const char* kProfileExamples = R"(Examples:
  fovea profile --model report-d1:sm
  fovea profile --model report-d1:sm,report-d1:md --batch 2 --context 512
  fovea profile --preset report-d1 --with torch --python PATH -o run.jsonl
  fovea profile --preset report-d1 --scale full --device cuda
  fovea profile --layers 4 --width 256 --heads 4 --hidden 1024 --batch 8
Exit codes: 0 done, 1 a wrong answer or a failed peer, 2 bad usage or input,
3 the disk is full, 4 no such device, 130 interrupted.
)";

struct ProfileOptions {
  ProfileSettings settings;
  std::vector<std::string> models;
  ModelSizes sizes;
  ModelModes modes;
  std::string preset, scale;
  std::vector<std::string> peers;
  std::string python = "python3";
  std::string weights, output, trace;
  bool json = false, memory = false;
  std::vector<std::string> typed;
};

[[noreturn]] void refuse_option(const std::string& argument, const std::string& problem, const std::string& got,
                                const std::string& wanted) {
  core::fail(
      {.status = Status::invalid_argument, .argument = argument, .problem = problem, .got = got, .wanted = wanted});
}

// What the preset says, where the command line says nothing.
void take_preset(const CLI::App& verb, ProfileOptions& o) {
  if (o.preset.empty()) {
    if (!o.scale.empty()) refuse_option("--scale", "only presets have a scale", "no --preset", "--preset NAME");
    return;
  }
  const ProfilePreset& preset = profile_preset(o.preset);
  refuse_sizes_beside("--preset", o.sizes);
  if (o.models.empty()) o.models = preset.models;
  const ProfileScale& scale = preset.at(o.scale);
  const auto take = [&verb](const char* name, std::int64_t& value, std::int64_t otherwise) {
    if (verb.count(name) == 0) value = otherwise;
  };
  take("--batch", o.settings.batch, scale.batch);
  take("--context", o.settings.context, scale.context);
  take("--warm-up", o.settings.warm_up, scale.warm_up);
  take("--steps", o.settings.steps, scale.steps);
}

// torch stands for those that are called from the host.
std::vector<ProfilePeer> peers_of(const ProfileOptions& o) {
  if (!o.peers.empty() && o.modes.checkpoints_activations)
    refuse_option("--with", "peers keep all activations", "--checkpoint-activations", "a run without it");
  const std::vector<std::string> known{"torch.eager", "torch.compile", "torch.eager.graph", "torch.compile.graph"};
  std::vector<ProfilePeer> peers;
  for (const std::string& word : o.peers) {
    if (word != "torch" && std::ranges::find(known, word) == known.end())
      refuse_option("--with", "no peer of this name", word.empty() ? "an empty word" : word,
                    "torch, torch.eager, torch.compile, torch.eager.graph or torch.compile.graph");
    for (const std::string& name : known) {
      const bool is_graph = name.ends_with(".graph");
      if (word != name && (word != "torch" || is_graph)) continue;
      if (is_graph && o.settings.device.kind == DeviceKind::cpu)
        refuse_option("--with", "CUDA graphs are of a GPU", name, "--device cuda");
      if (std::ranges::find(peers, name, &ProfilePeer::name) != peers.end())
        refuse_option("--with", "named twice", name, "each name once");
      peers.push_back({name, {o.python, python_script("model_worker.py"), name}});
    }
  }
  return peers;
}

void refuse_repeats(const std::string& argument, std::vector<std::string> words) {
  std::ranges::sort(words);
  const auto twice = std::ranges::adjacent_find(words);
  if (twice != words.end()) refuse_option(argument, "named twice", *twice, "each name once");
}

std::vector<ProfiledModel> models_of(const ProfileOptions& o) {
  refuse_repeats("--model", o.models);
  refuse_repeats("--passes", o.settings.passes);
  std::vector<ProfiledModel> models;
  if (!o.models.empty()) refuse_sizes_beside("--model", o.sizes);
  for (const std::string& name : o.models) models.push_back({name, preset_named("--model", name)});
  if (models.empty()) models.push_back({std::string(model::kCustom), o.sizes.applied_to({})});
  for (ProfiledModel& one : models) {
    one.config = o.modes.applied_to(one.config);
    one.config.context = std::max(one.config.context, o.settings.context);
  }
  return models;
}

// Nullopt: random weights.
std::optional<WeightsFile> weights_of(const ProfileOptions& o, const std::vector<ProfiledModel>& models) {
  if (o.weights.empty()) return std::nullopt;
  if (models.size() != 1)
    refuse_option("--weights", "a file has the weights of one model", std::to_string(models.size()) + " models",
                  "one --model, or its sizes");
  return std::optional<WeightsFile>(std::in_place, o.weights, models.front().config);
}

// Of the rate that shares are of. A processor without a dot product of bf16 multiplies bf16 as fp32.
std::string ceiling_name(const Environment& environment, DeviceKind device, DType dtype) {
  if (device == DeviceKind::cuda) return product_name(device, dtype);
  for (const char* name : {"tile_bf16", "dot_bf16"})
    if (dtype == DType::bf16 && environment.ceilings.contains(name)) return name;
  return "fma_fp32";
}

// A share of the floor of a part needs both.
Ceilings ceilings_of(const Environment& environment, DeviceKind device, DType dtype) {
  const auto value = [&environment](const std::string& name) {
    const auto found = environment.ceilings.find(name);
    return found == environment.ceilings.end() ? 0.0 : found->second;
  };
  return {value(ceiling_name(environment, device, dtype)),
          value(device == DeviceKind::cuda ? "gpu_copy_bandwidth" : "read_bandwidth")};
}

// What fits beside a result's name. The record has the whole reason.
std::string first_line(const std::string& reason) {
  return cut_to(core::printable(reason.substr(0, reason.find('\n'))), kTerminalColumns / 2);
}

// Takes results as they come: into the file, and a line of progress for each.
class Results {
 public:
  Results(const std::string& output, const Environment& environment, const Ceilings& ceilings, std::size_t expected)
      : environment_(environment), ceilings_(ceilings), expected_(expected), progress_(expected) {
    if (output.empty()) return;
    if (std::filesystem::is_regular_file(output) && std::filesystem::file_size(output) > 0)
      refuse_option("--output", "the file exists", output, "a new file");  // a profile is not continued
    file_.emplace(output, environment, false, false);
  }

  void take(ProfileResult result) {
    if (file_ && result.impl == kOwnName) file_->append(result.row);
    for (const Row& row : rows_of(result, environment_, ceilings_.flops)) {
      if (file_) file_->append(row);
    }
    const auto total = total_of(result.seconds, {"forward", "backward", "optimizer"});
    progress_.on_result(fmt::format("{} {} {} {}", result.row.model, result.row.passes, result.impl,
                                    total.empty() ? result.status + ": " + first_line(result.reason)
                                                  : time_text(statistics_of(total).mean)),
                        all_.size() + 1);
    all_.push_back(std::move(result));
  }

  // The largest batch and context that fit, each verified by a step. Returns false if it was stopped.
  bool add_largest(const ProfiledModel& model, const ProfileSettings& s) {
    for (const char* dimension : {"batch", "context"}) {
      if (s.stops()) return false;
      fmt::print(stderr, "{}: the largest {} that fits\n", model.name, dimension);
      const std::optional<ProfileRow> row =
          largest_that_fits(model, s, dimension, room_for_models(s.device.kind), ceilings_.flops);
      if (!row) continue;
      if (file_) file_->append(*row);
      largest_.push_back(*row);
    }
    return !s.stops();
  }

  void on_check(const std::string& model) { progress_.on_check(model, all_.size()); }
  void on_step(const std::string& model, const ProfileStep& step) { progress_.on_step(model, step, all_.size()); }

  // After an interrupt.
  void print_kept() {
    progress_.end();
    if (file_)
      fmt::print(stderr, "interrupted: kept {} of {} results in {}\n", all_.size(), expected_, file_->path());
    else
      fmt::print(stderr, "interrupted: {} of {} results are there\n", all_.size(), expected_);
  }

  void print_records() const {
    fmt::print("{}\n", json_line(environment_));
    for (const ProfileResult& result : all_) {
      if (result.impl == kOwnName) fmt::print("{}\n", json_line(result.row));
      for (const Row& row : rows_of(result, environment_, ceilings_.flops)) fmt::print("{}\n", json_line(row));
    }
    for (const ProfileRow& row : largest_) fmt::print("{}\n", json_line(row));
  }
  bool failed() const {
    return std::ranges::any_of(all_, [](const ProfileResult& one) { return is_failure(one.status); });
  }
  void print_tables(bool memory) const {
    if (!all_.empty()) fmt::print("{}", profile_table(all_, ceilings_));
    if (memory && !all_.empty()) fmt::print("\n{}", memory_table(all_, largest_));
  }

 private:
  const Environment& environment_;
  Ceilings ceilings_;
  std::size_t expected_;
  PassProgress progress_;
  std::optional<RecordFile> file_;
  std::vector<ProfileResult> all_;
  std::vector<ProfileRow> largest_;
};

int run_profile(const ProfileOptions& o) {
  ProfileSettings s = o.settings;
  s.peers = peers_of(o);
  const verification::Operation& attention = verification::attention_operation();  // part of every model
  if (const std::string missing = missing_device(attention, s.device.kind, "profile"); !missing.empty()) {
    fmt::print(stderr, "{}", missing);
    return kNoDevice;
  }
  if (s.threads == 0) s.threads = default_threads();
  const std::vector<ProfiledModel> models = models_of(o);
  const Machine machine = this_machine();
  s.free_bytes = free_bytes(s.device.kind);
  for (const ProfiledModel& one : models) model::check(one.config, {s.batch, s.context}, "profile");
  const std::optional<WeightsFile> weights = weights_of(o, models);
  if (weights) {
    fmt::print(stderr, "{}\n", wrapped(weights->summary(), 2));
    s.on_model = [&](model::Model& model) {
      model.write(model::State::weights, weights->values(), {.threads = s.threads});
    };
  }
  if (!o.trace.empty()) write_trace(o.trace, {});  // a file that takes nothing is known before anything is timed
  watch_interrupts();
  s.stops = interrupted;
  Environment environment = session_environment(machine, o.typed, s.threads);
  const bool on_gpu = s.device.kind == DeviceKind::cuda;
  environment.ceilings = on_gpu ? probe_gpu(true) : probe_all(s.threads);
  const Ceilings ceilings = ceilings_of(environment, s.device.kind, o.modes.dtype);
  Results results(o.output, environment, ceilings, models.size() * s.passes.size() * (1 + s.peers.size()));
  std::vector<Span> spans;
  bool whole = true;
  for (const ProfiledModel& one : models) {
    if (!o.trace.empty()) {
      s.on_span = [&](Span span) {
        span.track = one.name + ", " + span.track;
        spans.push_back(std::move(span));
      };
    }
    s.on_check = [&] { results.on_check(one.name); };
    s.on_step = [&](const ProfileStep& step) { results.on_step(one.name, step); };
    whole = whole && profile(one, s, [&results](ProfileResult result) { results.take(std::move(result)); });
    if (whole && o.memory) whole = results.add_largest(one, s);
  }
  if (!whole) results.print_kept();
  if (o.json) {
    results.print_records();
  } else {
    results.print_tables(o.memory);
  }
  if (!o.trace.empty()) write_trace(o.trace, spans);
  if (!whole) return 130;
  return results.failed() ? 1 : 0;
}

}  // namespace

void add_profile(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("profile", "Time the passes of a transformer");
  auto o = std::make_shared<ProfileOptions>();
  o->settings.passes.assign(std::begin(kPasses), std::end(kPasses));
  o->settings.threads = 0;  // the default number
  verb->add_option("--model", o->models, "presets, such as report-d1:sm,cs336-2026:small")
      ->delimiter(',')
      ->check(not_empty())
      ->type_name("LIST");
  verb->add_option("--preset", o->preset, "report-d1: a published profile of three models")
      ->check(not_empty())
      ->type_name("NAME");
  verb->add_option("--scale", o->scale, "scale of the preset (quick); what else is typed\ngoes before")
      ->check(CLI::IsMember({"quick", "full"}));
  add_size_options(verb, o->sizes);
  add_device_option(verb, o->settings.device.kind);
  add_mode_options(verb, o->modes);
  add_weights_option(verb, o->weights);
  const auto add_count = [verb](const char* name, std::int64_t& value, const char* help, std::uint64_t least) {
    verb->add_option(name, value, help)
        ->check(whole_number_within(least, std::numeric_limits<std::int32_t>::max()))
        ->capture_default_str()
        ->type_name("N");
  };
  add_count("--batch", o->settings.batch, "sequences of a pass", 1);
  add_count("--context", o->settings.context, "tokens of a sequence", 1);
  verb->add_option("--passes", o->settings.passes, "forward, forward+backward, step (default: all)")
      ->delimiter(',')
      ->check(CLI::IsMember({"forward", "forward+backward", "step"}))
      ->type_name("LIST");
  add_count("--warm-up,--warmup", o->settings.warm_up, "steps before those that are measured", 0);
  add_count("--steps", o->settings.steps, "measured steps", 3);
  verb->add_option("--threads", o->settings.threads,
                   "CPU threads (default: FOVEA_THREADS, else all\nprocessors that this process may use)")
      ->check(whole_number_within(1, kMaxThreads))
      ->type_name("N");
  verb->add_option("--with", o->peers,
                   "the same model in PyTorch, in turns: torch.eager,\ntorch.compile (torch: both); on a GPU also\n"
                   "torch.eager.graph, torch.compile.graph")
      ->delimiter(',')
      ->check(not_empty())
      ->type_name("LIST");
  verb->add_option("--python", o->python, "Python that runs peers (python3)")->check(not_empty())->type_name("PATH");
  verb->add_option("-o,--output", o->output,
                   "file of records: lines for each model and passes,\nwith every step's times")
      ->check(not_empty())
      ->type_name("FILE");
  verb->add_option("--trace", o->trace, "file for ui.perfetto.dev: phases and parts of the\nmeasured steps")
      ->check(not_empty())
      ->type_name("FILE");
  verb->add_flag("--memory", o->memory,
                 "memory at each moment of a step; the largest batch\nand context that fit, verified");
  verb->add_flag("--json", o->json, "print records instead of the tables");
  verb->footer(kProfileExamples);
  verb->callback([o, verb, &action] {
    o->typed = typed_words();
    take_preset(*verb, *o);
    action = [o] { return run_profile(*o); };
  });
}

}  // namespace fovea::program
