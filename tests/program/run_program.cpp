// Child processes for tests.
#include "run_program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <thread>

#include "schema_checker.h"

namespace fovea::tests {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kDeadline{120};

int temporary_file() {
  char name[] = "/tmp/fovea_test_XXXXXX";
  const int descriptor = mkostemp(name, O_CLOEXEC);
  unlink(name);
  return descriptor;
}

std::string whole(int descriptor) {
  std::string text(static_cast<std::size_t>(lseek(descriptor, 0, SEEK_END)), ' ');
  const ssize_t got = pread(descriptor, text.data(), text.size(), 0);
  close(descriptor);
  return got == static_cast<ssize_t>(text.size()) ? text : "";
}

[[noreturn]] void become_program(const std::vector<std::string>& arguments, const RunOptions& options, int out,
                                 int err) {
  std::vector<char*> words{const_cast<char*>(FOVEA_PROGRAM)};
  for (const auto& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  int closed[2];
  if (options.close_output && pipe(closed) == 0) {
    close(closed[0]);
    out = closed[1];
  }
  if (!options.output.empty()) out = open(options.output.c_str(), O_WRONLY | O_CLOEXEC);
  dup2(out, 1);
  dup2(err, 2);
  for (const auto& variable : options.environment) putenv(const_cast<char*>(variable.c_str()));
  if (options.file_size_limit >= 0) {
    const rlimit limit{static_cast<rlim_t>(options.file_size_limit), static_cast<rlim_t>(options.file_size_limit)};
    setrlimit(RLIMIT_FSIZE, &limit);
    std::signal(SIGXFSZ, SIG_DFL);
  }
  if (options.address_limit >= 0) {
    const rlimit limit{static_cast<rlim_t>(options.address_limit), static_cast<rlim_t>(options.address_limit)};
    setrlimit(RLIMIT_AS, &limit);
  }
  execv(FOVEA_PROGRAM, words.data());
  _exit(127);
}

// A terminal: the end that the program gets, and a thread that reads the other until the program has closed it.
class Terminal {
 public:
  Terminal() : ours_(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC)) {
    if (ours_ < 0 || grantpt(ours_) != 0 || unlockpt(ours_) != 0) throw std::runtime_error("no terminal");
    theirs_ = open(ptsname(ours_), O_RDWR | O_NOCTTY | O_CLOEXEC);
    reader_ = std::thread([this] {
      char buffer[4096];
      for (ssize_t got = 0; (got = read(ours_, buffer, sizeof buffer)) > 0;)
        text_.append(buffer, static_cast<std::size_t>(got));
    });
  }
  int theirs() const { return theirs_; }
  std::string close_and_take() {
    close(theirs_);
    reader_.join();
    close(ours_);
    return std::move(text_);
  }

 private:
  int ours_ = -1, theirs_ = -1;
  std::thread reader_;
  std::string text_;
};

// The status that waitpid gives; a program that does not end is killed.
int wait_with_deadline(pid_t pid, Ended& run) {
  const auto deadline = Clock::now() + kDeadline;
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (Clock::now() > deadline && !run.hung) {
      ADD_FAILURE() << "the program hangs";
      run.hung = true;
      kill(pid, SIGKILL);
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return status;
}

// Refuses what the library's own parser forgives: a key given twice.
Json parse_strictly(const std::string& line) {
  std::vector<std::set<std::string>> open;
  return Json::parse(line, [&open](int, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) open.emplace_back();
    if (event == Json::parse_event_t::object_end) open.pop_back();
    if (event == Json::parse_event_t::key && !open.back().insert(parsed.get<std::string>()).second)
      throw std::runtime_error("key given twice: " + parsed.dump());
    return true;
  });
}

}  // namespace

Ended fovea(const std::vector<std::string>& arguments, const RunOptions& options) {
  const auto start = Clock::now();
  const int out = temporary_file(), err = temporary_file();
  std::optional<Terminal> terminal;
  if (options.terminal) terminal.emplace();
  const pid_t pid = fork();
  if (pid == 0)
    become_program(arguments, options, terminal ? terminal->theirs() : out, terminal ? terminal->theirs() : err);
  if (options.while_it_runs) options.while_it_runs(pid);
  Ended run;
  const int status = wait_with_deadline(pid, run);
  run.code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  run.out = whole(out);
  run.err = whole(err);
  if (terminal) run.out = terminal->close_and_take();
  run.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return run;
}

Folder::Folder() {
  char name[] = "/tmp/fovea_test_XXXXXX";
  path_ = mkdtemp(name);
}

Folder::~Folder() {
  std::error_code none;
  std::filesystem::remove_all(path_, none);
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

void write_text(const std::string& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

void expect_valid_records(const std::string& path) {
  static const Json schema = Json::parse(read_text(FOVEA_RECORD_SCHEMA));
  std::ifstream file(path);
  std::size_t lines = 0;
  for (std::string line; std::getline(file, line); ++lines) {
    const Json json = parse_strictly(line);
    ASSERT_EQ(schema_violation(schema, json), "") << line.substr(0, 300);
    EXPECT_EQ(std::visit([](const auto& record) { return program::json_line(record); }, program::record_of(line)),
              line);
  }
  EXPECT_GT(lines, 0u) << path;
}

std::string bad_kernel(const std::string& symbol) { return std::string(FOVEA_BAD_KERNELS) + ":" + symbol; }

std::vector<program::Row> bench(const std::string& problem, const std::string& implementations, int wanted_code,
                                const std::vector<std::string>& more) {
  const Folder folder;
  const std::string file = folder / "run.jsonl";
  std::vector<std::string> arguments{
      "bench", "--problem", problem, "--impl", implementations, "--repeat-for", "0.01", "--threads", "1", "-o", file};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Ended run = fovea(arguments);
  EXPECT_EQ(run.code, wanted_code) << run.err << run.out;
  expect_valid_records(file);
  return program::load_records(file).rows;
}

}  // namespace fovea::tests
