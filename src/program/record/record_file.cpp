// Reads and appends records. A line is valid only once its line end is on disk.
#include "program/record/record_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <unordered_map>

namespace fovea::program {
namespace {

constexpr std::int64_t kLongestLine = std::int64_t{64} << 20;
constexpr int kDeepest = 16;

[[noreturn]] void refuse(const std::string& path, const std::string& why) { throw RecordFileError(path + ": " + why); }

[[noreturn]] void refuse_mixture(const std::string& path, const std::string& what, const std::string& got,
                                 const std::string& wanted) {
  refuse(path, "holds rows of " + what + "\n  got:    " + got + "\n  wanted: " + wanted +
                   "\n  hint:   choose another file, or mix them with --force");
}

std::string build_of(const Environment& e) {
  const std::string digest = e.source_digest.empty() ? "" : ", sources " + e.source_digest.substr(0, 12);
  return "commit " + e.source.commit + (e.source.dirty ? " with changes that are not committed" : "") + digest;
}

// Refuses lines that would lead the parser into deep recursion or gigabytes of memory.
void check_shape(std::string_view line) {
  if (static_cast<std::int64_t>(line.size()) > kLongestLine) throw std::runtime_error("a line longer than 64 MiB");
  int depth = 0;
  bool quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quoted && c == '\\') {
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && (c == '{' || c == '[') && ++depth > kDeepest) {
      throw std::runtime_error("nested deeper than records are");
    } else if (!quoted && (c == '}' || c == ']')) {
      --depth;
    }
  }
}

// Reads line by line, so that a large file costs no more memory than its rows.
class LineReader {
 public:
  explicit LineReader(const std::string& path) : file_(std::fopen(path.c_str(), "rb")) {
    struct stat status {};
    if (file_ == nullptr) refuse(path, std::strerror(errno));
    if (fstat(fileno(file_), &status) == 0 && S_ISDIR(status.st_mode)) {
      std::fclose(file_);
      refuse(path, "is a directory");
    }
  }
  ~LineReader() {
    std::free(line_);
    std::fclose(file_);
  }
  LineReader(const LineReader&) = delete;
  LineReader& operator=(const LineReader&) = delete;

  // Returns false at the end. `whole`: the line had a line end, which is removed.
  bool next(std::string_view& line, bool& whole) {
    const ssize_t length = getline(&line_, &capacity_, file_);
    if (length <= 0) return false;
    whole = line_[length - 1] == '\n';
    line = {line_, static_cast<std::size_t>(length) - (whole ? 1u : 0u)};
    return true;
  }

 private:
  std::FILE* file_;
  char* line_ = nullptr;
  std::size_t capacity_ = 0;
};

void keep_row(Records& records, std::unordered_map<std::string, std::size_t>& seen, Row row) {
  const auto [found, fresh] = seen.try_emplace(key_of(row), records.rows.size());
  if (fresh) {
    records.rows.push_back(std::move(row));
    records.environment_of_row.push_back(records.environments.size() - 1);
  } else {
    records.rows[found->second] = std::move(row);
    records.environment_of_row[found->second] = records.environments.size() - 1;
  }
}

void read_line(Records& records, std::unordered_map<std::string, std::size_t>& seen, std::string_view line) {
  check_shape(line);
  if (line.starts_with("\xef\xbb\xbf")) throw std::runtime_error("a byte order mark where a record should be");
  AnyRecord record = record_of(line);
  if (auto* const environment = std::get_if<Environment>(&record)) {
    records.environments.push_back(std::move(*environment));
  } else if (records.environments.empty()) {
    throw std::runtime_error("a row");
  } else if (const auto* const step = std::get_if<TrainingStep>(&record)) {
    records.steps[step->step] = *step;
  } else if (auto* const profile = std::get_if<ProfileRow>(&record)) {
    records.profiles.push_back(std::move(*profile));
  } else {
    keep_row(records, seen, std::get<Row>(std::move(record)));
  }
}

