// Backward over threads. A task is one chunk of the keys of one sequence (batch, key head); it owns the chunk's dK and
// dV. If a sequence has several chunks, all threads first pack its queries once; each chunk writes a partial of dQ, and
// a last pass adds the partials in order. Chunks depend only on the shape. So no order of sums depends on the threads.
#include "cpu/backward.h"

#include <algorithm>
#include <string>

#include "cpu/call.h"
#include "cpu/plan_kinds.h"
#include "cpu/threads.h"

namespace fovea::cpu {
namespace {

constexpr std::int64_t kEnoughTasks = 16;  // keys are split into chunks until there are this many tasks
constexpr std::int64_t kMinChunkKeys = 512;
// A sequence alone is split further, so that two threads have equal work under a causal mask too.
constexpr std::int64_t kMinLoneKeys = 256, kLoneChunks = 4, kMinLoneChunkKeys = 128;
constexpr std::int64_t kPackedBudget = std::int64_t{64} << 20;  // bytes of packed queries in one wave

class BackwardRun {
 public:
  BackwardRun(const BackwardPlan& plan, const BackwardTensors& tensors, const core::RunContext& context)
      : plan_(plan), tensors_(tensors), context_(context) {
    packed_ = static_cast<char*>(context.workspace);
    partials_ = packed_ + plan.wave * plan.packed_bytes;
    scratch_ = partials_ + plan.wave * plan.partial_bytes;
  }

  void run() const {
    const std::int64_t at_once = wave();
    for (std::int64_t first = 0; first < plan_.sequences.count; first += at_once) {
      const std::int64_t count = std::min(at_once, plan_.sequences.count - first);
      if (plan_.packed_bytes > 0) pack(first, count);
      if (!differentiate(first, count)) fail_cancelled(plan_);
      if (plan_.partial_bytes > 0) reduce(first, count);
    }
  }

 private:
  // Sequences that share packed queries.
  std::int64_t wave() const {
    if (plan_.packed_bytes == 0) return plan_.wave;
    const int workers = workers_of(context_, plan_.most_workers, plan_.wave * plan_.chunks());
    return sequences_at_once(plan_.wave, plan_.chunks(), workers);
  }

  void* packed(std::int64_t slot) const {
    return plan_.packed_bytes > 0 ? packed_ + slot * plan_.packed_bytes : nullptr;
  }
  float* partials(std::int64_t slot) const { return reinterpret_cast<float*>(partials_ + slot * plan_.partial_bytes); }

  // Calls work(item, scratch) for every item in [0, items); returns false if a call did.
  template <class Work>
  bool for_each(std::int64_t items, const Work& work) const {
    return for_each_item(
        context_.thread_pool, workers_of(context_, plan_.most_workers, items), items,
        [&](std::int64_t item, int worker) { return work(item, scratch_ + worker * plan_.scratch_bytes); });
  }

  // Gives a task the rows of a sequence's queries, and what belongs to them.
  template <class Task>
  void read_queries(Task& task, std::int64_t sequence) const {
    task.q = query_rows(plan_.sequences, tensors_.q, sequence);
    task.out = query_rows(plan_.sequences, tensors_.out, sequence);
    task.dout = query_rows(plan_.sequences, tensors_.dout, sequence);
    task.lse = query_rows(plan_.sequences, tensors_.lse, sequence);
    task.delta = query_rows(plan_.sequences, tensors_.delta, sequence);
  }

  void pack(std::int64_t first, std::int64_t count) const {
    for_each(count * plan_.query_tiles, [&](std::int64_t item, void* scratch) {
      const std::int64_t slot = item / plan_.query_tiles, tile = item % plan_.query_tiles, sequence = first + slot;
      QueryPackTask task{};
      task.shape = &plan_.shape;
      read_queries(task, sequence);
      task.sums_delta = !tensors_.delta && (tensors_.dq || tensors_.dk);
      task.first_row = tile * plan_.kernels.query_tile;
      task.packed = packed_ + slot * plan_.packed_bytes + tile * plan_.kernels.backward_tile_bytes(plan_.shape);
      task.scratch = scratch;
      plan_.kernels.pack_query_tile(task);
      return true;
    });
  }

  bool differentiate(std::int64_t first, std::int64_t count) const {
    return for_each(count * plan_.chunks(), [&](std::int64_t item, void* scratch) {
      const std::int64_t slot = item % count, sequence = first + slot;
      const auto chunk = static_cast<std::size_t>(item / count);  // causal: the longest first
      BackwardTask task{};
      task.shape = &plan_.shape;
      task.k = key_rows(plan_.sequences, tensors_.k, sequence);
      task.v = key_rows(plan_.sequences, tensors_.v, sequence);
      read_queries(task, sequence);
      task.first_key = plan_.chunk_begins[chunk];
      task.keys = plan_.chunk_begins[chunk + 1] - task.first_key;
      task.dk = key_rows(plan_.sequences, tensors_.dk, sequence);
      task.dv = key_rows(plan_.sequences, tensors_.dv, sequence);
      task.packed = packed(slot);
      if (plan_.partial_bytes > 0)
        task.dq_partial = partials(slot) + static_cast<std::int64_t>(chunk) * plan_.partial_floats;
      else
        task.dq = query_rows(plan_.sequences, tensors_.dq, sequence);
      task.accumulate = plan_.problem.accumulate;
      task.scratch = scratch;
      task.cancel = cancel_flag(context_);
      return plan_.kernels.backward(task);
    });
  }

