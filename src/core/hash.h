// A hash of several values, for the cache of plans.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace fovea::core {

// Of numbers, enumerators and strings. Equal values in the same order have the same hash.
template <class... Values>
std::size_t hash_of(const Values&... values) {
  std::uint64_t hash = 0;
  const auto add = [&hash](std::uint64_t one) {
    hash = (hash ^ one) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 32;
  };
  (add(std::hash<Values>()(values)), ...);
  return static_cast<std::size_t>(hash);
}

}  // namespace fovea::core
