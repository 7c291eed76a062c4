// Fuzzer of the record loader: a file either loads, and then every row prints and parses back, or is refused by name.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "program/record/record_file.h"
#include "verification/model/operation.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace fovea::program;
  [[maybe_unused]] static const bool registered =
      (fovea::verification::register_operation(fovea::verification::model_operation()), true);
  static const int descriptor = memfd_create("records", 0);
  static const std::string path = "/proc/self/fd/" + std::to_string(descriptor);
  if (ftruncate(descriptor, 0) != 0 || pwrite(descriptor, data, size, 0) != static_cast<ssize_t>(size)) std::abort();
  try {
    const Records records = load_records(path);
    if (records.valid_bytes > static_cast<std::int64_t>(size)) std::abort();
    if (records.rows.size() != records.environment_of_row.size()) std::abort();
    for (const Row& row : records.rows) {
      if (json_line(row_of(json_line(row))) != json_line(row)) std::abort();
    }
    for (const auto& [number, step] : records.steps) {
      if (json_line(training_step_of(json_line(step))) != json_line(step)) std::abort();
    }
    for (const ProfileRow& row : records.profiles) {
      if (json_line(profile_row_of(json_line(row))) != json_line(row)) std::abort();
    }
    for (const Environment& environment : records.environments) {
      if (json_line(environment_of(json_line(environment))) != json_line(environment)) std::abort();
    }
  } catch (const RecordFileError& error) {
    if (std::string_view(error.what()).empty()) std::abort();
  }
  return 0;
}
