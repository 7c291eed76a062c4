// Files of the safetensors format: 8 bytes with the header's length, a JSON header, the tensors' bytes in order. See
// huggingface.co/docs/safetensors. Fovea writes fp32 (F32), and reads F32, BF16 and F16 as fp32.
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

// The header in memory, the tensors on disk until they are read. Refuses a file whose tensors do not fill it exactly,
// or whose bytes are not those of its SHA-256; files of other programs have none.
class SafetensorsFile {
 public:
  struct Entry {
    std::string dtype;  // F32, BF16, I64, ..
    std::vector<std::int64_t> shape;
    std::size_t begin = 0, end = 0;  // bytes behind the header
  };

  explicit SafetensorsFile(const std::string& path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const Metadata& metadata() const { return metadata_; }
  const std::map<std::string, Entry>& tensors() const { return tensors_; }

  // Throws SafetensorsError if there is no such tensor, or one of another shape or of a type that is not read.
  void read(const std::string& name, const std::vector<std::int64_t>& shape, std::span<float> to) const;

 private:
  [[noreturn]] void refuse(const std::string& why) const;
  void read_bytes(void* to, std::size_t bytes, std::size_t position) const;
  void read_header(const std::string& json);
  void read_entry(const std::string& name, const void* json);
  void check_data() const;

  std::string path_;
  int descriptor_ = -1;
  std::size_t data_begin_ = 0, data_bytes_ = 0;
  Metadata metadata_;
  std::map<std::string, Entry> tensors_;
};

inline constexpr const char* kReadTypes = "F32, BF16 or F16";
bool is_read_type(const std::string& dtype);

// [3, 4]
std::string text_of(const std::vector<std::int64_t>& shape);

}  // namespace fovea::program
