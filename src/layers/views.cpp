// Offsets and strides: a projection's result is dense, its gradient is some columns of a wider matrix.
#include "layers/views.h"

#include <algorithm>

namespace fovea::layers {
namespace {

MutableTensorView columns_from(MutableTensorView rows, std::int64_t first, std::int64_t count) {
  rows.data = static_cast<char*>(rows.data) + first * size_of(rows.dtype);
  rows.sizes[3] = count;
  return rows;
}

// Rows as [batch, heads, len, dim].
MutableTensorView as_heads(MutableTensorView rows, std::int64_t count, std::int64_t dim) {
  rows.sizes[1] = count, rows.sizes[3] = dim;
  rows.strides[1] = dim;
  return rows;
}

}  // namespace

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

MutableTensorView Views::result(const Step& step) const {
  return rows(plan_.memory.results[static_cast<std::size_t>(step.slot)], step.of_keys, step.columns_out);
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
      return result(step_of(Slot::q_down));
    case Source::kv_latent:
      return result(step_of(Slot::kv_down));
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
      return gradient(step_of(Slot::q_down));
    case Source::kv_latent:
      return gradient(step_of(Slot::kv_down));
    case Source::attention:
      break;
  }
  return attention_rows(plan_.memory.attention_gradient);
}

// `rows_of(step)`: a projection's result, or its gradient.
template <class RowsOf>
Heads Views::split(RowsOf rows_of) const {
  const auto some = [&](Slot slot, std::int64_t part, std::int64_t count, std::int64_t dim) {
    const std::int64_t width = count * dim;
    return as_heads(columns_from(rows_of(step_of(slot)), part * width, width), count, dim);
  };
  if (p_.kind == LayerKind::mha_fused)
    return {some(Slot::qkv, 0, p_.heads_q, p_.dim_qk), some(Slot::qkv, 1, p_.heads_q, p_.dim_qk),
            some(Slot::qkv, 2, p_.heads_q, p_.dim_qk)};
  return {some(Slot::q, 0, p_.heads_q, p_.dim_qk), some(Slot::k, 0, p_.heads_kv, p_.dim_qk),
          some(Slot::v, 0, p_.heads_kv, p_.dim_v)};
}

Heads Views::heads() const {
  return split([this](const Step& step) { return result(step); });
}

Heads Views::head_gradients() const {
  return split([this](const Step& step) { return gradient(step); });
}

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
  return contiguous(at(plan_.memory.packed_weights), p_.dtype,
                    {1, 1, columns_read_from(steps_, source), first_of(source).columns_in}, p_.device);
}

MutableTensorView Views::packed_weight(const Step& step) const {
  MutableTensorView part = packed_weights(step.source);
  part.data = static_cast<char*>(part.data) + first_column(step) * step.columns_in * size_of(part.dtype);
  part.sizes[2] = step.columns_out;
  return part;
}

}  // namespace fovea::layers