  void reduce(std::int64_t first, std::int64_t count) const {
    for_each(count * plan_.query_tiles, [&](std::int64_t item, void* scratch) {
      const std::int64_t slot = item / plan_.query_tiles, tile = item % plan_.query_tiles;
      ReduceTask task{};
      task.shape = &plan_.shape;
      task.partials = partials(slot) + tile * plan_.kernels.dq_tile_floats(plan_.shape);
      task.partial_stride = plan_.partial_floats;
      task.chunks = plan_.chunks();
      task.chunk_begins = plan_.chunk_begins.data();
      task.first_row = tile * plan_.kernels.query_tile;
      task.dq = query_rows(plan_.sequences, tensors_.dq, first + slot);
      task.accumulate = plan_.problem.accumulate;
      task.scratch = scratch;
      plan_.kernels.reduce_dq(task);
      return true;
    });
  }

  const BackwardPlan& plan_;
  const BackwardTensors& tensors_;
  const core::RunContext& context_;
  char* packed_;
  char* partials_;
  char* scratch_;
};

// The most chunks of each of `count` sequences, of which `room` run at the same time.
std::int64_t most_chunks(std::int64_t len_k, std::int64_t count, std::int64_t room) {
  if (count >= kEnoughTasks) return 1;
  const std::int64_t wanted = divide_up(kEnoughTasks, room);
  if (room > 1) return std::clamp<std::int64_t>(len_k / kMinChunkKeys, 1, wanted);
  const std::int64_t least = std::clamp<std::int64_t>(len_k / kMinLoneChunkKeys, 1, kLoneChunks);
  return std::clamp(len_k / kMinLoneKeys, least, wanted);
}

// Splits the keys evenly, in steps of `step` keys, into at most `most` chunks. Returns where each begins, and the end.
std::vector<std::int64_t> split_keys(std::int64_t len_k, std::int64_t step, std::int64_t most) {
  const std::int64_t steps = std::max<std::int64_t>(1, divide_up(len_k, step)), chunks = std::min(steps, most);
  std::vector<std::int64_t> begins;
  for (std::int64_t c = 0; c < chunks; ++c) begins.push_back(steps * c / chunks * step);
  begins.push_back(len_k);
  return begins;
}

}  // namespace

BackwardPlan::BackwardPlan(const Kernels& by, const AttentionProblem& p)
    : attention::Plan(p), kernels(by), shape(shape_of(p)), sequences(sequences_of(p)) {
  const auto at_least_one = [](std::int64_t value) { return std::max<std::int64_t>(1, value); };
  rows = shape.group * shape.len_q;
  query_tiles = divide_up(rows, by.query_tile);
  const std::int64_t tiles_bytes = query_tiles * by.backward_tile_bytes(shape);
  const std::int64_t budget = at_least_one(kPackedBudget / at_least_one(tiles_bytes));
  const std::int64_t room = std::min(at_least_one(sequences.count), budget);
  chunk_begins = split_keys(p.len_k, by.chunk_step, most_chunks(p.len_k, sequences.count, room));
  const bool shares = chunks() > 1;
  wave = shares ? std::min(room, sequences.count) : sequences.count;
  packed_bytes = shares ? align_up(tiles_bytes) : 0;
  partial_floats = shares && p.wants_dq ? query_tiles * by.dq_tile_floats(shape) : 0;
  partial_bytes = align_up(chunks() * partial_floats * 4);
  std::int64_t longest = 0;
  for (std::size_t c = 1; c < chunk_begins.size(); ++c)
    longest = std::max(longest, chunk_begins[c] - chunk_begins[c - 1]);
  scratch_bytes = align_up(std::max({by.backward_scratch_bytes(shape, longest, !shares, partial_bytes == 0),
                                     by.query_pack_scratch_bytes(shape), by.reduce_scratch_bytes(shape)}));
  most_workers = cpu::most_workers(wave * std::max(chunks(), shares ? query_tiles : std::int64_t{1}));
  workspace_bytes = wave * (packed_bytes + partial_bytes) + most_workers * scratch_bytes;
  tiles = std::to_string(by.query_tile) + " queries x " + std::to_string(by.tile_rows) + " keys in registers, " +
          std::to_string(by.backward_block) + " keys per block, " + std::to_string(longest) + " keys per task, " +
          std::to_string(sequences.count * chunks()) + " tasks";
  if (sequences.count * rows * p.len_k == 0) return;
  kinds.push_back(!shares ? kinds::kWholeSequences : wave < sequences.count ? kinds::kWaves : kinds::kChunks);
  if (rows % by.query_tile != 0) kinds.push_back(kinds::kQueryTail);
  if (p.len_k % by.backward_block != 0) kinds.push_back(kinds::kKeyTail);
}

void run_backward(const core::Plan& plan, const BackwardTensors& tensors, const core::RunContext& context) {
  BackwardRun(static_cast<const BackwardPlan&>(plan), tensors, context).run();
}

}  // namespace fovea::cpu
