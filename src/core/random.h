// Counter-based random numbers: a value depends only on its key and position, not on the order of the calls.
// Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011.
#pragma once

#include <array>
#include <cstdint>

namespace fovea::core {

using RandomBlock = std::array<std::uint32_t, 4>;

constexpr RandomBlock philox(std::uint64_t key, std::uint64_t stream, std::uint64_t position) {
  RandomBlock c{static_cast<std::uint32_t>(position), static_cast<std::uint32_t>(position >> 32),
                static_cast<std::uint32_t>(stream), static_cast<std::uint32_t>(stream >> 32)};
  auto k0 = static_cast<std::uint32_t>(key), k1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xD2511F53u} * c[0], p1 = std::uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// Roughly normal with mean 0 and variance 1, at most 4.9 in size. It is a sum of eight uniform 16-bit numbers: integer
// arithmetic gives the same bits on every machine.
constexpr float approximate_normal(const RandomBlock& block) {
  std::int32_t sum = 0;
  for (const std::uint32_t word : block)
    sum += static_cast<std::int32_t>(word & 0xffffu) + static_cast<std::int32_t>(word >> 16);
  return static_cast<float>(sum - 4 * 65535) * 1.8688006e-5f;  // 1 / sqrt(8 * 65536^2 / 12)
}

}  // namespace fovea::core
