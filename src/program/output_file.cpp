// Writes a whole file, or appends to it, and makes its folder.
#include "program/output_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace fovea::program {
namespace {

std::string reason_of(const std::string& path, int error) {
  return path + ": " + std::strerror(error == 0 ? EIO : error);
}

bool is_full(int error) { return error == ENOSPC || error == EDQUOT; }

// The path could not be made.
[[noreturn]] void refuse(const std::string& path, int error) {
  if (is_full(error)) throw OutputLost(reason_of(path, error));
  throw FileRefused(reason_of(path, error));
}

}  // namespace

void write_file(const std::string& path, const std::string& text, WriteMode mode) {
  errno = 0;
  std::ofstream file(path, mode == WriteMode::at_end ? std::ios::binary | std::ios::app : std::ios::binary);
  if (!file) refuse(path, errno);
  file << text;
  file.close();
  if (!file) throw OutputLost(reason_of(path, errno));
}

void make_folder(const std::string& path) {
  std::error_code failed;
  std::filesystem::create_directories(path, failed);
  if (failed) refuse(path, failed.value());
}

}  // namespace fovea::program
