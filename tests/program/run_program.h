// Running the real program in a folder of its own, with signals, limits and closed pipes.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "program/record/record_file.h"

namespace fovea::tests {

struct Ended {
  int code = -1;         // exit code; 128 + signal if it was killed
  bool hung = false;     // had to be killed at the deadline, which also fails the test
  std::string out, err;  // a terminal takes both into out
  double seconds = 0;
};

struct RunOptions {
  std::int64_t file_size_limit = -1;  // RLIMIT_FSIZE: a disk that is full beyond so many bytes
  std::int64_t address_limit = -1;    // RLIMIT_AS: no more bytes of address space
  bool close_output = false;          // nobody reads stdout
  std::string output = {};            // a file that stdout goes to
  bool terminal = false;              // stdout and stderr are a terminal of no width
  std::function<void(pid_t)> while_it_runs = {};
  std::vector<std::string> environment = {};  // NAME=value, added
};

// Runs `fovea ARGUMENTS...`.
Ended fovea(const std::vector<std::string>& arguments, const RunOptions& options = {});

// A folder that is removed with all it holds.
class Folder {
 public:
  Folder();
  ~Folder();
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string read_text(const std::string& path);
void write_text(const std::string& path, const std::string& text);

// Every line of the file fits python/fovea_report/record.schema.json and reads back equal; the strict parser refuses
// duplicate keys.
void expect_valid_records(const std::string& path);

// The shared object with the kernels of bad_kernels.c: its path and the name, as --impl wants them.
std::string bad_kernel(const std::string& symbol);

// The rows of a bench of one cell; fails the test if the program's exit code is not the one wanted.
std::vector<program::Row> bench(const std::string& problem, const std::string& implementations, int wanted_code,
                                const std::vector<std::string>& more = {});

}  // namespace fovea::tests
