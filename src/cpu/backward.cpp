// Backward over threads. A task is one chunk of the keys of one sequence (batch, key head); it owns the chunk's dK and
// dV. How many chunks there are follows from the shape alone. With several, each writes its share of dQ, and a last
// pass adds the shares in their order: sums have the same order whatever the threads.
#include "cpu/backward.h"

#include <algorithm>
#include <string>

#include "cpu/call.h"
#include "cpu/threads.h"

namespace fovea::cpu {
namespace {

constexpr std::int64_t kEnoughTasks = 16;   // keys are split to give this many
constexpr std::int64_t kLeastKeys = 512;    // but not into chunks smaller than this
constexpr std::int64_t kRowsPerItem = 128;  // of the row passes

struct BackwardLayout {
  Shape shape;
  std::int64_t sequences, rows, chunks, chunk_keys;
  std::int64_t partial_bytes;  // of one sequence
  std::int64_t scratch_bytes;  // of one runner
  std::int64_t row_items() const { return divide_up(rows, kRowsPerItem); }
  std::int64_t most_tasks() const { return sequences * std::max(chunks, row_items()); }
};

BackwardLayout lay_out(const Kernels& kernels, const AttentionProblem& p) {
  BackwardLayout l{};
  l.shape = shape_of(p);
  l.sequences = p.batch * p.heads_kv;
  l.rows = l.shape.group * l.shape.len_q;
  const std::int64_t wanted = divide_up(kEnoughTasks, std::max<std::int64_t>(1, l.sequences));
  const std::int64_t chunks = std::clamp<std::int64_t>(wanted, 1, std::max<std::int64_t>(1, p.len_k / kLeastKeys));
  l.chunk_keys =
      std::max<std::int64_t>(1, divide_up(divide_up(p.len_k, chunks), kernels.key_block)) * kernels.key_block;
  l.chunks = std::max<std::int64_t>(1, divide_up(p.len_k, l.chunk_keys));
  l.partial_bytes = l.chunks > 1 && p.wants_dq ? align_up(l.chunks * l.rows * p.dim_qk * 4) : 0;
  const std::int64_t task = kernels.backward_scratch_bytes(l.shape, std::min(l.chunk_keys, p.len_k));
  l.scratch_bytes = align_up(std::max(task, kernels.pack_scratch_bytes(l.shape)));
  return l;
}

class BackwardRun {
 public:
  BackwardRun(const Kernels& kernels, const AttentionProblem& problem, const BackwardTensors& tensors,
              const core::RunContext& context)
      : kernels_(kernels), problem_(problem), tensors_(tensors), context_(context), layout_(lay_out(kernels, problem)) {
    partials_ = static_cast<char*>(context.workspace);
    scratch_ = partials_ + layout_.sequences * layout_.partial_bytes;
  }

  void run() const {
    if (!differentiate()) fail_cancelled(problem_, "attention_backward");
    if (layout_.partial_bytes > 0) reduce();
  }

 private:
  float* partials(std::int64_t sequence) const {
    return reinterpret_cast<float*>(partials_ + sequence * layout_.partial_bytes);
  }

  // Calls work(sequence, first_row, rows, runner) for pieces of all query rows.
  template <class Work>
  void for_rows(const Work& work) const {
    const auto& l = layout_;
    const std::int64_t items = l.sequences * l.row_items();
    for_each_item(context_.lender, runners_of(context_, items), items, [&](std::int64_t item, int runner) {
      const std::int64_t first = item % l.row_items() * kRowsPerItem;
      work(item / l.row_items(), first, std::min(kRowsPerItem, l.rows - first), runner);
      return true;
    });
  }

  bool differentiate() const {
    const auto& l = layout_;
    const std::int64_t tasks = l.sequences * l.chunks;
    return for_each_item(context_.lender, runners_of(context_, tasks), tasks, [&](std::int64_t item, int runner) {
      const std::int64_t sequence = item / l.chunks, chunk = item % l.chunks;
      BackwardTask task{};
      task.shape = &l.shape;
      task.q = query_rows(problem_, tensors_.q, sequence);
      task.k = key_rows(problem_, tensors_.k, sequence);
      task.v = key_rows(problem_, tensors_.v, sequence);
      task.out = query_rows(problem_, tensors_.out, sequence);
      task.dout = query_rows(problem_, tensors_.dout, sequence);
      task.lse = query_rows(problem_, tensors_.lse, sequence);
      task.delta = query_rows(problem_, tensors_.delta, sequence);
      task.first_key = chunk * l.chunk_keys;
      task.keys = std::min(l.chunk_keys, problem_.len_k - task.first_key);
      task.dk = key_rows(problem_, tensors_.dk, sequence);
      task.dv = key_rows(problem_, tensors_.dv, sequence);
      if (l.partial_bytes > 0) {
        task.dq_partial = partials(sequence) + chunk * l.rows * problem_.dim_qk;
      } else {
        task.dq = query_rows(problem_, tensors_.dq, sequence);
      }
      task.accumulate = problem_.accumulate;
      task.scratch = scratch_ + runner * l.scratch_bytes;
      task.cancel = cancel_flag(context_);
      return kernels_.backward(task);
    });
  }

  void reduce() const {
    for_rows([&](std::int64_t sequence, std::int64_t first, std::int64_t rows, int runner) {
      ReduceTask task{};
      task.shape = &layout_.shape;
      task.partials = partials(sequence);
      task.chunks = layout_.chunks;
      task.chunk_keys = layout_.chunk_keys;
      task.first_row = first;
      task.rows = rows;
      task.dq = query_rows(problem_, tensors_.dq, sequence);
      task.accumulate = problem_.accumulate;
      task.scratch = scratch_ + runner * layout_.scratch_bytes;
      kernels_.reduce_dq(task);
    });
  }

  const Kernels& kernels_;
  const AttentionProblem& problem_;
  const BackwardTensors& tensors_;
  const core::RunContext& context_;
  BackwardLayout layout_;
  char* partials_;
  char* scratch_;
};

}  // namespace

core::Plan plan_backward(const Kernels& kernels, const AttentionProblem& problem) {
  const BackwardLayout l = lay_out(kernels, problem);
  return {.workspace_bytes = l.sequences * l.partial_bytes + most_runners(l.most_tasks()) * l.scratch_bytes};
}

std::string backward_tiles(const Kernels& kernels, const AttentionProblem& problem) {
  const BackwardLayout l = lay_out(kernels, problem);
  return std::to_string(kernels.query_tile) + " queries x " + std::to_string(kernels.tile_rows) +
         " keys in registers, " + std::to_string(kernels.key_block) + " keys a block, " +
         std::to_string(std::min(l.chunk_keys, problem.len_k)) + " keys a task, " +
         std::to_string(l.sequences * l.chunks) + " tasks";
}

void run_backward(const Kernels& kernels, const AttentionProblem& problem, const BackwardTensors& tensors,
                  const core::RunContext& context) {
  BackwardRun(kernels, problem, tensors, context).run();
}

}  // namespace fovea::cpu
