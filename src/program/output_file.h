// Output files of a verb, and the error if one cannot be written.
#pragma once

#include <stdexcept>
#include <string>

namespace fovea::program {

inline constexpr int kOutputLost = 3;  // exit code

// The disk, the quota or the file size limit is full, or the disk takes no writes. Earlier output is intact.
struct OutputLost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// A file that the command line names cannot be used: its folder is missing, it is a folder, there is no permission.
// what() begins with its path. The program's exit code is 2.
struct FileRefused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class WriteMode { anew, at_end };

// Throws FileRefused if the file cannot be opened, OutputLost if it cannot be written; with the path and the system's
// reason.
void write_file(const std::string& path, const std::string& text, WriteMode mode = WriteMode::anew);

// Makes the folder and its parents. Throws OutputLost if the disk is full, FileRefused for other failures.
void make_folder(const std::string& path);

}  // namespace fovea::program
