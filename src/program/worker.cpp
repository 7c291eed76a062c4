// fovea worker: the child process of a bench. It reads commands, runs the kernel on shared memory and returns times.
#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <system_error>

#include "cuda/measure/device_memory.h"
#include "program/flash.h"
#include "program/machine/short_memory.h"
#include "program/verbs.h"
#include "program/worker/protocol.h"
#include "program/worker/shared_tensors.h"
#include "program/worker/timed_call.h"
#include "program/worker/timer.h"
#include "verification/problem_line.h"

namespace fovea::program {
namespace {

using Json = nlohmann::ordered_json;

// The prepared case, with the memory of its kernel: the shared blocks, or copies on a device.
struct Prepared {
  Prepared(const verification::Case& the_case, const TensorPlaces& places, const std::string& timing, bool ours)
      : c(the_case),
        inputs(protocol::kInputs, places.input_bytes, false),
        outputs(protocol::kOutputs, places.output_bytes, true),
        timer(make_timer(c.device(), timing, ours)) {
    if (!on_device()) return;
    device_inputs = cuda::DeviceMemory(places.input_bytes);
    device_outputs = cuda::DeviceMemory(places.output_bytes);
    device_inputs.upload(inputs.data());
    device_outputs.poison();
  }
  bool on_device() const { return c.device() == DeviceKind::cuda; }
  TensorMemory memory() const {
    return on_device() ? TensorMemory(device_inputs.data(), device_outputs.data(), {DeviceKind::cuda, 0})
                       : TensorMemory(inputs, outputs);
  }
  // Waits for the device, so that its errors are reported here.
  void store_outputs() {
    if (on_device()) device_outputs.download(outputs.data());
  }
  void load_outputs() {
    if (on_device()) device_outputs.upload(outputs.data());
  }

