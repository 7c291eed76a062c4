#include "baselines/blocks.h"

#include <omp.h>

#include <algorithm>
#include <atomic>
#include <exception>

#include "core/check.h"

namespace fovea::baselines {
namespace {

constexpr std::int64_t kMostRows = 256;   // a block of the widest common matrices stays near the last-level cache
constexpr std::int64_t kFewestRows = 32;  // below this the library's packing of the other operand shows

struct Job {
  const std::function<void(std::int64_t)>* task;
  const std::atomic<bool>* cancel;
  std::atomic<bool> failed = false;
  std::exception_ptr error = nullptr;  // the first one, carried out of the threads

  bool cancelled() const { return cancel != nullptr && cancel->load(std::memory_order_relaxed); }
  void run(std::int64_t index) {
    if (cancelled() || failed.load(std::memory_order_relaxed)) return;
    try {
      (*task)(index);
    } catch (...) {
      if (!failed.exchange(true)) error = std::current_exception();
    }
  }
};

void run_lent(void* argument, std::int64_t index, int) { static_cast<Job*>(argument)->run(index); }

}  // namespace

void run_tasks(const core::RunContext& context, std::int64_t count, const std::function<void(std::int64_t)>& task) {
  Job job{.task = &task, .cancel = context.cancel};
  if (context.lender != nullptr) {
    context.lender->run(context.lender->host, count, run_lent, &job);
  } else {
    const int threads = static_cast<int>(std::clamp<std::int64_t>(count, 1, context.threads));
#pragma omp parallel for schedule(dynamic) num_threads(threads)
    for (std::int64_t index = 0; index < count; ++index) job.run(index);
  }
  if (job.error != nullptr) std::rethrow_exception(job.error);
  if (job.cancelled()) core::fail({.status = Status::cancelled, .problem = "the cancel flag was raised"});
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
