// Starts a worker, stops it and reads its answers. Between answers it is stopped (SIGSTOP), so that its spinning
// threads do not disturb the worker that is timed.
#include "program/worker/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>

#include "program/interrupt.h"
#include "program/machine/oom_kills.h"
#include "program/worker/protocol.h"

extern char** environ;

namespace fovea::program {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kThreadVariables[] = {"FOVEA_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS",
                                            "MKL_NUM_THREADS"};

std::vector<std::string> environment_for(int threads) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const bool replaced = std::any_of(std::begin(kThreadVariables), std::end(kThreadVariables),
                                      [text](auto* name) { return text.starts_with(std::string(name) + "="); });
    if (!replaced) result.emplace_back(text);
  }
  for (const char* name : kThreadVariables) result.push_back(std::string(name) + "=" + std::to_string(threads));
  result.emplace_back("PYTHONUNBUFFERED=1");
  return result;
}

std::vector<char*> pointers_to(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (auto& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

constexpr std::string_view kFailures[] = {"oom", "unsupported", "error"};
constexpr int kGraceMs = 1000;  // from the end of the pipe to the end of the process

int descriptor_of(pid_t process) {
#ifdef SYS_pidfd_open
  return static_cast<int>(syscall(SYS_pidfd_open, process, 0));  // close-on-exec
#else
  return -1;
#endif
}

// A failure that a worker reports itself; nullopt if its form is wrong.
std::optional<WorkerFailure> reported_failure(const Json& reply) {
  const Json status = reply.value("status", Json("error")), reason = reply.value("reason", Json(""));
  if (reply["ok"] != false || !status.is_string() || !reason.is_string()) return std::nullopt;
  const auto word = status.get<std::string>();
  if (std::find(std::begin(kFailures), std::end(kFailures), word) == std::end(kFailures)) return std::nullopt;
  return WorkerFailure{word, reason.get<std::string>()};
}

void close_one(int& descriptor) {
  if (descriptor >= 0) close(descriptor);
  descriptor = -1;
}

}  // namespace

WorkerProcess::WorkerProcess(WorkerSettings settings, const SharedBlock& inputs)
    : settings_(std::move(settings)), inputs_(inputs), outputs_("fovea outputs") {}

WorkerProcess::~WorkerProcess() { kill(); }

void WorkerProcess::start() {
  int down[2], up[2];
  log_ = memfd_create("fovea worker log", MFD_CLOEXEC);
  if (log_ < 0 || pipe2(down, O_CLOEXEC) != 0) throw WorkerFailure{"error", std::strerror(errno)};
  if (pipe2(up, O_CLOEXEC) != 0) throw WorkerFailure{"error", std::strerror(errno)};
  std::vector<std::string> words = settings_.command, variables = environment_for(settings_.threads);
  const std::vector<char*> arguments = pointers_to(words), environment = pointers_to(variables);
  oom_kills_ = oom_kills(settings_.system_root);
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) become_worker(parent, down[0], up[1], log_, arguments.data(), environment.data());
  const int error = errno;
  close(down[0]);
  close(up[1]);
  commands_ = down[1];
  replies_ = up[0];
  if (pid_ < 0) {
    close_descriptors();
    throw WorkerFailure{"error", std::string("no process could be started: ") + std::strerror(error)};
  }
  setpgid(pid_, pid_);  // here and in the child, since either may run first
  end_ = descriptor_of(pid_);
}

// Runs in the child between fork and exec, so it may only make async-signal-safe calls.
void WorkerProcess::become_worker(pid_t parent, int commands, int replies, int log, char* const* arguments,
                                  char* const* environment) const {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);                                     // the child ends if its parent is killed
  if (getppid() != parent) _exit(127);                                  // the parent was killed before prctl
  for (const int signal : {SIGINT, SIGHUP}) ::signal(signal, SIG_IGN);  // the parent handles them
  for (const int signal : {SIGTERM, SIGPIPE, SIGXFSZ}) ::signal(signal, SIG_DFL);
  // First moves all descriptors to high numbers, so that no dup2 closes one that is still needed.
  const int sources[] = {log, log, inputs_.descriptor(), outputs_.descriptor(), commands, replies};
  const int targets[] = {1, 2, protocol::kInputs, protocol::kOutputs, protocol::kCommands, protocol::kReplies};
  int raised[6];
  for (int i = 0; i < 6; ++i) raised[i] = fcntl(sources[i], F_DUPFD, 64);
  for (int i = 0; i < 6; ++i) dup2(raised[i], targets[i]);
  for (int i = 0; i < 6; ++i) close(raised[i]);
  close(0);
  open("/dev/null", O_RDONLY);
  if (settings_.memory_limit > 0) {
    const rlimit limit{static_cast<rlim_t>(settings_.memory_limit), static_cast<rlim_t>(settings_.memory_limit)};
    setrlimit(RLIMIT_DATA, &limit);
  }
  const int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (write(score, "1000", 4) < 0) {
  }  // if memory runs out, the system kills this process and not the parent, which holds the records
  close(score);
  execvpe(arguments[0], arguments, environment);
  const char message[] = "could not be started: no such program\n";
  if (write(2, message, sizeof message - 1) < 0) {
  }
  _exit(127);
}