  verification::Case c;
  SharedBlock inputs, outputs;
  cuda::DeviceMemory device_inputs, device_outputs;
  std::unique_ptr<WorkerTimer> timer;
};

template <class T>
Json json_of(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

// Where the parent placed the case's tensors.
TensorPlaces places_from(const Json& command, const verification::Case& c) {
  TensorPlaces result = places_of(c);
  for (auto& place : result.places)
    place.offset = command.at("tensors").at(place.tensor.name).at("offset").get<std::int64_t>();
  result.input_bytes = command.at("input_bytes").get<std::int64_t>();
  result.output_bytes = command.at("output_bytes").get<std::int64_t>();
  return result;
}

class Worker {
 public:
  explicit Worker(const std::string& spec) : spec_(spec) {}

  Json answer(const Json& command) {
    const auto word = command.at("command").get<std::string>();
    if (word == "prepare") return prepare(command);
    if (word == "drop") return drop();
    if (!prepared_) return failure("error", "no case is prepared");
    if (word == "run") return run();
    if (word == "load_outputs") return load_outputs();
    if (word == "store_outputs") return store_outputs();
    if (word == "sample") return sample(command.at("runs").get<int>(), command.at("lead").get<int>());
    return failure("error", "unknown command " + word);
  }

  static Json failure(const char* status, const std::string& reason) {
    return {{"ok", false}, {"status", status}, {"reason", reason}};
  }

 private:
  Json prepare(const Json& command) {
    call_.reset();
    prepared_.reset();
    const verification::Case c = verification::parse_case(command.at("problem").get<std::string>());
    const TensorPlaces places = places_from(command, c);
    const bool foreign = is_foreign(spec_);
    prepared_ = std::make_unique<Prepared>(c, places, command.at("timing").get<std::string>(), !foreign);
    call_ = std::make_unique<TimedCall>(
        c, tensors_of(places, prepared_->memory()),
        TimedSettings{
            .implementation = foreign ? spec_ : asked_of_library(command.at("implementation").get<std::string>()),
            .threads = command.at("threads").get<int>(),
            .stream = prepared_->timer->stream(),
            .may_allocate = prepared_->timer->may_allocate(),
            .saves = command.value("saves", true)});
    return {{"ok", true}};
  }

  // Drops the call first, because on a device it may hold memory, which other workers need.
  Json drop() {
    const bool on_device = prepared_ && prepared_->on_device();
    call_.reset();
    prepared_.reset();
    if (on_device) cuda::give_workspaces_back();
    return {{"ok", true}};
  }

  Json run() {
    call_->begin();
    call_->forward();
    if (prepared_->c.backwards()) call_->backward();
    call_->end();
    prepared_->store_outputs();
    return {{"ok", true},
            {"timer", prepared_->timer->name()},
            {"workspace_bytes", json_of(call_->workspace_bytes())},
            {"saved_bytes", json_of(call_->saved_bytes())}};
  }

  Json load_outputs() {
    prepared_->load_outputs();
    return {{"ok", true}};
  }

  Json store_outputs() {
    prepared_->store_outputs();
    return {{"ok", true}};
  }

  void run_pass() {
    if (prepared_->c.forwards()) call_->forward();
    if (prepared_->c.backwards()) call_->backward();
  }

  // Something runs before each run that is not timed.
  WorkerTimer::Samples sample_one_by_one(int runs, int lead) {
    WorkerTimer::Samples samples;
    for (int i = 0; i < lead + runs; ++i) {
      call_->begin();
      const auto one = prepared_->timer->sample([this] { run_pass(); }, {}, 1, 0);
      if (i >= lead) samples.seconds.push_back(one.seconds.front());
    }
    call_->end();
    return samples;
  }

  Json sample(int runs, int lead) {
    const auto run_with = [this](bool pool) {
      call_->use_pool(pool);
      run_pass();
    };
    std::function<void()> pooled;
    if (call_->has_workspace()) pooled = [&] { run_with(true); };
    const auto samples = call_->has_begin() ? sample_one_by_one(runs, lead)
                                            : prepared_->timer->sample([&] { run_with(false); }, pooled, runs, lead);
    Json reply{{"ok", true},
               {"seconds", samples.seconds},
               {"clock_mhz", json_of(samples.clock_mhz)},
               {"power_w", json_of(samples.power_w)}};
    if (!samples.launches.empty()) reply["launches"] = samples.launches;
    if (!samples.pooled.empty()) reply["pooled"] = samples.pooled;
    if (!samples.host_bound.empty()) reply["host_bound"] = samples.host_bound;
    return reply;
  }

  std::string spec_;
  std::unique_ptr<Prepared> prepared_;
  std::unique_ptr<TimedCall> call_;  // declared last, so destroyed before its tensors
};

Json guarded_answer(Worker& worker, const std::string& line) {
  try {
    return worker.answer(Json::parse(line));
  } catch (const Error& error) {
    const bool refused = error.status() == Status::unsupported || error.status() == Status::invalid_argument;
    return Worker::failure(error.status() == Status::out_of_memory ? "oom"
                           : refused                               ? "unsupported"
                                                                   : "error",
                           error.what());
  } catch (const std::bad_alloc&) {
    return Worker::failure("oom", "an allocation failed");
  } catch (const std::exception& error) {
    return Worker::failure("error", error.what());
  }
}

// The parent reads the last line of a process that crashed.
void report_short_memory(int signal_number) {
  signal(signal_number, SIG_DFL);
  if (memory_is_short()) {
    (void)!write(STDERR_FILENO, "\n", 1);
    (void)!write(STDERR_FILENO, kShortMemory, sizeof kShortMemory - 1);
  }
  raise(signal_number);  // the process ends by it when this handler returns
}

int serve(const std::string& spec) {
  if (fcntl(protocol::kCommands, F_GETFD) < 0 || fcntl(protocol::kReplies, F_GETFD) < 0) {
    std::fprintf(stderr, "fovea worker: is started by `fovea bench` only\n");
    return 2;
  }
  for (const int number : {SIGSEGV, SIGBUS}) signal(number, report_short_memory);
  std::FILE* const commands = fdopen(protocol::kCommands, "r");
  std::FILE* const replies = fdopen(protocol::kReplies, "w");
  Worker worker(spec);
  char* line = nullptr;
  std::size_t capacity = 0;
  while (getline(&line, &capacity, commands) > 0) {
    if (std::string_view(line).find("\"quit\"") != std::string_view::npos) break;
    const std::string reply = guarded_answer(worker, line).dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    if (std::fputs(reply.c_str(), replies) < 0 || std::fflush(replies) != 0) break;
  }
  std::free(line);
  // Skips exit handlers: libraries of the kernel may misbehave in theirs.
  _exit(0);
}

}  // namespace

void add_worker(CLI::App& app, Action& action) {
  auto* verb = app.add_subcommand("worker", "Child process of `bench`")->group("");
  static std::string spec;
  verb->add_option("--kernel", spec, "implementation, or ./lib.so:symbol")->required();
  verb->callback([&action] { action = [] { return serve(spec); }; });
}

}  // namespace fovea::program
