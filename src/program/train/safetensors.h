// Files of the safetensors format: 8 bytes with the header's length, a JSON header, the tensors' bytes in order. See
// huggingface.co/docs/safetensors. Fovea writes and reads fp32 (F32).
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

namespace fovea::program {

using Metadata = std::map<std::string, std::string>;

struct StoredTensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::span<const float> values;
};

// The file is another's, damaged or incomplete; what() begins with its path.
struct SafetensorsError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Writes to a temporary file beside `path`, flushes it to the disk and renames it, so that `path` is always the earlier
// file or the whole new one. Throws OutputLost. The metadata gets one more entry: the SHA-256 of the tensors' bytes.
void write_safetensors(const std::string& path, Metadata metadata, const std::vector<StoredTensor>& tensors);

// A whole file in memory. Refuses one whose tensors do not fill it exactly, or whose bytes are not what was written.
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);

  const Metadata& metadata() const { return metadata_; }
  std::size_t count() const { return tensors_.size(); }

  // Throws SafetensorsError if there is no such tensor, or one of another shape.
  void read(const std::string& name, const std::vector<std::int64_t>& shape, std::span<float> to) const;

 private:
  struct Entry {
    std::vector<std::int64_t> shape;
    std::size_t begin = 0, end = 0;  // bytes of data_
  };
  [[noreturn]] void refuse(const std::string& why) const;
  void read_header(const std::string& json);
  void read_entry(const std::string& name, const void* json);
  void check_data() const;

  std::string path_;
  Metadata metadata_;
  std::map<std::string, Entry> tensors_;
  std::string data_;
};

}  // namespace fovea::program
