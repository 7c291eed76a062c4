// Cutting work into blocks, and carrying errors and cancellation out of the threads.
#include "baselines/blocks.h"

#include <algorithm>
#include <atomic>
#include <exception>

#include "core/check.h"
#include "cpu/threads.h"

namespace fovea::baselines {
namespace {

constexpr std::int64_t kMostRows = 256;   // a block of the widest common matrices stays near the last-level cache
constexpr std::int64_t kFewestRows = 32;  // below this the library's packing of the other operand shows

}  // namespace

void run_tasks(const core::RunContext& context, std::int64_t count, const std::function<void(std::int64_t)>& task) {
  const auto cancelled = [&context] { return context.cancel != nullptr && context.cancel->load(); };
  std::atomic<bool> failed = false;
  std::exception_ptr error = nullptr;  // the first one, carried out of the threads
  cpu::for_each_item(context.lender, context.threads, count, [&](std::int64_t index, int) {
    if (cancelled()) return false;
    try {
      task(index);
      return true;
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
      return false;
    }
  });
  if (error != nullptr) std::rethrow_exception(error);
  if (cancelled()) core::fail({.status = Status::cancelled, .problem = "the cancel flag was raised"});
}

void for_each_block(const core::RunContext& context, std::int64_t batch, std::int64_t heads, std::int64_t rows,
                    const std::function<void(const RowBlock&)>& task) {
  // Four blocks a thread even out their ends.
  const std::int64_t wanted = std::max<std::int64_t>(1, 4 * context.threads / std::max<std::int64_t>(1, batch * heads));
  const std::int64_t block = std::clamp((rows + wanted - 1) / wanted, kFewestRows, kMostRows);
  const std::int64_t blocks = (rows + block - 1) / block;
  run_tasks(context, batch * heads * blocks, [&](std::int64_t index) {
    const std::int64_t plane = index / blocks, first = index % blocks * block;
    task({plane / heads, plane % heads, first, std::min(block, rows - first)});
  });
}

}  // namespace fovea::baselines
