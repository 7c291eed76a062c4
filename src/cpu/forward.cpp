// Forward over threads. A task is one slab of the query rows of one sequence (batch, key head). The keys and values of
// a wave of sequences are packed once, by all threads, before the tasks of the wave start; a sequence of one slab packs
// for itself, block by block. Neither slabs nor waves change a result: queries do not meet.
#include "cpu/forward.h"

#include <algorithm>
#include <string>

#include "cpu/call.h"
#include "cpu/threads.h"

namespace fovea::cpu {
namespace {

constexpr std::int64_t kMostTiles = 8;     // query tiles that share a key block while it is in the cache
constexpr std::int64_t kEnoughTasks = 32;  // slabs shrink to one tile to give this many
constexpr std::int64_t kPackedBudget = std::int64_t{64} << 20;  // bytes of packed keys and values at a time

struct ForwardLayout {
  Shape shape;
  std::int64_t sequences, rows, slab_rows, slabs, blocks;
  bool packs_itself;
  std::int64_t wave;              // sequences packed at a time
  std::int64_t k_bytes, v_bytes;  // packed, of one sequence
  std::int64_t scratch_bytes;     // of one runner
  std::int64_t tasks() const { return std::min(wave, sequences) * std::max(slabs, packs_itself ? 1 : blocks); }
  std::int64_t packed_bytes() const { return packs_itself ? 0 : wave * (k_bytes + v_bytes); }
};

ForwardLayout lay_out(const Kernels& kernels, const AttentionProblem& p) {
  ForwardLayout l{};
  l.shape = shape_of(p);
  l.sequences = p.heads_q > 0 ? p.batch * p.heads_kv : 0;
  l.rows = l.shape.group * l.shape.len_q;
  l.blocks = divide_up(p.len_k, kernels.key_block);
  const std::int64_t tiles = divide_up(l.rows, kernels.query_tile);
  const std::int64_t slab_tiles = std::clamp<std::int64_t>(l.sequences * tiles / kEnoughTasks, 1, kMostTiles);
  l.slab_rows = slab_tiles * kernels.query_tile;
  l.slabs = divide_up(l.rows, l.slab_rows);
  l.packs_itself = l.slabs <= 1;
  l.k_bytes = align_up(kernels.packed_k_bytes(l.shape) * l.blocks);
  l.v_bytes = align_up(kernels.packed_v_bytes(l.shape) * l.blocks);
  l.wave = l.sequences;
  if (!l.packs_itself)
    l.wave = std::clamp<std::int64_t>(kPackedBudget / std::max<std::int64_t>(1, l.k_bytes + l.v_bytes), 1,
                                      std::max<std::int64_t>(1, l.sequences));
  const std::int64_t pack_scratch = l.packs_itself ? 0 : kernels.pack_scratch_bytes(l.shape);
  const std::int64_t slab = std::min(l.slab_rows, l.rows);
  l.scratch_bytes = align_up(std::max(pack_scratch, kernels.forward_scratch_bytes(l.shape, slab, l.packs_itself)));
  return l;
}

class ForwardRun {
 public:
  ForwardRun(const Kernels& kernels, const AttentionProblem& problem, const ForwardTensors& tensors,
             const core::RunContext& context)
      : kernels_(kernels), problem_(problem), tensors_(tensors), context_(context), layout_(lay_out(kernels, problem)) {
    packed_ = static_cast<char*>(context.workspace);
    scratch_ = packed_ + layout_.packed_bytes();
  }

  // The wave's sequences start at `first`.
  void pack(std::int64_t first, std::int64_t count) const {
    const auto& l = layout_;
    const std::int64_t blocks = count * l.blocks;
    for_each_item(context_.lender, runners_of(context_, blocks), blocks, [&](std::int64_t item, int runner) {
      const std::int64_t slot = item / l.blocks, block = item % l.blocks;
      PackTask task{};
      task.shape = &l.shape;
      task.k = key_rows(problem_, tensors_.k, first + slot);
      task.v = key_rows(problem_, tensors_.v, first + slot);
      task.first_key = block * kernels_.key_block;
      task.packed_k = packed_k(slot) + block * kernels_.packed_k_bytes(l.shape);
      task.packed_v = packed_v(slot) + block * kernels_.packed_v_bytes(l.shape);
      task.scratch = scratch_ + runner * l.scratch_bytes;
      kernels_.pack(task);
      return true;
    });
  }

  bool attend(std::int64_t first, std::int64_t count) const {
    const auto& l = layout_;
    const std::int64_t tasks = count * l.slabs;
    return for_each_item(context_.lender, runners_of(context_, tasks), tasks, [&](std::int64_t item, int runner) {
      const std::int64_t slot = item / l.slabs, slab = l.slabs - 1 - item % l.slabs;  // causal: the longest first
      ForwardTask task{};
      task.shape = &l.shape;
      task.q = query_rows(problem_, tensors_.q, first + slot);
      task.k = key_rows(problem_, tensors_.k, first + slot);
      task.v = key_rows(problem_, tensors_.v, first + slot);
      task.out = query_rows(problem_, tensors_.out, first + slot);
      task.lse = query_rows(problem_, tensors_.lse, first + slot);
      if (!l.packs_itself) {
        task.packed_k = packed_k(slot);
        task.packed_v = packed_v(slot);
      }
      task.first_row = slab * l.slab_rows;
      task.rows = std::min(l.slab_rows, l.rows - task.first_row);
      task.scratch = scratch_ + runner * l.scratch_bytes;
      task.cancel = cancel_flag(context_);
      return kernels_.forward(task);
    });
  }

  void run() const {
    for (std::int64_t first = 0; first < layout_.sequences && layout_.rows > 0; first += layout_.wave) {
      const std::int64_t count = std::min(layout_.wave, layout_.sequences - first);
      if (!layout_.packs_itself) pack(first, count);
      if (!attend(first, count)) fail_cancelled(problem_, "attention_forward");
    }
  }

 private:
  char* packed_k(std::int64_t slot) const { return packed_ + slot * (layout_.k_bytes + layout_.v_bytes); }
  char* packed_v(std::int64_t slot) const { return packed_k(slot) + layout_.k_bytes; }

  const Kernels& kernels_;
  const AttentionProblem& problem_;
  const ForwardTensors& tensors_;
  const core::RunContext& context_;
  ForwardLayout layout_;
  char* packed_;
  char* scratch_;
};

}  // namespace

core::Plan plan_forward(const Kernels& kernels, const AttentionProblem& problem) {
  const ForwardLayout l = lay_out(kernels, problem);
  return {.workspace_bytes = l.packed_bytes() + most_runners(l.tasks()) * l.scratch_bytes};
}

std::string forward_tiles(const Kernels& kernels, const AttentionProblem& problem) {
  const ForwardLayout l = lay_out(kernels, problem);
  return std::to_string(kernels.query_tile) + " queries x " + std::to_string(kernels.tile_rows) +
         " keys in registers, " + std::to_string(kernels.key_block) + " keys a block, " + std::to_string(l.slab_rows) +
         " query rows a task, " + std::to_string(l.sequences * l.slabs) + " tasks";
}

void run_forward(const Kernels& kernels, const AttentionProblem& problem, const ForwardTensors& tensors,
                 const core::RunContext& context) {
  ForwardRun(kernels, problem, tensors, context).run();
}

}  // namespace fovea::cpu
