// The file of records: JSON lines that survive Ctrl-C, kill -9 and a full disk.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "program/output_file.h"
#include "program/record/record.h"

namespace fovea::program {

// A file that cannot be used; what() says why, with the byte position if there is one.
struct RecordFileError : FileRefused {
  using FileRefused::FileRefused;
};

struct Records {
  std::vector<Environment> environments;  // one per session that wrote to the file
  std::vector<Row> rows;                  // in file order; only the last row of each key
  std::vector<std::size_t> environment_of_row;
  std::vector<ProfileRow> profiles;
  std::map<std::int64_t, TrainingStep> steps;  // by their number; of each only the last
  std::int64_t valid_bytes = 0;                // up to the end of the last complete line
  std::string warning;                         // about a torn last line, which was left out; empty without one
};

// Reads a whole file. A torn last line is allowed; anything else that is wrong throws RecordFileError.
Records load_records(const std::string& path);

// Appends rows or steps, each with one write and one fsync, or throws OutputLost. Removes a torn last line from an
// existing file.
class RecordFile {
 public:
  // Creates the file, or with `resume` continues one that may exist. Refuses files that are not records. Unless
  // `force`, also refuses files from another machine or a build of other sources. Writes the environment, which shows
  // at once whether the disk takes rows.
  RecordFile(const std::string& path, const Environment& environment, bool resume, bool force);
  ~RecordFile();
  RecordFile(const RecordFile&) = delete;
  RecordFile& operator=(const RecordFile&) = delete;

  void append(const Row& row);
  void append(const TrainingStep& step);
  void append(const ProfileRow& row);
  const Records& before() const { return before_; }  // the file's records when it was opened
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
