// SHA-256 (FIPS 180-4), which names the text of a training and guards its checkpoints.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

namespace fovea::program {

class Sha256 {
 public:
  void add(const void* data, std::size_t bytes);
  std::string hex();  // ends the message; 64 lower-case digits

 private:
  void add_block(const unsigned char* block);

  std::array<std::uint32_t, 8> state_{0x6a09e667u, 0xbb67ae85u, 0x3c6ef372u, 0xa54ff53au,
                                      0x510e527fu, 0x9b05688cu, 0x1f83d9abu, 0x5be0cd19u};
  std::array<unsigned char, 64> block_{};
  std::size_t filled_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace fovea::program
