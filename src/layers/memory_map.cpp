// Areas follow each other; what backward reads of forward comes first, in the saved state.
#include "layers/memory_map.h"

#include <algorithm>

#include "heads/devices.h"
#include "layers/parts.h"

namespace fovea::layers {
namespace {

constexpr std::int64_t kAlignment = 256;

std::int64_t rows_of(const LayerProblem& p, bool of_keys) { return p.batch * (of_keys ? p.len_k : p.len_q); }

}  // namespace

// Never empty, so that no area has a null pointer, which would mean an absent tensor.
Area MemoryMap::take(std::int64_t bytes, bool in_saved) {
  std::int64_t& end = in_saved ? saved_bytes : workspace_bytes;
  const Area area{end, bytes, in_saved};
  end += std::max((bytes + kAlignment - 1) / kAlignment * kAlignment, kAlignment);
  return area;
}

Area MemoryMap::keep(std::string name, DType dtype, const Sizes& sizes, bool in_saved) {
  const std::int64_t bytes = sizes[0] * sizes[1] * sizes[2] * sizes[3] * size_of(dtype);
  if (in_saved) saved.push_back({std::move(name), sizes, bytes});
  return take(bytes, in_saved);
}

MemoryMap::MemoryMap(const LayerProblem& p, std::int64_t state_bytes, std::int64_t parts_bytes) {
  const bool saves = p.saves || p.pass == Pass::backward;
  const Steps steps = steps_of(p);
  keep_results(p, steps, saves);
  attention = keep("attention", p.dtype, {p.batch, 1, p.len_q, p.heads_q * p.dim_v}, saves);
  if (saves) lse = keep("lse", DType::fp32, {p.batch, p.heads_q, p.len_q, 1}, true);
  if (saves && state_bytes > 0) state = keep("attention_state", DType::fp32, {1, 1, 1, (state_bytes + 3) / 4}, true);
  if (p.pass == Pass::backward) add_gradients(p, steps);
  parts = take(parts_bytes, false);
}

void MemoryMap::keep_results(const LayerProblem& p, const Steps& steps, bool saves) {
  for (const Step& step : steps) {
    if (step.slot == Slot::out || writes_cache(p, step.slot)) continue;
    const std::string name(step.slot == Slot::q_down    ? "q_latent"
                           : step.slot == Slot::kv_down ? "kv_latent"
                                                        : name_of(step.slot));
    const Sizes sizes{p.batch, 1, len_of(p, step), step.columns_out};
    // k without its shared columns: forward alone reads it.
    const bool forward_only = step.slot == Slot::k && p.dim_shared > 0;
    if (forward_only && p.pass == Pass::backward) continue;
    results[static_cast<std::size_t>(step.slot)] = keep(name, p.dtype, sizes, saves && !forward_only);
  }
  for (const Norm norm : kAllNorms) {
    if (!has_own_memory(p, norm)) continue;
    const bool of_keys = norm == Norm::k || norm == Norm::kv_latent, normalised = at(p.norms, norm).given;
    const std::int64_t columns = norm == Norm::q   ? columns_of(p.heads_q, p.dim_qk)
                                 : norm == Norm::k ? columns_of(p.heads_kv, p.dim_qk)
                                                   : columns_of(p, norm);
    row_results[static_cast<std::size_t>(norm)] =
        keep(std::string(name_of(norm)) + (normalised ? "_normalised" : "_with_shared_key"), p.dtype,
             {p.batch, 1, of_keys ? p.len_k : p.len_q, columns}, saves);
  }
}

void MemoryMap::add_gradients(const LayerProblem& p, const Steps& steps) {
  if (!needs_attention(p)) return;
  for (const Step& step : steps) {
    Area& area = gradients[static_cast<std::size_t>(step.source)];
    if (step.slot == Slot::out || area.bytes > 0) continue;
    const std::int64_t columns = columns_read_from(steps, step.source);
    area = take(rows_of(p, step.of_keys) * columns * size_of(p.dtype), false);
    if (packs_weights(p, steps, step.source))
      packed_weights[static_cast<std::size_t>(step.source)] = take(columns * step.columns_in * size_of(p.dtype), false);
  }
  attention_gradient = take(rows_of(p, false) * p.heads_q * p.dim_v * size_of(p.dtype), false);
  if (p.dim_shared > 0) whole_key_gradient = take(rows_of(p, true) * p.heads_kv * p.dim_qk * size_of(p.dtype), false);
  std::int64_t partial_elements = 0;
  for (const Norm norm : kAllNorms) {
    if (!at(p.norms, norm).wants_dweight) continue;
    const bool of_keys = norm == Norm::k || norm == Norm::kv_latent;
    const std::int64_t heads = norm == Norm::q ? p.heads_q : norm == Norm::k ? p.heads_kv : 1;
    const Sizes sizes{p.batch, heads, of_keys ? p.len_k : p.len_q, columns_of(p, norm)};
    partial_elements =
        std::max(partial_elements, heads::partial_rows(p.device.kind, sizes, rotation_of(p, norm)) * sizes[3]);
  }
  if (partial_elements > 0) partial = take(partial_elements * size_of(DType::fp32), false);
}

}  // namespace fovea::layers
