// Reads the files, and cuts them into sequences.
#include "program/train/text.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/check.h"
#include "core/random.h"
#include "program/weights/sha256.h"

namespace fovea::program {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void refuse(const std::string& problem, const std::string& got, const std::string& wanted) {
  core::fail({.status = Status::invalid_argument,
              .argument = "--text",
              .problem = problem,
              .got = got,
              .wanted = wanted,
              .hint = "on Debian, the package base-files has /usr/share/common-licenses"});
}

std::vector<fs::path> paths_of(const std::string& path) {
  std::error_code failed;
  if (fs::is_regular_file(path, failed)) return {path};
  std::vector<fs::path> paths;
  for (fs::directory_iterator entry(path, failed), end; !failed && entry != end; entry.increment(failed)) {
    if (!entry->is_symlink() && entry->is_regular_file()) paths.push_back(entry->path());
  }
  if (failed) refuse("the text cannot be read: " + failed.message(), path, "a file, or a folder of text files");
  std::ranges::sort(paths);
  return paths;
}

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file || file.bad()) refuse("a file cannot be read", path.string(), "files that this user may read");
  return bytes;
}

void append(const TextFile& file, std::int64_t first, std::int64_t length, Sequences& to) {
  for (std::int64_t i = first; i < first + length; ++i) {
    to.tokens.push_back(static_cast<unsigned char>(file.bytes[static_cast<std::size_t>(i)]));
    to.targets.push_back(static_cast<unsigned char>(file.bytes[static_cast<std::size_t>(i + 1)]));
  }
}

}  // namespace

Text read_text(const std::string& path, std::int64_t context) {
  Text text;
  Sha256 sha256;
  for (const fs::path& one : paths_of(path)) {
    TextFile file{.name = one.filename().string(), .bytes = bytes_of(one)};
    const auto size = static_cast<std::int64_t>(file.bytes.size());
    file.held_out_from = size - size / 10;
    if (file.held_out_from < context + 1) continue;
    sha256.add(file.bytes.data(), file.bytes.size());
    text.training_bytes += file.held_out_from;
    text.held_out_bytes += size - file.held_out_from;
    text.files.push_back(std::move(file));
  }
  if (text.held_out_bytes == 0)
    refuse("no text of a useful length", path, "files whose first nine tenths hold context + 1 bytes");
  text.sha256 = sha256.hex();
  return text;
}

Sequences training_sequences(const Text& text, std::int64_t length, std::int64_t count, std::uint64_t seed,
                             std::uint64_t step) {
  std::int64_t places = 0;
  for (const TextFile& file : text.files) places += file.held_out_from - length;
  Sequences result;
  for (std::int64_t i = 0; i < count; ++i) {
    const core::RandomBlock random = core::philox(seed ^ 0x74726169u, step, static_cast<std::uint64_t>(i));
    const std::uint64_t wide = static_cast<std::uint64_t>(random[1]) << 32 | random[0];
    auto place = static_cast<std::int64_t>(wide % static_cast<std::uint64_t>(places));
    auto file = text.files.begin();
    while (place >= file->held_out_from - length) place -= file++->held_out_from - length;
    append(*file, place, length, result);
  }
  return result;
}

HeldOut held_out_sequences(const Text& text, std::int64_t length, std::int64_t batch) {
  HeldOut result;
  const std::int64_t stride = std::max<std::int64_t>(length / 2, 1);
  const auto add = [&](const TextFile& file, std::int64_t first, std::int64_t begin, std::int64_t end) {
    append(file, first, length, result.sequences);
    for (std::int64_t i = first + 1; i <= first + length; ++i) result.counts.push_back(i >= begin && i < end);
  };
  for (const TextFile& file : text.files) {
    const auto size = static_cast<std::int64_t>(file.bytes.size());
    for (std::int64_t begin = file.held_out_from; begin < size; begin += stride) {
      const std::int64_t end = std::min(begin + stride, size);
      add(file, end - 1 - length, begin, end);
    }
  }
  const TextFile& first = text.files.front();
  while (static_cast<std::int64_t>(result.counts.size()) % (length * batch) != 0) add(first, 0, 0, 0);
  return result;
}

}  // namespace fovea::program
