// Writes a whole file, or appends to it, and makes its folder.
#include "program/output_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace fovea::program {

void write_file(const std::string& path, const std::string& text, WriteMode mode) {
  errno = 0;
  std::ofstream file(path, mode == WriteMode::at_end ? std::ios::binary | std::ios::app : std::ios::binary);
  file << text;
  file.close();
  if (!file) throw OutputLost(path + ": " + std::strerror(errno == 0 ? EIO : errno));
}

void make_folder(const std::string& path) {
  std::error_code failed;
  std::filesystem::create_directories(path, failed);
  if (failed.value() == ENOSPC || failed.value() == EDQUOT) throw OutputLost(path + ": " + failed.message());
  if (failed) throw std::filesystem::filesystem_error("no folder", path, failed);
}

}  // namespace fovea::program
