// Forward over threads. A task is one slab: some query rows of one sequence (batch, key head). All threads pack the K
// and V of a wave of sequences once, before the tasks of that wave start. If a sequence is a single slab, its task
// packs block by block instead. Slabs and waves do not change results, because rows are independent.
#include "cpu/forward.h"

#include <algorithm>
#include <string>

#include "cpu/call.h"
#include "cpu/few_queries.h"
#include "cpu/plan_kinds.h"
#include "cpu/threads.h"

namespace fovea::cpu {
namespace {

constexpr std::int64_t kMaxTiles = 8;          // query tiles that read a key block while it is in the cache
constexpr std::int64_t kEnoughSlabTasks = 32;  // slabs shrink, down to one tile, until there are this many tasks
constexpr std::int64_t kFewTiles = 8;
constexpr std::int64_t kPackedKeysBudget = std::int64_t{64} << 20;  // bytes of packed K and V in one wave

class ForwardRun {
 public:
  ForwardRun(const TiledForwardPlan& plan, const ForwardTensors& tensors, const core::RunContext& context)
      : plan_(plan), tensors_(tensors), context_(context) {
    packed_ = static_cast<char*>(context.workspace);
    scratch_ = packed_ + plan.packed_bytes;
  }

  // Packs the `count` sequences of the wave that starts at `first`.
  void pack(std::int64_t first, std::int64_t count) const {
    const std::int64_t blocks = count * plan_.blocks;
    for_each_item(context_.thread_pool, workers_of(context_, plan_.most_workers, blocks), blocks,
                  [&](std::int64_t item, int) {
                    const std::int64_t slot = item / plan_.blocks, block = item % plan_.blocks;
                    PackTask task{};
                    task.shape = &plan_.shape;
                    task.k = key_rows(plan_.sequences, tensors_.k, first + slot);
                    task.v = key_rows(plan_.sequences, tensors_.v, first + slot);
                    task.first_key = block * plan_.kernels.key_block;
                    task.packed_k = packed_k(slot) + block * plan_.kernels.packed_k_bytes(plan_.shape);
                    task.packed_v = packed_v(slot) + block * plan_.kernels.packed_v_bytes(plan_.shape);
                    plan_.kernels.pack(task);
                    return true;
                  });
  }

  bool attend(std::int64_t first, std::int64_t count) const {
    const std::int64_t tasks = count * plan_.slabs;
    return for_each_item(context_.thread_pool, workers_of(context_, plan_.most_workers, tasks), tasks,
                         [&](std::int64_t item, int worker) {
                           const std::int64_t slot = item / plan_.slabs,
                                              slab = plan_.slabs - 1 - item % plan_.slabs;  // causal: the longest first
                           ForwardTask task{};
                           task.shape = &plan_.shape;
                           task.q = query_rows(plan_.sequences, tensors_.q, first + slot);
                           task.k = key_rows(plan_.sequences, tensors_.k, first + slot);
                           task.v = key_rows(plan_.sequences, tensors_.v, first + slot);
                           task.out = query_rows(plan_.sequences, tensors_.out, first + slot);
                           task.lse = query_rows(plan_.sequences, tensors_.lse, first + slot);
                           if (!plan_.packs_itself) {
                             task.packed_k = packed_k(slot);
                             task.packed_v = packed_v(slot);
                           }
                           task.first_row = slab * plan_.slab_rows;
                           task.rows = std::min(plan_.slab_rows, plan_.rows - task.first_row);
                           task.scratch = scratch_ + worker * plan_.scratch_bytes;
                           task.cancel = cancel_flag(context_);
                           return plan_.kernels.forward(task);
                         });
  }

  void run() const {
    const std::int64_t at_once = wave();
    for (std::int64_t first = 0; first < plan_.sequences.count && plan_.rows > 0; first += at_once) {
      const std::int64_t count = std::min(at_once, plan_.sequences.count - first);
      if (!plan_.packs_itself) pack(first, count);
      if (!attend(first, count)) fail_cancelled(plan_);
    }
  }