// Whether an interrupted run may have left this line: the beginning of a record, or zeros of blocks never written.
bool could_be_torn(std::string_view line) {
  constexpr std::string_view start = "{\"schema\":\"fovea.";
  std::string begun;
  for (std::size_t i = 0; i < line.size() && begun.size() < start.size(); ++i) {
    if (line[i] != ' ') begun += line[i];
  }
  return start.starts_with(begun) || line.find_first_not_of('\0') == std::string_view::npos;
}

// Retries for a moment: a forked child of a killed run may hold the lock until it executes the worker.
bool lock(int descriptor) {
  for (int attempt = 0; attempt < 100; ++attempt) {
    if (flock(descriptor, LOCK_EX | LOCK_NB) == 0) return true;
    usleep(10'000);
  }
  return false;
}

}  // namespace

Records load_records(const std::string& path) {
  Records records;
  std::unordered_map<std::string, std::size_t> seen;
  LineReader reader(path);
  std::string_view line;
  for (bool whole = false; reader.next(line, whole);) {
    if (!whole) {
      if (!could_be_torn(line)) refuse(path, "no record at byte " + std::to_string(records.valid_bytes));
      records.warning = path + ": the last line, at byte " + std::to_string(records.valid_bytes) +
                        ", was not finished and is left out";
      break;
    }
    try {
      read_line(records, seen, line);
    } catch (const std::exception& error) {
      const std::string start = "the first line is no environment of schema `" + std::string(kEnvSchema) + "`: ";
      refuse(path, "damaged at byte " + std::to_string(records.valid_bytes) + ": " +
                       (records.environments.empty() ? start : "") + error.what());
    }
    records.valid_bytes += static_cast<std::int64_t>(line.size()) + 1;
  }
  if (records.environments.empty() && records.warning.empty()) refuse(path, "is empty");
  return records;
}

RecordFile::RecordFile(const std::string& path, const Environment& environment, bool resume, bool force) : path_(path) {
  descriptor_ = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor_ < 0) refuse(path, std::strerror(errno));
  try {
    if (!lock(descriptor_)) refuse(path, "another run is writing to it");
    struct stat status {};
    if (fstat(descriptor_, &status) != 0 || !S_ISREG(status.st_mode))
      refuse(path, "is not a regular file, so rows would be lost");
    if (status.st_size > 0) take_up(environment, resume, force);
    append_line(json_line(environment));
  } catch (...) {
    close(descriptor_);
    throw;
  }
}

void RecordFile::take_up(const Environment& environment, bool resume, bool force) {
  if (!resume) refuse(path_, "exists; continue it with --resume, or choose another name");
  before_ = load_records(path_);
  for (const Environment& earlier : before_.environments) {
    if (force) break;
    if (earlier.machine != environment.machine) {
      refuse_mixture(path_, "another machine", "`" + earlier.machine + "`", "this one, `" + environment.machine + "`");
    }
    if (!same_build(earlier, environment)) {
      refuse_mixture(path_, "another build", build_of(earlier), "this one, " + build_of(environment));
    }
  }
  end_ = before_.valid_bytes;
  if (ftruncate(descriptor_, end_) != 0) refuse(path_, std::strerror(errno));
}

RecordFile::~RecordFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

void RecordFile::append(const Row& row) { append_line(json_line(row)); }
void RecordFile::append(const TrainingStep& step) { append_line(json_line(step)); }
void RecordFile::append(const ProfileRow& row) { append_line(json_line(row)); }

void RecordFile::append_line(const std::string& line) {
  const std::string text = line + "\n";
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t written =
        pwrite(descriptor_, text.data() + done, text.size() - done, end_ + static_cast<std::int64_t>(done));
    if (written > 0) done += static_cast<std::size_t>(written);
    if (written < 0 && errno != EINTR) break;
  }
  const int error = errno;
  if (done == text.size() && fsync(descriptor_) == 0) {
    end_ += static_cast<std::int64_t>(text.size());
    return;
  }
  if (ftruncate(descriptor_, end_) != 0) {
  }  // earlier rows are valid even if the torn line remains after them
  throw OutputLost(path_ + ": " + std::strerror(done == text.size() ? errno : error));
}

}  // namespace fovea::program
