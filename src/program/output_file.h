// Files that a verb leaves behind, and what becomes of a verb that cannot write one.
#pragma once

#include <stdexcept>
#include <string>

namespace fovea::program {

inline constexpr int kOutputLost = 3;  // exit code

// The disk is full (or the quota, or the file size limit), or takes no writes. What was written before is intact.
struct OutputLost : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class WriteMode { anew, at_end };

// Throws OutputLost with the path and the system's reason.
void write_file(const std::string& path, const std::string& text, WriteMode mode = WriteMode::anew);

// Makes the folder and those above it. Throws OutputLost where the disk is full, else
// std::filesystem::filesystem_error.
void make_folder(const std::string& path);

}  // namespace fovea::program
