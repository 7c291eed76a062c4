// The file of records: JSON lines that survive Ctrl-C, kill -9 and a full disk.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "program/record/record.h"

namespace fovea::program {

// A file that cannot be used as it is; what() says why, with the byte position where there is one.
struct RecordFileError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Records {
  std::vector<Environment> environments;  // one per session that wrote to the file
  std::vector<Row> rows;                  // in file order; of rows with the same key only the last
  std::vector<std::size_t> environment_of_row;
  std::int64_t valid_bytes = 0;  // up to the end of the last whole line
  std::string warning;           // a torn last line that was left out; empty if there is none
};

// Reads a whole file. Throws RecordFileError for anything but a torn last line.
Records load_records(const std::string& path);

// Appends rows, each with one write and one fsync, or throws OutputLost. Cuts off a torn last line when it opens an
// existing file.
class RecordFile {
 public:
  // Creates the file, or with `resume` goes on in one that may exist. Refuses files that are not records or were
  // written on another machine or by a build of other sources (unless `force`). Writes the environment, which is the
  // probe that the disk takes rows.
  RecordFile(const std::string& path, const Environment& environment, bool resume, bool force);
  ~RecordFile();
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  void append(const Row& row);
  const Records& before() const { return before_; }  // what the file held when it was opened
  const std::string& path() const { return path_; }

 private:
  void take_up(const Environment& environment, bool resume, bool force);
  void append_line(const std::string& line);

  std::string path_;
  int descriptor_ = -1;
  std::int64_t end_ = 0;
  Records before_;
};

}  // namespace fovea::program
