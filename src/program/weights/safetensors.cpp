// Writes whole files or none; reads no byte that the header does not account for.
#include "program/weights/safetensors.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>

#include "core/float16.h"
#include "program/output_file.h"
#include "program/record/whole_number.h"
#include "program/weights/sha256.h"

namespace fovea::program {
namespace {

using Json = nlohmann::ordered_json;

static_assert(std::endian::native == std::endian::little, "the format stores little-endian numbers");

constexpr const char* kDigest = "data_sha256";
constexpr std::size_t kPiece = std::size_t{1} << 20;   // bytes that are read at once
constexpr std::uint64_t kLongestHeader = 100'000'000;  // the format's limit

// A file that is written beside its place; unless it is finished, it is removed.
class NewFile {
 public:
  explicit NewFile(const std::string& path) : path_(path), temporary_(path + ".partial") {
    descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (descriptor_ < 0) lose();
  }
  ~NewFile() {
    if (descriptor_ < 0) return;
    close(descriptor_);
    unlink(temporary_.c_str());
  }
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(const void* data, std::size_t bytes) {
    const auto* from = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written = ::write(descriptor_, from, bytes);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) lose();
      from += written;
      bytes -= static_cast<std::size_t>(written);
    }
  }

  void finish() {
    if (fsync(descriptor_) != 0 || rename(temporary_.c_str(), path_.c_str()) != 0) lose();
    close(descriptor_);
    descriptor_ = -1;
    const std::string folder = std::filesystem::absolute(path_).parent_path().string();
    const int opened = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (opened < 0) return;
    (void)fsync(opened);  // some file systems cannot flush a folder
    close(opened);
  }

 private:
  [[noreturn]] void lose() const { throw OutputLost(path_ + ": " + std::strerror(errno == 0 ? EIO : errno)); }

  std::string path_, temporary_;
  int descriptor_ = -1;
};

std::int64_t elements_of(const std::vector<std::int64_t>& shape) {
  std::int64_t count = 1;
  for (const std::int64_t size : shape) {
    if (size < 0 || __builtin_mul_overflow(count, size, &count) || count > std::int64_t{1} << 50) return -1;
  }
  return count;
}

// Of an element; 0: of a type that is not read.
std::size_t bytes_of(const std::string& dtype) {
  if (dtype == "F32") return 4;
  return dtype == "BF16" || dtype == "F16" ? 2 : 0;
}

}  // namespace

bool is_read_type(const std::string& dtype) { return bytes_of(dtype) > 0; }

std::string text_of(const std::vector<std::int64_t>& shape) {
  std::string text;
  for (const std::int64_t size : shape) text += (text.empty() ? "" : ", ") + std::to_string(size);
  return "[" + text + "]";
}

void write_safetensors(const std::string& path, Metadata metadata, const std::vector<StoredTensor>& tensors) {
  Sha256 sha256;
  Json header = Json::object();
  Json entries = Json::object();
  std::size_t begin = 0;
  for (const StoredTensor& one : tensors) {
    const std::size_t bytes = one.values.size_bytes();
    entries[one.name] = {{"dtype", "F32"}, {"shape", one.shape}, {"data_offsets", {begin, begin + bytes}}};
    sha256.add(one.values.data(), bytes);
    begin += bytes;
  }
  metadata[kDigest] = sha256.hex();
  header["__metadata__"] = metadata;
  header.update(entries);
  std::string json = header.dump();
  json.resize((json.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = json.size();
  NewFile file(path);
  file.write(&length, sizeof length);
  file.write(json.data(), json.size());
  for (const StoredTensor& one : tensors) file.write(one.values.data(), one.values.size_bytes());
  file.finish();
}

void SafetensorsFile::refuse(const std::string& why) const { throw SafetensorsError(path_ + ": " + why); }

SafetensorsFile::SafetensorsFile(const std::string& path) : path_(path) {
  std::error_code failed;
  const std::uintmax_t size = std::filesystem::file_size(path, failed);
  if (failed) refuse(failed.message());
  descriptor_ = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor_ < 0) refuse(std::strerror(errno));
  try {
    std::uint64_t length = 0;
    if (size < sizeof length) refuse("no safetensors file, or only the beginning of one");
    read_bytes(&length, sizeof length, 0);
    if (length > kLongestHeader || length > size - sizeof length)
      refuse("no safetensors file, or only the beginning of one");
    std::string json(length, '\0');
    read_bytes(json.data(), json.size(), sizeof length);
    data_begin_ = sizeof length + length;
    data_bytes_ = size - data_begin_;
    read_header(json);
    check_data();
  } catch (...) {
    close(descriptor_);
    throw;
  }
}

SafetensorsFile::~SafetensorsFile() { close(descriptor_); }

void SafetensorsFile::read_bytes(void* to, std::size_t bytes, std::size_t position) const {
  auto* next = static_cast<char*>(to);
  while (bytes > 0) {
    const ssize_t count = pread(descriptor_, next, bytes, static_cast<off_t>(position));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) refuse(std::strerror(errno));
    if (count == 0) refuse("could not be read to its end");
    next += count, position += static_cast<std::size_t>(count), bytes -= static_cast<std::size_t>(count);
  }
}

