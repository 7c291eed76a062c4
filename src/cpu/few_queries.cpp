// Forward for few query rows per key head over threads. A task is one chunk of the keys of one sequence (batch, key
// head) with all its rows; it writes a partial. A last pass adds each sequence's partials in order. The number of
// chunks depends only on the shape, so results do not depend on the threads.
#include "cpu/few_queries.h"

#include <algorithm>
#include <string>

#include "cpu/call.h"
#include "cpu/plan_kinds.h"
#include "cpu/threads.h"

namespace fovea::cpu {
namespace {

constexpr std::int64_t kEnoughFewQueriesTasks = 64;  // keys are split into chunks until there are this many tasks
constexpr std::int64_t kMinFewQueriesChunk = 512;
// Bytes of K and V of all sequences beyond which the caches may not hold them. Many rows leave more time for
// prefetching, so it pays earlier.
constexpr std::int64_t kFarBytes = std::int64_t{12} << 20, kFarBytesOfManyRows = std::int64_t{6} << 20;
constexpr std::int64_t kManyRows = 8;

class FewQueriesRun {
 public:
  FewQueriesRun(const FewQueriesPlan& plan, const ForwardTensors& tensors, const core::RunContext& context)
      : plan_(plan), tensors_(tensors), context_(context) {
    partials_ = static_cast<char*>(context.workspace);
    scratch_ = partials_ + plan.sequences.count * plan.chunks * plan.partial_bytes;
  }

  void run() const {
    const std::int64_t sequences = plan_.sequences.count, tasks = sequences * plan_.chunks;
    const bool whole = for_each_item(context_.thread_pool, workers_of(context_, plan_.most_workers, tasks), tasks,
                                     [&](std::int64_t item, int worker) { return attend(item, worker); });
    if (!whole) fail_cancelled(plan_);
    if (plan_.chunks == 1) return;  // each task has combined its own
    for_each_item(context_.thread_pool, workers_of(context_, plan_.most_workers, sequences), sequences,
                  [&](std::int64_t sequence, int worker) {
                    combine(sequence, worker);
                    return true;
                  });
  }

 private:
  float* partial(std::int64_t item) const { return reinterpret_cast<float*>(partials_ + item * plan_.partial_bytes); }
  char* scratch(int worker) const { return scratch_ + worker * plan_.scratch_bytes; }

  bool attend(std::int64_t item, int worker) const {
    const std::int64_t sequence = item / plan_.chunks, chunk = item % plan_.chunks;
    FewQueriesTask task{};
    task.shape = &plan_.shape;
    task.q = query_rows(plan_.sequences, tensors_.q, sequence);
    task.k = key_rows(plan_.sequences, tensors_.k, sequence);
    task.v = key_rows(plan_.sequences, tensors_.v, sequence);
    task.first_key = plan_.first_key + chunk * plan_.chunk_keys;
    task.keys = std::min(plan_.chunk_keys, plan_.keys - chunk * plan_.chunk_keys);
    task.far = plan_.far;
    task.partial = partial(item);
    task.scratch = scratch(worker);
    task.cancel = cancel_flag(context_);
    if (!plan_.kernels.few_queries(task)) return false;
    if (plan_.chunks == 1) combine(sequence, worker);
    return true;
  }

  void combine(std::int64_t sequence, int worker) const {
    CombineTask task{};
    task.shape = &plan_.shape;
    task.partials = partial(sequence * plan_.chunks);
    task.chunks = plan_.chunks;
    task.out = query_rows(plan_.sequences, tensors_.out, sequence);
    task.lse = query_rows(plan_.sequences, tensors_.lse, sequence);
    task.scratch = scratch(worker);
    plan_.kernels.combine_partials(task);
  }

  const FewQueriesPlan& plan_;
  const ForwardTensors& tensors_;
  const core::RunContext& context_;
  char* partials_;
  char* scratch_;
};

}  // namespace

bool FewQueriesPlan::takes(const Kernels& kernels, const AttentionProblem& p) {
  const Shape shape = shape_of(p);
  const std::int64_t rows = shape.group * shape.len_q;
  return rows > 0 && rows <= kernels.few_rows;
}

FewQueriesPlan::FewQueriesPlan(const Kernels& by, const AttentionProblem& p) : ForwardPlan(by, p) {
  first_key = std::clamp<std::int64_t>(shape.window_begin, 0, shape.len_k);
  const std::int64_t end_key = std::clamp<std::int64_t>(shape.len_q - 1 + shape.window_end, first_key, shape.len_k);
  keys = end_key - first_key;
  const std::int64_t wanted = divide_up(kEnoughFewQueriesTasks, std::max<std::int64_t>(1, sequences.count));
  const std::int64_t most_chunks = std::clamp<std::int64_t>(keys / kMinFewQueriesChunk, 1, wanted);
  chunk_keys =
      std::max<std::int64_t>(1, divide_up(divide_up(keys, most_chunks), by.few_chunk_step)) * by.few_chunk_step;
  chunks = std::max<std::int64_t>(1, divide_up(keys, chunk_keys));
  far = sequences.count * keys * (p.dim_qk + p.dim_v) * size_of(p.dtype) >
        (rows < kManyRows ? kFarBytes : kFarBytesOfManyRows);
  partial_bytes = align_up(by.few_partial_bytes(shape));
  scratch_bytes = align_up(by.few_scratch_bytes(shape));
  most_workers = cpu::most_workers(sequences.count * chunks);
  workspace_bytes = sequences.count * chunks * partial_bytes + most_workers * scratch_bytes;
  tiles = "few queries: " + std::to_string(rows) + " query rows per key head, " +
          std::to_string(std::min(chunk_keys, keys)) + " keys per task, " + std::to_string(sequences.count * chunks) +
          " tasks";
  if (sequences.count * keys == 0) return;
  kinds.push_back(chunks > 1 ? kinds::kFewQueriesInChunks : kinds::kFewQueries);
  if (far) kinds.push_back(kinds::kFewQueriesFar);
}

void FewQueriesPlan::run(const ForwardTensors& tensors, const core::RunContext& context) const {
  FewQueriesRun(*this, tensors, context).run();
}

}  // namespace fovea::cpu
