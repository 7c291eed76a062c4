// The list for layers, and the implementation on the CPU.
#include <algorithm>
#include <cstring>
#include <initializer_list>
#include <span>

#include "core/hash.h"
#include "core/never_destroyed.h"
#include "cpu/tasks.h"
#include "layers/cuda/layers.h"
#include "layers/facts.h"
#include "layers/implementation.h"
#include "layers/norms.h"
#include "layers/problem_line.h"
#include "layers/run.h"

namespace fovea::layers {
namespace {

void copy_rows(const WeightCopy& copy, const core::RunContext& context) {
  constexpr std::int64_t kRows = 64;
  const TensorView& from = copy.from;
  const MutableTensorView& to = copy.to;
  const std::int64_t rows = from.sizes[2], element = size_of(from.dtype);
  cpu::run_cancellable(context, context.threads, (rows + kRows - 1) / kRows, [&](std::int64_t index, int) {
    for (std::int64_t row = index * kRows; row < std::min((index + 1) * kRows, rows); ++row)
      std::memcpy(static_cast<char*>(to.data) + row * to.strides[2] * element,
                  static_cast<const char*>(from.data) + row * from.strides[2] * element,
                  static_cast<std::size_t>(from.sizes[3] * element));
  });
}

void copy_weights(std::span<const WeightCopy> copies, const core::RunContext& context) {
  for (const WeightCopy& copy : copies) copy_rows(copy, context);
}

void forward_on_host(const core::Plan& plan, const LayerForwardTensors& tensors, const core::RunContext& context) {
  forward(static_cast<const Plan&>(plan), tensors, context, {copy_weights, heads::passes_on_host()});
}

void backward_on_host(const core::Plan& plan, const LayerBackwardTensors& tensors, const core::RunContext& context) {
  backward(static_cast<const Plan&>(plan), tensors, context, {copy_weights, heads::passes_on_host()});
}

Implementation host_implementation() {
  return {.name = "composed",
          .device = DeviceKind::cpu,
          .unavailable = [](int) { return std::string(); },
          .prepare = prepare,
          .forward = forward_on_host,
          .backward = backward_on_host};
}

}  // namespace

core::Prepared prepare(const Request& request, int) { return {.plan = std::make_shared<Plan>(request)}; }

std::string Types::line(const Request& request) { return line_if_any(request); }

std::size_t Types::hash(const Request& r) {
  std::uint64_t wanted = 0;
  for (const Slot slot : kAllSlots) {
    const ProjectionFacts& facts = at(r.projections, slot);
    wanted = wanted << 3 | std::uint64_t{facts.bias} << 2 | std::uint64_t{facts.wants_dweight} << 1 | facts.wants_dbias;
  }
  for (const Norm norm : kAllNorms)
    wanted = wanted << 2 | std::uint64_t{at(r.norms, norm).given} << 1 | at(r.norms, norm).wants_dweight;
  const Rotary rotary = r.rotary.value_or(Rotary{.theta = 0});
  return core::hash_of(
      r.kind, r.pass, r.batch, r.len_q, r.len_k, r.width, r.width_kv, r.heads_q, r.heads_kv, r.dim_qk, r.dim_v,
      r.latent_q, r.latent_kv, r.dtype, r.result_dtype, r.parameter_dtype, r.mask.alignment, r.mask.left, r.mask.right,
      r.scale, r.device.kind, r.device.index, r.cross, r.saves, r.reproducible, r.accumulate, r.wants_dx, r.wants_dx_kv,
      wanted, r.copies_x, r.copies_x_kv, r.copies_dy, r.attention_name, r.product_name, r.dim_shared, r.epsilon,
      r.caches, r.unaligned_cache, rotary.theta, rotary.pairs, rotary.columns, rotary.position_q, rotary.position_k);
}

core::ImplementationList<Types>& Types::list() {
  static auto& all = []() -> core::ImplementationList<Types>& {
    const Implementation on_host = host_implementation();
    return core::never_destroyed<core::ImplementationList<Types>>(
        std::initializer_list<std::span<const Implementation>>{cuda_implementations(), {&on_host, 1}});
  }();
  return all;
}

namespace {

[[maybe_unused]] const auto& made_at_load = Types::list();  // so that fork() cannot interrupt its construction

}  // namespace

}  // namespace fovea::layers
