// The implementation `reference`: every row of a problem in double precision, each result rounded once.
#include "attention/reference/reference.h"

#include <algorithm>

#include "attention/reference/head.h"
#include "core/check.h"
#include "core/float16.h"
#include "core/never_destroyed.h"

namespace fovea::reference {
namespace {

void store_row(const MutableTensorView& view, std::int64_t b, std::int64_t h, std::int64_t i, const double* values,
               bool accumulate) {
  const std::int64_t first = b * view.strides[0] + h * view.strides[1] + i * view.strides[2];
  for (std::int64_t c = 0; c < view.sizes[3]; ++c) {
    const double before = accumulate ? core::load_as_float(view.data, view.dtype, first + c) : 0.0;
    core::store_from_float(view.data, view.dtype, first + c, static_cast<float>(before + values[c]));
  }
}

void poll(const core::Plan& plan, const core::RunContext& context) {
  if (context.cancel == nullptr || !context.cancel->load(std::memory_order_relaxed)) return;
  core::fail({.status = Status::cancelled,
              .call = std::string(plan.call),
              .problem = "the cancel flag was raised",
              .line = plan.line()});
}

void forward(const core::Plan& plan, const ForwardTensors& tensors, const core::RunContext& context) {
  const AttentionProblem& p = static_cast<const attention::Plan&>(plan).problem;
  auto* const out = static_cast<double*>(context.workspace);  // [dim_v]
  for (std::int64_t b = 0; b < p.batch; ++b) {
    for (std::int64_t h = 0; h < p.heads_q; ++h) {
      const Head head(p, tensors, b, h, out + p.dim_v);
      for (std::int64_t i = 0; i < p.len_q; ++i) {
        poll(plan, context);
        const double lse = head.forward_row(i, out);
        store_row(tensors.out, b, h, i, out, false);
        if (tensors.lse) store_row(tensors.lse, b, h, i, &lse, false);
      }
    }
  }
}

void backward(const core::Plan& plan, const BackwardTensors& tensors, const core::RunContext& context) {
  const AttentionProblem& p = static_cast<const attention::Plan&>(plan).problem;
  auto* const dq = static_cast<double*>(context.workspace);  // [dim_qk]
  double* const dk = dq + p.dim_qk;                          // [len_k, dim_qk]
  double* const dv = dk + p.len_k * p.dim_qk;                // [len_k, dim_v]
  double* const rest = dv + p.len_k * p.dim_v;
  // Without queries there is nothing to add, so the loop over query heads is skipped.
  const std::int64_t group = p.heads_kv == 0 || p.len_q == 0 ? 0 : p.heads_q / p.heads_kv;
  for (std::int64_t b = 0; b < p.batch; ++b) {
    for (std::int64_t key_head = 0; key_head < p.heads_kv; ++key_head) {
      std::fill(dk, rest, 0.0);
      for (std::int64_t h = key_head * group; h < (key_head + 1) * group; ++h) {
        const Head head(p, tensors, b, h, rest);
        for (std::int64_t i = 0; i < p.len_q && p.wants_dq; ++i) {
          poll(plan, context);
          head.query_gradient(i, dq);
          store_row(tensors.dq, b, h, i, dq, p.accumulate);
        }
        for (std::int64_t j = 0; j < p.len_k && (p.wants_dk || p.wants_dv); ++j) {
          poll(plan, context);
          head.add_key_gradients(j, dk + j * p.dim_qk, dv + j * p.dim_v);
        }
      }
      for (std::int64_t j = 0; j < p.len_k; ++j) {
        if (p.wants_dk) store_row(tensors.dk, b, key_head, j, dk + j * p.dim_qk, p.accumulate);
        if (p.wants_dv) store_row(tensors.dv, b, key_head, j, dv + j * p.dim_v, p.accumulate);
      }
    }
  }
}

core::Prepared prepare(const AttentionProblem& p, int) {
  std::int64_t doubles = Head::doubles(p) + p.dim_v;
  if (p.pass == Pass::backward) doubles += p.dim_qk + p.len_k * (p.dim_qk + p.dim_v);
  auto plan = std::make_shared<attention::Plan>(p);
  plan->workspace_bytes = doubles * static_cast<std::int64_t>(sizeof(double));
  plan->tiles = "one query row at a time, in double precision";
  return {.plan = std::move(plan)};
}

}  // namespace

std::span<const attention::Implementation> implementations() {
  static const auto& all = core::never_destroyed<attention::Implementation>(attention::Implementation{
      .name = "reference",
      .unavailable = [](int) { return std::string{}; },
      .prepare = prepare,
      .forward = forward,
      .backward = backward,
  });
  return {&all, 1};
}

}  // namespace fovea::reference
