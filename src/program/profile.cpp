// fovea profile: times the forward pass, the backward pass and the optimizer of a transformer.
#include "program/profile/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/check.h"
#include "fovea/threads.h"
#include "program/bench/table.h"
#include "program/command_line.h"
#include "program/interrupt.h"
#include "program/machine/ceilings.h"
#include "program/machine/device.h"
#include "program/machine/machine.h"
#include "program/machine/session.h"
#include "program/model_options.h"
#include "program/record/record_file.h"
#include "program/verbs.h"

namespace fovea::program {
namespace {

constexpr const char* kProfileExamples = R"(Examples:
  fovea profile --model report-d1:sm
  fovea profile --model report-d1:sm,report-d1:md --batch 2 --context 512
  fovea profile --model report-d1:sm --batch 4 --context 1024 --device cuda
  fovea profile --layers 4 --width 256 --heads 4 --hidden 1024 --batch 8
Exit codes: 0 done, 2 bad usage or input, 3 the disk is full, 4 no such device,
130 interrupted.
)";

struct ProfileOptions {
  ProfileSettings settings;
  std::vector<std::string> models;
  ModelSizes sizes;
  ModelModes modes;
  std::string output;
  bool json = false;
  std::vector<std::string> typed;
};

std::vector<ProfiledModel> models_of(const ProfileOptions& o) {
  std::vector<ProfiledModel> models;
  if (!o.models.empty() && o.sizes.any())
    core::fail({.status = Status::invalid_argument,
                .argument = "--model",
                .problem = "a preset has its own sizes",
                .got = "--model and sizes such as --layers",
                .wanted = "one of them"});
  for (const std::string& name : o.models) models.push_back({name, preset_named("--model", name)});
  if (models.empty()) models.push_back({"custom", o.sizes.applied_to({})});
  for (ProfiledModel& one : models) {
    one.config = o.modes.applied_to(one.config);
    one.config.context = std::max(one.config.context, o.settings.context);
  }
  return models;
}

// Of the rate that shares are of. A processor without a dot product of bf16 multiplies bf16 as fp32.
std::string ceiling_name(const Environment& environment, DeviceKind device, DType dtype) {
  if (device == DeviceKind::cuda) return product_name(device, dtype);
  return dtype == DType::bf16 && environment.ceilings.contains("dot_bf16") ? "dot_bf16" : "fma_fp32";
}

int run_profile(const ProfileOptions& o) {
  ProfileSettings s = o.settings;
  if (const std::string missing = missing_device(s.device.kind, "profile"); !missing.empty()) {
    fmt::print(stderr, "{}", missing);
    return kNoDevice;
  }
  if (s.threads == 0) s.threads = default_threads();
  const std::vector<ProfiledModel> models = models_of(o);
  const Machine machine = this_machine();
  s.free_bytes = free_bytes(s.device.kind);
  for (const ProfiledModel& one : models) model::check(one.config, {s.batch, s.context}, "profile");
  watch_interrupts();
  s.stops = interrupted;
  Environment environment = session_environment(machine, o.typed, s.threads);
  const bool on_gpu = s.device.kind == DeviceKind::cuda;
  environment.ceilings = on_gpu ? probe_gpu(true) : probe_all(s.threads);
  std::optional<RecordFile> file;
  if (!o.output.empty()) file.emplace(o.output, environment, false, false);
  std::vector<ProfileRow> rows;
  bool whole = true;
  for (const ProfiledModel& one : models) {
    whole = whole && profile(one, s, [&](ProfileRow row) {
              if (file) file->append(row);
              const auto total = row.times.find("total");
              fmt::print(stderr, "[{}/{}] {} {} {}\n", rows.size() + 1, models.size() * s.passes.size(), row.model,
                         row.passes, total == row.times.end() ? row.reason : time_text(total->second.mean));
              rows.push_back(std::move(row));
            });
  }
  if (o.json) {
    fmt::print("{}\n", json_line(environment));
    for (const ProfileRow& row : rows) fmt::print("{}\n", json_line(row));
  } else if (!rows.empty()) {
    fmt::print("{}",
               profile_table(rows, environment.ceilings[ceiling_name(environment, s.device.kind, o.modes.dtype)]));
  }
  return whole ? 0 : 130;
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
  add_size_options(verb, o->sizes);
  add_device_option(verb, o->settings.device.kind);
  add_mode_options(verb, o->modes);
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
  add_count("--warm-up", o->settings.warm_up, "steps before those that are measured", 0);
  add_count("--steps", o->settings.steps, "measured steps", 3);
  verb->add_option("--threads", o->settings.threads,
                   "CPU threads (default: FOVEA_THREADS, else all\nprocessors that this process may use)")
      ->check(whole_number_within(1, 4096))
      ->type_name("N");
  verb->add_option("-o,--output", o->output,
                   "file of records: one JSON line per model and\npasses, with every step's times")
      ->check(not_empty())
      ->type_name("FILE");
  verb->add_flag("--json", o->json, "print records instead of the tables");
  verb->footer(kProfileExamples);
  verb->callback([o, &action] {
    o->typed = typed_words();
    action = [o] { return run_profile(*o); };
  });
}

}  // namespace fovea::program
