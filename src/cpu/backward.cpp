// Backward over threads. A task is one chunk of the keys of one sequence (batch, key head); it owns the chunk's dK and
// dV. The number of chunks depends only on the shape. With several chunks, each writes a partial of dQ, and a last pass
// adds the partials in order. So the order of the sums does not depend on the threads.
#include "cpu/backward.h"

#include <algorithm>
#include <string>

#include "cpu/call.h"
#include "cpu/threads.h"

namespace fovea::cpu {
namespace {

constexpr std::int64_t kEnoughTasks = 16;  // keys are split into chunks until there are this many tasks
constexpr std::int64_t kMinChunkKeys = 512;
constexpr std::int64_t kRowsPerItem = 128;  // query rows per item of the reduction

class BackwardRun {
 public:
  BackwardRun(const BackwardPlan& plan, const BackwardTensors& tensors, const core::RunContext& context)
      : plan_(plan), tensors_(tensors), context_(context) {
    partials_ = static_cast<char*>(context.workspace);
    scratch_ = partials_ + plan.sequences.count * plan.partial_bytes;
  }

  void run() const {
    if (!differentiate()) fail_cancelled(plan_);
    if (plan_.partial_bytes > 0) reduce();
  }

 private:
  float* partials(std::int64_t sequence) const {
    return reinterpret_cast<float*>(partials_ + sequence * plan_.partial_bytes);
  }

  // Calls work(sequence, first_row, rows, worker) for every group of kRowsPerItem query rows.
  template <class Work>
  void for_rows(const Work& work) const {
    const std::int64_t items = plan_.sequences.count * plan_.row_items();
    for_each_item(context_.thread_pool, workers_of(context_, plan_.most_workers, items), items,
                  [&](std::int64_t item, int worker) {
                    const std::int64_t first = item % plan_.row_items() * kRowsPerItem;
                    work(item / plan_.row_items(), first, std::min(kRowsPerItem, plan_.rows - first), worker);
                    return true;
                  });
  }

  bool differentiate() const {
    const std::int64_t tasks = plan_.sequences.count * plan_.chunks;
    return for_each_item(context_.thread_pool, workers_of(context_, plan_.most_workers, tasks), tasks,
                         [&](std::int64_t item, int worker) {
                           const std::int64_t sequence = item / plan_.chunks, chunk = item % plan_.chunks;
                           BackwardTask task{};
                           task.shape = &plan_.shape;
                           task.q = query_rows(plan_.sequences, tensors_.q, sequence);
                           task.k = key_rows(plan_.sequences, tensors_.k, sequence);
                           task.v = key_rows(plan_.sequences, tensors_.v, sequence);
                           task.out = query_rows(plan_.sequences, tensors_.out, sequence);
                           task.dout = query_rows(plan_.sequences, tensors_.dout, sequence);
                           task.lse = query_rows(plan_.sequences, tensors_.lse, sequence);
                           task.delta = query_rows(plan_.sequences, tensors_.delta, sequence);
                           task.first_key = chunk * plan_.chunk_keys;
                           task.keys = std::min(plan_.chunk_keys, plan_.shape.len_k - task.first_key);
                           task.dk = key_rows(plan_.sequences, tensors_.dk, sequence);
                           task.dv = key_rows(plan_.sequences, tensors_.dv, sequence);
                           if (plan_.partial_bytes > 0) {
                             task.dq_partial = partials(sequence) + chunk * plan_.rows * plan_.shape.dim_qk;
                           } else {
                             task.dq = query_rows(plan_.sequences, tensors_.dq, sequence);
                           }
                           task.accumulate = plan_.problem.accumulate;
                           task.scratch = scratch_ + worker * plan_.scratch_bytes;
                           task.cancel = cancel_flag(context_);
                           return plan_.kernels.backward(task);
                         });
  }

  void reduce() const {
    for_rows([&](std::int64_t sequence, std::int64_t first, std::int64_t rows, int worker) {
      ReduceTask task{};
      task.shape = &plan_.shape;
      task.partials = partials(sequence);
      task.chunks = plan_.chunks;
      task.chunk_keys = plan_.chunk_keys;
      task.first_row = first;
      task.rows = rows;
      task.dq = query_rows(plan_.sequences, tensors_.dq, sequence);
      task.accumulate = plan_.problem.accumulate;
      task.scratch = scratch_ + worker * plan_.scratch_bytes;
      plan_.kernels.reduce_dq(task);
    });
  }

  const BackwardPlan& plan_;
  const BackwardTensors& tensors_;
  const core::RunContext& context_;
  char* partials_;
  char* scratch_;
};

}  // namespace

BackwardPlan::BackwardPlan(const Kernels& by, const AttentionProblem& p)
    : attention::Plan(p), kernels(by), shape(shape_of(p)), sequences(sequences_of(p)) {
  rows = shape.group * shape.len_q;
  const std::int64_t wanted = divide_up(kEnoughTasks, std::max<std::int64_t>(1, sequences.count));
  const std::int64_t most_chunks =
      std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(1, p.len_k / kMinChunkKeys));
  chunk_keys = std::max<std::int64_t>(1, divide_up(divide_up(p.len_k, most_chunks), by.key_block)) * by.key_block;
  chunks = std::max<std::int64_t>(1, divide_up(p.len_k, chunk_keys));
  partial_bytes = chunks > 1 && p.wants_dq ? align_up(chunks * rows * p.dim_qk * 4) : 0;
  const std::int64_t task = by.backward_scratch_bytes(shape, std::min(chunk_keys, p.len_k));
  scratch_bytes = align_up(std::max(task, by.pack_scratch_bytes(shape)));
  most_workers = cpu::most_workers(sequences.count * std::max(chunks, row_items()));
  workspace_bytes = sequences.count * partial_bytes + most_workers * scratch_bytes;
  tiles = std::to_string(by.query_tile) + " queries x " + std::to_string(by.tile_rows) + " keys in registers, " +
          std::to_string(by.key_block) + " keys per block, " + std::to_string(std::min(chunk_keys, p.len_k)) +
          " keys per task, " + std::to_string(sequences.count * chunks) + " tasks";
}

std::int64_t BackwardPlan::row_items() const { return divide_up(rows, kRowsPerItem); }

void run_backward(const core::Plan& plan, const BackwardTensors& tensors, const core::RunContext& context) {
  BackwardRun(static_cast<const BackwardPlan&>(plan), tensors, context).run();
}

}  // namespace fovea::cpu
