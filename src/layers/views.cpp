// Offsets and strides: a projection's result is dense, its gradient is some columns of a wider matrix.
#include "layers/views.h"

#include <algorithm>

namespace fovea::layers {
namespace {

// Rows as [batch, heads, len, dim].
MutableTensorView as_heads(MutableTensorView rows, std::int64_t count, std::int64_t dim) {
  rows.sizes[1] = count, rows.sizes[3] = dim;
  rows.strides[1] = dim;
  return rows;
}

}  // namespace

MutableTensorView columns_from(MutableTensorView rows, std::int64_t first, std::int64_t count) {
  rows.data = static_cast<char*>(rows.data) + first * size_of(rows.dtype);
  rows.sizes[3] = count;
  return rows;
}

const Step& Views::step_of(Slot slot) const { return *std::ranges::find(steps_, slot, &Step::slot); }
const Step& Views::first_of(Source source) const { return *std::ranges::find(steps_, source, &Step::source); }

// Of the gradient of a step's result, among those of all projections that read its source.
std::int64_t Views::first_column(const Step& step) const {
  std::int64_t first = 0;
  for (const Step& one : steps_) {
    if (one.slot == step.slot) break;
    if (one.source == step.source) first += one.columns_out;
  }
  return first;
}

MutableTensorView Views::rows(const Area& area, bool of_keys, std::int64_t columns) const {
  return contiguous(at(area), p_.dtype, {p_.batch, 1, of_keys ? p_.len_k : p_.len_q, columns}, p_.device);
}

MutableTensorView Views::attention_rows(const Area& area) const { return rows(area, false, p_.heads_q * p_.dim_v); }

// Of the cache: the rows that this call writes, or those that attention reads.
MutableTensorView Views::new_rows(MutableTensorView cached) const {
  cached.data = static_cast<char*>(cached.data) + cache_.length * cached.strides[2] * size_of(cached.dtype);
  cached.sizes[2] = p_.len_q;
  return cached;
}

MutableTensorView Views::all_rows(MutableTensorView cached) const {
  cached.sizes[2] = p_.len_k;
  return cached;
}

MutableTensorView Views::result(const Step& step) const {
  if (writes_cache(p_, step.slot))
    return new_rows(step.slot == Slot::k ? cache_.k : step.slot == Slot::v ? cache_.v : cache_.latent);
  const Area& area = plan_.memory.results[static_cast<std::size_t>(step.slot)];
  return contiguous(at(area), p_.dtype, {p_.batch, 1, len_of(p_, step), step.columns_out}, p_.device);
}

MutableTensorView Views::gradients(Source source) const {
  const Area& area = plan_.memory.gradients[static_cast<std::size_t>(source)];
  return rows(area, first_of(source).of_keys, columns_read_from(steps_, source));
}

MutableTensorView Views::gradient(const Step& step) const {
  return columns_from(gradients(step.source), first_column(step), step.columns_out);
}

TensorView Views::source(Source source, const TensorView& x, const TensorView& x_kv) const {
  switch (source) {
    case Source::x:
      return x;
    case Source::x_kv:
      return x_kv;
    case Source::q_latent:
      return made_rows(Norm::q_latent);
    case Source::kv_latent:
      return columns_from(whole_latent(), 0, p_.latent_kv);
    case Source::attention:
      break;
  }
  return attention_rows(plan_.memory.attention);
}

MutableTensorView Views::source_gradient(Source source, const MutableTensorView& dx,
                                         const MutableTensorView& dx_kv) const {
  switch (source) {
    case Source::x:
      return dx;
    case Source::x_kv:
      return dx_kv;
    case Source::q_latent:
      return row_gradients(Norm::q_latent);
    case Source::kv_latent:
      return row_gradients(Norm::kv_latent);
    case Source::attention:
      break;
  }
  return attention_rows(plan_.memory.attention_gradient);
}

// q, k or v of the rows of their projection, which are q, k and v side by side where one makes all three.
MutableTensorView Views::some_heads(MutableTensorView rows, Slot slot) const {
  const bool of_q = slot == Slot::q;
  const std::int64_t count = of_q ? p_.heads_q : p_.heads_kv,
                     dim = slot == Slot::v ? p_.dim_v : p_.dim_qk - (of_q ? 0 : p_.dim_shared),
                     part = slot == Slot::q   ? 0
                            : slot == Slot::k ? 1
                                              : 2,
                     first = p_.kind == LayerKind::mha_fused ? part * count * dim : 0;
  return as_heads(columns_from(rows, first, count * dim), count, dim);
}

// The latent in the rows of its projection, which may have a shared key behind it.
MutableTensorView Views::latent_rows(MutableTensorView rows, Norm latent) const {
  return columns_from(rows, 0, columns_of(p_, latent));
}

const Step& Views::step_of(Norm rows) const {
  if (rows == Norm::q_latent) return step_of(Slot::q_down);
  if (rows == Norm::kv_latent) return step_of(Slot::kv_down);
  return step_of(p_.kind == LayerKind::mha_fused ? Slot::qkv : rows == Norm::q ? Slot::q : Slot::k);
}

MutableTensorView Views::read_rows(Norm norm) const {
  const MutableTensorView all = result(step_of(norm));
  if (norm == Norm::q || norm == Norm::k) return some_heads(all, norm == Norm::q ? Slot::q : Slot::k);
  return latent_rows(all, norm);
}

MutableTensorView Views::made_rows(Norm norm) const {
  if (p_.caches && norm == Norm::k && p_.kind == LayerKind::mha_fused)
    return as_heads(new_rows(cache_.k), p_.heads_kv, p_.dim_qk);
  if (!has_own_memory(p_, norm)) return read_rows(norm);
  const bool is_q = norm == Norm::q, of_keys = norm == Norm::k || norm == Norm::kv_latent;
  const Area& area = plan_.memory.row_results[static_cast<std::size_t>(norm)];
  if (!is_q && norm != Norm::k) return rows(area, of_keys, columns_of(p_, norm));
  const std::int64_t count = is_q ? p_.heads_q : p_.heads_kv;
  return as_heads(rows(area, of_keys, count * p_.dim_qk), count, p_.dim_qk);
}

MutableTensorView Views::row_gradients(Norm norm) const {
  if (norm == Norm::q || norm == Norm::k) return norm == Norm::q ? head_gradients().q : head_gradients().k;
  return latent_rows(gradient(step_of(norm)), norm);
}

Heads Views::heads() const {
  if (p_.caches && p_.kind != LayerKind::mla)
    return {made_rows(Norm::q), as_heads(all_rows(cache_.k), p_.heads_kv, p_.dim_qk),
            as_heads(all_rows(cache_.v), p_.heads_kv, p_.dim_v)};
  const Slot from = p_.kind == LayerKind::mha_fused ? Slot::qkv : Slot::v;
  return {made_rows(Norm::q), made_rows(Norm::k), some_heads(result(step_of(from)), Slot::v)};
}

Heads Views::head_gradients() const {
  const auto some = [this](Slot slot) {
    return some_heads(gradient(step_of(p_.kind == LayerKind::mha_fused ? Slot::qkv : slot)), slot);
  };
  Heads all{some(Slot::q), some(Slot::k), some(Slot::v)};
  if (p_.dim_shared > 0)
    all.k = as_heads(rows(plan_.memory.whole_key_gradient, true, p_.heads_kv * p_.dim_qk), p_.heads_kv, p_.dim_qk);
  return all;
}

MutableTensorView Views::fused_values() const { return some_heads(result(step_of(Slot::qkv)), Slot::v); }

MutableTensorView Views::cached_values() const { return as_heads(new_rows(cache_.v), p_.heads_kv, p_.dim_v); }

// The latent, normalised if it is to be, that k and v are made from.
MutableTensorView Views::whole_latent() const {
  return p_.caches ? all_rows(cache_.latent) : made_rows(Norm::kv_latent);
}

MutableTensorView Views::shared_key() const {
  return columns_from(result(step_of(Slot::kv_down)), p_.latent_kv, p_.dim_shared);
}

MutableTensorView Views::whole_shared_key() const {
  return p_.caches ? columns_from(all_rows(cache_.latent), p_.latent_kv, p_.dim_shared) : shared_key();
}

MutableTensorView Views::shared_key_gradient() const {
  return columns_from(gradient(step_of(Slot::kv_down)), p_.latent_kv, p_.dim_shared);
}

MutableTensorView Views::own_key() const { return some_heads(result(step_of(Slot::k)), Slot::k); }

MutableTensorView Views::own_key_gradient() const { return some_heads(gradient(step_of(Slot::k)), Slot::k); }

MutableTensorView Views::attention_heads() const {
  return as_heads(attention_rows(plan_.memory.attention), p_.heads_q, p_.dim_v);
}

MutableTensorView Views::attention_head_gradients() const {
  return as_heads(attention_rows(plan_.memory.attention_gradient), p_.heads_q, p_.dim_v);
}

MutableTensorView Views::lse() const {
  if (plan_.memory.saved_bytes == 0) return {};
  return contiguous(at(plan_.memory.lse), DType::fp32, {p_.batch, p_.heads_q, p_.len_q, 1}, p_.device);
}

Buffer Views::attention_state() const {
  const Area& area = plan_.memory.state;
  return area.bytes == 0 ? Buffer{} : Buffer{at(area), area.bytes};
}

MutableTensorView Views::packed_weights(Source source) const {
  const Area& area = plan_.memory.packed_weights[static_cast<std::size_t>(source)];
  return contiguous(at(area), p_.dtype, {1, 1, columns_read_from(steps_, source), first_of(source).columns_in},
                    p_.device);
}

MutableTensorView Views::packed_weight(const Step& step) const {
  MutableTensorView part = packed_weights(step.source);
  part.data = static_cast<char*>(part.data) + first_column(step) * step.columns_in * size_of(part.dtype);
  part.sizes[2] = step.columns_out;
  return part;
}

}  // namespace fovea::layers
