// Threads take the next block until none is left.
#include "verification/blocks.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace fovea::verification {
namespace {

constexpr double kWorthThreads = 2e7;                         // multiply-adds
constexpr std::int64_t kHashedBytes = std::int64_t{1} << 20;  // by a thread at once

}  // namespace

void for_each_block(std::int64_t total, std::int64_t width, double multiply_adds,
                    const std::function<void(std::int64_t first, std::int64_t count)>& work) {
  std::atomic<std::int64_t> next = 0;
  std::exception_ptr failure;
  std::mutex failing;
  const auto take = [&] {
    try {
      for (std::int64_t at = next.fetch_add(width); at < total; at = next.fetch_add(width))
        work(at, std::min(width, total - at));
    } catch (...) {
      const std::lock_guard lock(failing);
      failure = std::current_exception();
    }
  };
  std::vector<std::jthread> others;
  const std::int64_t blocks = (total + width - 1) / width;
  const auto processors = static_cast<std::int64_t>(std::thread::hardware_concurrency());
  try {
    for (std::int64_t n = 1; multiply_adds >= kWorthThreads && n < std::min(processors, blocks); ++n)
      others.emplace_back(take);
  } catch (const std::system_error&) {  // no further thread: those that started share the work
  }
  take();
  others.clear();  // joins them
  if (failure) std::rethrow_exception(failure);
}

std::size_t digest_of(std::string_view bytes) {
  const std::hash<std::string_view> hash;
  const std::int64_t parts = (std::ssize(bytes) + kHashedBytes - 1) / kHashedBytes;
  std::vector<std::size_t> digests(static_cast<std::size_t>(parts));
  for_each_block(parts, 1, static_cast<double>(bytes.size()), [&](std::int64_t part, std::int64_t) {
    digests[static_cast<std::size_t>(part)] =
        hash(bytes.substr(static_cast<std::size_t>(part * kHashedBytes), static_cast<std::size_t>(kHashedBytes)));
  });
  return hash({reinterpret_cast<const char*>(digests.data()), digests.size() * sizeof(std::size_t)});
}

}  // namespace fovea::verification
