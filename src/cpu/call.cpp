// Converts views and a problem to the kernels' plain structs.
#include "cpu/call.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "core/check.h"
#include "core/processors.h"

namespace fovea::cpu {
namespace {

constexpr double kLog2E = 1.44269504088896340736;
constexpr int kMinWorkers = 4;  // a workspace has room for this many workers even on a smaller machine

Element element_of(DType type) {
  return type == DType::fp32 ? Element::fp32 : type == DType::bf16 ? Element::bf16 : Element::fp16;
}

template <class Rows, class View>
Rows rows_of(const View& view, std::int64_t batch, std::int64_t head, std::int64_t element_bytes) {
  if (view.data == nullptr) return {};
  // The element type is unknown, so the offset is in bytes, on a char pointer.
  using Byte = std::conditional_t<std::is_same_v<View, TensorView>, const char, char>;
  Byte* first = static_cast<Byte*>(view.data) + (batch * view.strides[0] + head * view.strides[1]) * element_bytes;
  return {first, element_of(view.dtype), view.strides[1], view.strides[2]};
}

template <class Rows, class View>
Rows query_rows_of(const Sequences& all, const View& view, std::int64_t sequence) {
  return rows_of<Rows>(view, sequence / all.heads_kv, sequence % all.heads_kv * all.group, size_of(view.dtype));
}

template <class Rows, class View>
Rows key_rows_of(const Sequences& all, const View& view, std::int64_t sequence) {
  return rows_of<Rows>(view, sequence / all.heads_kv, sequence % all.heads_kv, size_of(view.dtype));
}

}  // namespace

Shape shape_of(const AttentionProblem& p) {
  const KeyWindow window = key_window(p);
  Shape s{};
  s.group = p.heads_kv > 0 ? std::max<std::int64_t>(1, p.heads_q / p.heads_kv) : 1;
  s.len_q = p.heads_q > 0 ? p.len_q : 0;
  s.len_k = p.len_k;
  s.dim_qk = p.dim_qk;
  s.dim_v = p.dim_v;
  s.window_begin = window.begin;
  s.window_end = window.end;
  s.scale = static_cast<float>(p.scale);
  const bool zero = p.scale == 0;
  const double exact = zero ? 1.0 : std::fabs(p.scale);
  s.sign = zero ? 0.0f : p.scale < 0 ? -1.0f : 1.0f;
  s.scale_hi = static_cast<float>(exact);
  s.scale_lo = static_cast<float>(exact - static_cast<double>(s.scale_hi));
  const double log2_scale = exact * kLog2E;
  s.log2_scale = static_cast<float>(log2_scale);
  s.log2_scale_lo = static_cast<float>(log2_scale - static_cast<double>(s.log2_scale));
  return s;
}

Sequences sequences_of(const AttentionProblem& p) {
  return {.count = p.batch * p.heads_kv, .heads_kv = p.heads_kv, .group = p.heads_kv > 0 ? p.heads_q / p.heads_kv : 0};
}

InputRows query_rows(const Sequences& all, const TensorView& view, std::int64_t sequence) {
  return query_rows_of<InputRows>(all, view, sequence);
}
InputRows key_rows(const Sequences& all, const TensorView& view, std::int64_t sequence) {
  return key_rows_of<InputRows>(all, view, sequence);
}
OutputRows query_rows(const Sequences& all, const MutableTensorView& view, std::int64_t sequence) {
  return query_rows_of<OutputRows>(all, view, sequence);
}
OutputRows key_rows(const Sequences& all, const MutableTensorView& view, std::int64_t sequence) {
  return key_rows_of<OutputRows>(all, view, sequence);
}

int most_workers(std::int64_t tasks) {
  const int room = std::max(kMinWorkers, core::available_processors());
  return static_cast<int>(std::clamp<std::int64_t>(tasks, 1, room));
}

int workers_of(const core::RunContext& context, int most, std::int64_t tasks) {
  const int offered =
      context.thread_pool != nullptr ? std::min(context.threads, context.thread_pool->threads) : context.threads;
  return static_cast<int>(std::clamp<std::int64_t>(std::min<std::int64_t>(offered, tasks), 1, most));
}

std::int64_t sequences_at_once(std::int64_t most, std::int64_t tasks_of_each, int workers) {
  constexpr std::int64_t kTasksPerWorker = 8;
  if (workers == 1) return 1;
  return std::min(most, divide_up(kTasksPerWorker * workers, tasks_of_each));
}

CancelFlag cancel_flag(const core::RunContext& context) {
  return {[](const void* flag) {
            return flag != nullptr && static_cast<const std::atomic<bool>*>(flag)->load(std::memory_order_relaxed);
          },
          context.cancel};
}

void fail_cancelled(const core::Plan& plan) {
  core::fail({.status = Status::cancelled,
              .call = std::string(plan.call),
              .argument = "cancel",
              .problem = "the call was cancelled while it ran",
              .got = "a raised flag",
              .wanted = "a flag that stays down",
              .hint = "the outputs are unspecified",
              .line = plan.line()});
}

}  // namespace fovea::cpu
