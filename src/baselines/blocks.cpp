// Splits work into blocks.
#include "baselines/blocks.h"

#include <algorithm>

#include "cpu/tasks.h"

namespace fovea::baselines {
namespace {

constexpr std::int64_t kMostRows = 256;   // a block of the widest common matrices about fits in the last-level cache
constexpr std::int64_t kFewestRows = 32;  // with fewer, the library's packing of the other operand costs too much

}  // namespace

void run_tasks(const core::RunContext& context, std::int64_t count, const std::function<void(std::int64_t)>& task) {
  cpu::run_cancellable(context, context.threads, count, [&task](std::int64_t index, int) { task(index); });
}

void for_each_block(const core::RunContext& context, std::int64_t batch, std::int64_t heads, std::int64_t rows,
                    const std::function<void(const RowBlock&)>& task) {
  // With four blocks per thread, threads end at about the same time.
  const std::int64_t wanted = std::max<std::int64_t>(1, 4 * context.threads / std::max<std::int64_t>(1, batch * heads));
  const std::int64_t block = std::clamp((rows + wanted - 1) / wanted, kFewestRows, kMostRows);
  const std::int64_t blocks = (rows + block - 1) / block;
  run_tasks(context, batch * heads * blocks, [&](std::int64_t index) {
    const std::int64_t plane = index / blocks, first = index % blocks * block;
    task({plane / heads, plane % heads, first, std::min(block, rows - first)});
  });
}

}  // namespace fovea::baselines