void SafetensorsFile::read_header(const std::string& json) {
  const Json header = Json::parse(json, nullptr, false);
  if (!header.is_object()) refuse("no safetensors file: its header is no JSON object");
  for (const auto& [name, entry] : header.items()) {
    if (name != "__metadata__") {
      read_entry(name, &entry);
      continue;
    }
    if (!entry.is_object()) refuse("`__metadata__` is no object");
    for (const auto& [key, value] : entry.items()) {
      if (!value.is_string()) refuse("`" + key + "` in `__metadata__` is no text");
      metadata_[key] = value.get<std::string>();
    }
  }
}

void SafetensorsFile::read_entry(const std::string& name, const void* json) {
  const Json& entry = *static_cast<const Json*>(json);
  const auto numbers = [&](const char* key) {
    std::vector<std::int64_t> all;
    if (!entry.is_object() || !entry.contains(key) || !entry[key].is_array())
      refuse("`" + name + "` has no `" + key + "`");
    for (const Json& one : entry[key]) all.push_back(whole_number(one).value_or(-1));
    return all;
  };
  Entry tensor{.dtype = {}, .shape = numbers("shape")};
  const std::vector<std::int64_t> offsets = numbers("data_offsets");
  if (!entry.contains("dtype") || !entry["dtype"].is_string()) refuse("`" + name + "` has no `dtype`");
  tensor.dtype = entry["dtype"].get<std::string>();
  const std::int64_t elements = elements_of(tensor.shape);
  if (offsets.size() != 2 || elements < 0 || offsets[0] < 0 || offsets[1] < offsets[0] ||
      offsets[1] > static_cast<std::int64_t>(data_bytes_))
    refuse("`" + name + "` lies outside of the file, or the file was cut off");
  const auto size = static_cast<std::int64_t>(bytes_of(tensor.dtype));
  if (size > 0 && offsets[1] - offsets[0] != elements * size)
    refuse("`" + name + "` has another number of bytes than its shape");
  tensor.begin = static_cast<std::size_t>(offsets[0]), tensor.end = static_cast<std::size_t>(offsets[1]);
  tensors_[name] = tensor;
}

void SafetensorsFile::check_data() const {
  std::set<std::pair<std::size_t, std::size_t>> pieces;
  for (const auto& [name, one] : tensors_) pieces.emplace(one.begin, one.end);
  std::size_t end = 0;
  for (const auto& [first, last] : pieces) {
    if (first != end) refuse("the tensors overlap or leave gaps");
    end = last;
  }
  if (end != data_bytes_) refuse("holds bytes beside its tensors");
  const auto digest = metadata_.find(kDigest);
  if (digest == metadata_.end()) return;
  Sha256 sha256;
  std::vector<char> piece(std::min(data_bytes_, kPiece));
  for (std::size_t done = 0; done < data_bytes_; done += kPiece) {
    const std::size_t bytes = std::min(data_bytes_ - done, kPiece);
    read_bytes(piece.data(), bytes, data_begin_ + done);
    sha256.add(piece.data(), bytes);
  }
  if (sha256.hex() != digest->second) refuse("damaged: its bytes are not the ones that were written");
}

void SafetensorsFile::read(const std::string& name, const std::vector<std::int64_t>& shape, std::span<float> to) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) refuse("holds no tensor `" + name + "`");
  const Entry& one = found->second;
  if (one.shape != shape) refuse("`" + name + "` has the shape " + text_of(one.shape) + ", wanted " + text_of(shape));
  const std::size_t size = bytes_of(one.dtype);
  if (size == 0) refuse("`" + name + "` is of type " + one.dtype + ", wanted " + kReadTypes);
  if (one.end - one.begin != to.size() * size) refuse("`" + name + "` does not fit the memory that is there for it");
  if (size == sizeof(float)) return read_bytes(to.data(), to.size_bytes(), data_begin_ + one.begin);
  const DType type = one.dtype == "BF16" ? DType::bf16 : DType::fp16;
  constexpr std::size_t kElements = kPiece / sizeof(std::uint16_t);
  std::vector<std::uint16_t> piece(std::min(to.size(), kElements));
  for (std::size_t done = 0; done < to.size(); done += kElements) {
    const std::size_t count = std::min(to.size() - done, kElements);
    read_bytes(piece.data(), count * size, data_begin_ + one.begin + done * size);
    for (std::size_t i = 0; i < count; ++i)
      to[done + i] = core::load_as_float(piece.data(), type, static_cast<std::int64_t>(i));
  }
}

}  // namespace fovea::program
