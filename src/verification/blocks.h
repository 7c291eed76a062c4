// Threads that share the work on large tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>

namespace fovea::verification {

// Calls work(first, count) for blocks of up to `width` of `total` items, on several threads if the multiply-adds of all
// are worth it. Blocks must not write the same memory. An exception of `work` reaches the caller.
void for_each_block(std::int64_t total, std::int64_t width, double multiply_adds,
                    const std::function<void(std::int64_t first, std::int64_t count)>& work);

// A hash of many bytes, from hashes of their parts.
std::size_t digest_of(std::string_view bytes);

}  // namespace fovea::verification
