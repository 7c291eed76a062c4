// One pipe per process. It closes when the process ends for any reason.
#include "program/verify/jobs.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>

#include "core/check.h"

namespace fovea::program {
namespace {

constexpr int kShowEveryMs = 200;

[[noreturn]] void fail_system(const char* what) {
  core::fail({.status = Status::out_of_memory,
              .argument = "--jobs",
              .problem = what,
              .got = std::strerror(errno),
              .wanted = "a smaller number of processes"});
}

bool write_all(int descriptor, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = write(descriptor, text.data() + done, text.size() - done);
    if (written > 0) done += static_cast<std::size_t>(written);
    if (written < 0 && errno != EINTR) return false;
  }
  return true;
}

struct Part {
  pid_t process = -1;
  int pipe = -1;
  std::string said;
};

// Reads the available bytes of the pipe; closes it at the end.
void listen(Part& part) {
  char buffer[65536];
  const ssize_t got = read(part.pipe, buffer, sizeof buffer);
  if (got > 0) part.said.append(buffer, static_cast<std::size_t>(got));
  if (got > 0 || (got < 0 && errno == EINTR)) return;
  close(part.pipe);
  part.pipe = -1;
}

}  // namespace

std::vector<nlohmann::json> run_in_processes(int count,
                                             const std::function<nlohmann::json(int index, SharedProgress&)>& part,
                                             const std::function<void(const SharedProgress&)>& show) {
  void* const memory = mmap(nullptr, sizeof(SharedProgress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail_system("no shared memory for the progress");
  auto* const progress = new (memory) SharedProgress{};
  std::vector<Part> parts(static_cast<std::size_t>(count));
  std::fflush(nullptr);  // otherwise every process would print the buffered text
  for (int index = 0; index < count; ++index) {
    Part& one = parts[static_cast<std::size_t>(index)];
    int ends[2];
    if (pipe(ends) != 0) fail_system("no pipe to a process");
    const pid_t parent = getpid();
    one.process = fork();
    if (one.process < 0) fail_system("no further process");
    if (one.process == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(127);  // the parent was killed before prctl
      const bool told = write_all(ends[1], part(index, *progress).dump());
      std::fflush(nullptr);
      _exit(told ? 0 : 1);
    }
    close(ends[1]);
    one.pipe = ends[0];
  }
  const auto open = [](const Part& one) { return one.pipe >= 0; };
  while (std::any_of(parts.begin(), parts.end(), open)) {
    std::vector<pollfd> waits;
    for (const Part& one : parts) waits.push_back({one.pipe, POLLIN, 0});
    poll(waits.data(), waits.size(), kShowEveryMs);
    for (std::size_t n = 0; n < parts.size(); ++n) {
      if (waits[n].fd >= 0 && waits[n].revents != 0) listen(parts[n]);
    }
    show(*progress);
  }
  std::vector<nlohmann::json> results;
  for (Part& one : parts) {
    while (waitpid(one.process, nullptr, 0) < 0 && errno == EINTR) {
    }
    results.push_back(nlohmann::json::parse(one.said, nullptr, false));
    if (!results.back().is_object()) results.back() = nullptr;
  }
  munmap(memory, sizeof(SharedProgress));
  return results;
}

}  // namespace fovea::program
