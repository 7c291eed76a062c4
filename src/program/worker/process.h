// One worker: a child process that runs a kernel. It may crash, hang or run out of memory without harm to the parent.
// It leads a process group, so that processes that the kernel starts are stopped and ended with it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "program/worker/shared_tensors.h"

namespace fovea::program {

// Why a call to a worker got no answer; status is one of kRowStatuses.
struct WorkerFailure {
  std::string status, reason;
};

struct WorkerSettings {
  std::vector<std::string> command;  // program and arguments
  int threads = 1;                   // passed to all threading libraries through the environment
  std::int64_t memory_limit = 0;     // bytes of private memory; 0: none
  std::string system_root;           // prepended to /proc and /sys, for the out-of-memory killer's counter
};

class WorkerProcess {
 public:
  WorkerProcess(WorkerSettings settings, const SharedBlock& inputs);
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  // Sends one command and waits for its answer; starts the process if necessary. Throws WorkerFailure or Interrupted.
  // After a crash, a timeout or an oom kill the process has ended, and the next call starts a new one.
  nlohmann::ordered_json call(const nlohmann::ordered_json& command, double timeout_s);

  // Ends the process, because its reply breaks the protocol, and throws WorkerFailure.
  [[noreturn]] void refuse(const std::string& reply, const std::string& why);
  void kill();
  bool alive() const { return pid_ > 0; }
  SharedBlock& outputs() { return outputs_; }

 private:
  void start();
  void become_worker(pid_t parent, int commands, int replies, int log, char* const* arguments,
                     char* const* environment) const;
  void send(const std::string& line);
  std::string receive(double timeout_s);
  [[noreturn]] void fail_ended();
  std::string last_words() const;
  void signal_all(int signal) const;
  void close_descriptors();

  WorkerSettings settings_;
  const SharedBlock& inputs_;
  SharedBlock outputs_;
  pid_t pid_ = -1;
  std::int64_t oom_kills_ = 0;  // the count when the process was last known to be alive
  int commands_ = -1, replies_ = -1, log_ = -1;
  int end_ = -1;  // readable once the process has ended, while its children may hold the pipes; -1 on old systems
};

}  // namespace fovea::program