Json WorkerProcess::call(const Json& command, double timeout_s) {
  if (interrupted()) throw Interrupted{};
  if (!alive()) start();
  signal_all(SIGCONT);
  send(command.dump() + "\n");
  const std::string line = receive(timeout_s);
  signal_all(SIGSTOP);
  oom_kills_ = oom_kills(settings_.system_root);
  const Json reply = Json::parse(line, nullptr, false);
  if (!reply.is_object() || !reply.contains("ok")) refuse(line, "no reply of the protocol");
  if (reply["ok"] == true) return reply;
  if (const auto failure = reported_failure(reply)) throw *failure;
  refuse(line, "no failure of the protocol");
}

void WorkerProcess::refuse(const std::string& reply, const std::string& why) {
  kill();
  throw WorkerFailure{
      "error", fmt::format("the worker answered `{}`: {}", reply.substr(0, reply.find('\n')).substr(0, 200), why)};
}

void WorkerProcess::signal_all(int signal) const { ::kill(-pid_, signal); }

void WorkerProcess::send(const std::string& line) {
  std::size_t done = 0;
  while (done < line.size()) {
    const ssize_t written = write(commands_, line.data() + done, line.size() - done);
    if (written > 0) done += static_cast<std::size_t>(written);
    if (written < 0 && errno != EINTR) fail_ended();
  }
}

std::string WorkerProcess::receive(double timeout_s) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::duration<double>(timeout_s);
  std::string line;
  for (;;) {
    const std::chrono::duration<double> left = deadline - std::chrono::steady_clock::now();
    if (left.count() <= 0) {
      kill();
      throw WorkerFailure{"timeout", fmt::format("no answer within {:.3g} s", timeout_s)};
    }
    pollfd waits[]{{replies_, POLLIN, 0}, {end_, POLLIN, 0}};
    const int ready = poll(waits, 2, static_cast<int>(std::min(left.count() * 1e3 + 1, 1e6)));
    if (interrupted()) {
      kill();
      throw Interrupted{};
    }
    if (ready <= 0) continue;
    if (waits[0].revents == 0) fail_ended();
    char buffer[65536];
    const ssize_t got = read(replies_, buffer, sizeof buffer);
    if (got == 0) fail_ended();
    if (got > 0) line.append(buffer, static_cast<std::size_t>(got));
    if (!line.empty() && line.back() == '\n') return line;
  }
}

// Called when the pipe is closed or the process has ended. A process that closed the pipe without ending is killed.
void WorkerProcess::fail_ended() {
  int status = 0;
  pollfd end{end_, POLLIN, 0};
  if (end_ >= 0) poll(&end, 1, kGraceMs);
  if (end_ >= 0) signal_all(SIGKILL);
  waitpid(pid_, &status, 0);
  pid_ = -1;
  const std::string words = last_words();
  close_descriptors();
  const std::string said = words.empty() ? "" : ": " + words;
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL && oom_kills(settings_.system_root) > oom_kills_)
    throw WorkerFailure{"oom", "the system killed the process because memory ran out"};
  // An uncaught bad_alloc, as in a thread of the kernel, ends the process.
  if (words.find("std::bad_alloc") != std::string::npos)
    throw WorkerFailure{"oom", "an allocation failed and the process ended" + said};
  if (WIFSIGNALED(status)) throw WorkerFailure{"crashed", std::string(strsignal(WTERMSIG(status))) + said};
  throw WorkerFailure{"crashed", "the process ended with code " + std::to_string(WEXITSTATUS(status)) + said};
}

// The last line that the kernel printed, which often says why it died.
std::string WorkerProcess::last_words() const {
  const off_t end = lseek(log_, 0, SEEK_END);
  std::string text(static_cast<std::size_t>(std::min<off_t>(end, 2000)), ' ');
  if (pread(log_, text.data(), text.size(), end - static_cast<off_t>(text.size())) < 0) return "";
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  const std::size_t start = text.rfind('\n');
  return start == std::string::npos ? text : text.substr(start + 1);
}

void WorkerProcess::kill() {
  if (pid_ > 0) {
    signal_all(SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  pid_ = -1;
  close_descriptors();
}

void WorkerProcess::close_descriptors() {
  close_one(commands_);
  close_one(replies_);
  close_one(log_);
  close_one(end_);
}

}  // namespace fovea::program