 private:
  // Sequences that are packed together.
  std::int64_t wave() const {
    if (plan_.packs_itself) return plan_.wave;
    const int workers = workers_of(context_, plan_.most_workers, plan_.wave * plan_.slabs);
    return sequences_at_once(plan_.wave, plan_.slabs, workers);
  }

  char* packed_k(std::int64_t slot) const { return packed_ + slot * (plan_.k_bytes + plan_.v_bytes); }
  char* packed_v(std::int64_t slot) const { return packed_k(slot) + plan_.k_bytes; }

  const TiledForwardPlan& plan_;
  const ForwardTensors& tensors_;
  const core::RunContext& context_;
  char* packed_;
  char* scratch_;
};

}  // namespace

ForwardPlan::ForwardPlan(const Kernels& by, const AttentionProblem& p)
    : attention::Plan(p), kernels(by), shape(shape_of(p)), sequences(sequences_of(p)), rows(shape.group * shape.len_q) {
  if (p.heads_q == 0) sequences.count = 0;
}

TiledForwardPlan::TiledForwardPlan(const Kernels& by, const AttentionProblem& p) : ForwardPlan(by, p) {
  blocks = divide_up(p.len_k, by.key_block);
  const std::int64_t query_tiles = divide_up(rows, by.query_tile);
  const std::int64_t slab_tiles =
      std::clamp<std::int64_t>(sequences.count * query_tiles / kEnoughSlabTasks, 1, kMaxTiles);
  slab_rows = slab_tiles * by.query_tile;
  // A few slabs, an odd number: one more makes them smaller and lets two threads do as much each.
  if (sequences.count == 1 && query_tiles % 2 == 1 && query_tiles > 1 && query_tiles < kFewTiles)
    slab_rows = divide_up(divide_up(rows, query_tiles + 1), by.lanes) * by.lanes;
  slabs = divide_up(rows, slab_rows);
  packs_itself = slabs <= 1;
  k_bytes = align_up(by.packed_k_bytes(shape) * blocks);
  v_bytes = align_up(by.packed_v_bytes(shape) * blocks);
  wave = sequences.count;
  if (!packs_itself)
    wave = std::clamp<std::int64_t>(kPackedKeysBudget / std::max<std::int64_t>(1, k_bytes + v_bytes), 1,
                                    std::max<std::int64_t>(1, sequences.count));
  packed_bytes = packs_itself ? 0 : wave * (k_bytes + v_bytes);
  scratch_bytes = align_up(by.forward_scratch_bytes(shape, std::min(slab_rows, rows), packs_itself));
  most_workers =
      cpu::most_workers(std::min(wave, sequences.count) * std::max(slabs, packs_itself ? std::int64_t{1} : blocks));
  workspace_bytes = packed_bytes + most_workers * scratch_bytes;
  tiles = std::to_string(by.query_tile) + " queries x " + std::to_string(by.tile_rows) + " keys in registers, " +
          std::to_string(by.key_block) + " keys per block, " + std::to_string(slab_rows) + " query rows per task, " +
          std::to_string(sequences.count * slabs) + " tasks";
  if (sequences.count * rows * p.len_k == 0) return;
  kinds.push_back(packs_itself ? kinds::kPackedByTasks : wave < sequences.count ? kinds::kWaves : kinds::kPackedOnce);
  if (rows % by.query_tile != 0) kinds.push_back(kinds::kQueryTail);
  if (p.len_k % by.key_block != 0) kinds.push_back(kinds::kKeyTail);
}

void TiledForwardPlan::run(const ForwardTensors& tensors, const core::RunContext& context) const {
  ForwardRun(*this, tensors, context).run();
}

std::shared_ptr<const ForwardPlan> plan_forward(const Kernels& kernels, const AttentionProblem& problem) {
  if (FewQueriesPlan::takes(kernels, problem)) return std::make_shared<FewQueriesPlan>(kernels, problem);
  return std::make_shared<TiledForwardPlan>(kernels, problem);
}

void run_forward(const core::Plan& plan, const ForwardTensors& tensors, const core::RunContext& context) {
  static_cast<const ForwardPlan&>(plan).run(tensors, context);
}

}  // namespace fovea::cpu
