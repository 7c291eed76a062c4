// How rows are divided on a GPU: a thread block takes every so many tokens, and each of its warps some of the heads.
#pragma once

#include <cstdint>

namespace fovea::heads {

inline constexpr std::int64_t kGpuWarps = 4;
inline constexpr std::int64_t kEnoughGpuCtas = 1056;  // for every SM of a large GPU: 8 of 132
inline constexpr std::int64_t kMostGpuCtas = 1024;    // if they sum the gradient of a weight

}  // namespace fovea::heads
