// fovea worker: the child process of the bench. Reads commands, runs the kernel on shared memory, answers with times.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <system_error>

#include "core/problem_line.h"
#include "program/shared_tensors.h"
#include "program/timed_kernel.h"
#include "program/verbs.h"
#include "program/worker_protocol.h"

namespace fovea::program {
namespace {

using Json = nlohmann::ordered_json;

// How a run is timed. Another device brings another clock: events on its stream instead of the host's.
class Timer {
 public:
  virtual ~Timer() = default;
  virtual const char* name() const = 0;
  virtual double seconds_of(void (*run)(void*), void* argument) = 0;
};

class HostTimer final : public Timer {
 public:
  const char* name() const override { return "steady_clock"; }
  double seconds_of(void (*run)(void*), void* argument) override {
    const auto start = std::chrono::steady_clock::now();
    run(argument);
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
};

std::unique_ptr<Timer> make_timer(DeviceKind) { return std::make_unique<HostTimer>(); }

// The case that is prepared, with its kernel's views of the shared memory.
struct Prepared {
  Prepared(const core::Case& the_case, const TensorPlaces& places)
      : c(the_case),
        inputs(protocol::kInputs, places.input_bytes, false),
        outputs(protocol::kOutputs, places.output_bytes, true),
        timer(make_timer(c.problem.device.kind)) {}
  core::Case c;
  SharedBlock inputs, outputs;
  std::unique_ptr<Timer> timer;
};

class Worker {
 public:
  explicit Worker(const std::string& spec) : spec_(spec) {}

  Json answer(const Json& command) {
    const auto word = command.at("command").get<std::string>();
    if (word == "prepare") return prepare(command);
    if (word == "drop") return prepared_.reset(), Json{{"ok", true}};
    if (!prepared_) return failure("error", "no case is prepared");
    if (word == "run") return run();
    if (word == "sample") return sample(command.at("runs").get<int>(), command.at("lead").get<int>());
    return failure("error", "unknown command " + word);
  }

  static Json failure(const char* status, const std::string& reason) {
    return {{"ok", false}, {"status", status}, {"reason", reason}};
  }

 private:
  Json prepare(const Json& command) {
    prepared_.reset();
    if (!kernel_) kernel_ = make_kernel(spec_);
    const core::Case c = core::parse_case(command.at("problem").get<std::string>());
    const TensorPlaces places = places_of(c);
    prepared_ = std::make_unique<Prepared>(c, places);
    kernel_->prepare(c, command.at("implementation").get<std::string>(), command.at("threads").get<int>(),
                     forward_tensors(places, prepared_->inputs, prepared_->outputs),
                     backward_tensors(places, prepared_->inputs, prepared_->outputs));
    return {{"ok", true}};
  }

  Json run() {
    kernel_->forward();
    if (prepared_->c.pass != core::CasePass::fwd) kernel_->backward();
    const auto json_of = [](const std::optional<std::int64_t>& bytes) { return bytes ? Json(*bytes) : Json(nullptr); };
    return {{"ok", true},
            {"timer", prepared_->timer->name()},
            {"workspace_bytes", json_of(kernel_->workspace_bytes())},
            {"saved_bytes", json_of(kernel_->saved_bytes())}};
  }

  void run_pass() {
    if (prepared_->c.pass != core::CasePass::bwd) kernel_->forward();
    if (prepared_->c.pass != core::CasePass::fwd) kernel_->backward();
  }

  Json sample(int runs, int lead) {
    for (int i = 0; i < lead; ++i) run_pass();
    std::vector<double> seconds;
    for (int i = 0; i < runs; ++i) {
      seconds.push_back(
          prepared_->timer->seconds_of([](void* worker) { static_cast<Worker*>(worker)->run_pass(); }, this));
    }
    return {{"ok", true}, {"seconds", seconds}};
  }

  std::string spec_;
  std::unique_ptr<TimedKernel> kernel_;
  std::unique_ptr<Prepared> prepared_;
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

int serve(const std::string& spec) {
  if (fcntl(protocol::kCommands, F_GETFD) < 0 || fcntl(protocol::kReplies, F_GETFD) < 0) {
    std::fprintf(stderr, "fovea worker: is started by `fovea bench` only\n");
    return 2;
  }
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
  // Libraries of the kernel may misbehave at exit; nothing is left to be saved here.
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
