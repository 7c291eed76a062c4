// The views of a layer's memory in one call. A view of rows is [batch, 1, len, columns].
#pragma once

#include "layers/plan.h"

namespace fovea::layers {

// q, k and v, or their gradients, as [batch, heads, len, dim].
struct Heads {
  MutableTensorView q, k, v;
};

MutableTensorView columns_from(MutableTensorView rows, std::int64_t first, std::int64_t count);

class Views {
 public:
  Views(const Plan& plan, const Buffer& saved, void* workspace, const LayerCache& cache = {})
      : plan_(plan), p_(plan.request), steps_(steps_of(p_)), saved_(saved.data), workspace_(workspace), cache_(cache) {}

  const Steps& steps() const { return steps_; }
  void* parts_workspace() const { return at(plan_.memory.parts); }

  // The result of a projection before attention, and its gradient.
  MutableTensorView result(const Step& step) const;
  MutableTensorView gradient(const Step& step) const;
  // The gradients of the results of all projections that read a source, side by side.
  MutableTensorView gradients(Source source) const;
  // What projections read, and its gradient: the caller's x and x_kv, or an activation.
  TensorView source(Source source, const TensorView& x, const TensorView& x_kv) const;
  MutableTensorView source_gradient(Source source, const MutableTensorView& dx, const MutableTensorView& dx_kv) const;

  // What attention reads, and the gradients that it writes.
  Heads heads() const;
  Heads head_gradients() const;
  // The rows that a pass reads and those that it makes, as [batch, heads, len, dim]; and the gradient of the rows that
  // it reads, which is that of the made ones before. A latent is one head.
  MutableTensorView read_rows(Norm rows) const;
  MutableTensorView made_rows(Norm rows) const;
  MutableTensorView row_gradients(Norm rows) const;
  float* partial() const { return static_cast<float*>(at(plan_.memory.partial)); }

  // v of the projection of q, k and v; and its new rows in the cache.
  MutableTensorView fused_values() const;
  MutableTensorView cached_values() const;

  // DeepSeek's form: the shared key [batch, 1, len, dim_shared] beside the latent, also of all rows of the cache, and
  // the same of its gradient; columns of k, or of its gradient, that each head has for itself.
  MutableTensorView shared_key() const;
  MutableTensorView whole_shared_key() const;
  MutableTensorView shared_key_gradient() const;
  MutableTensorView own_key() const;
  MutableTensorView own_key_gradient() const;

  MutableTensorView attention_heads() const;
  MutableTensorView attention_head_gradients() const;
  MutableTensorView lse() const;  // absent if nothing is saved
  Buffer attention_state() const;

  // Room for the weights of all projections that read a source, below one another; and one of them there.
  MutableTensorView packed_weights(Source source) const;
  MutableTensorView packed_weight(const Step& step) const;

 private:
  void* at(const Area& area) const { return static_cast<char*>(area.is_saved ? saved_ : workspace_) + area.offset; }
  const Step& step_of(Slot slot) const;
  const Step& step_of(Norm rows) const;
  MutableTensorView some_heads(MutableTensorView rows, Slot slot) const;
  MutableTensorView latent_rows(MutableTensorView rows, Norm latent) const;
  const Step& first_of(Source source) const;
  std::int64_t first_column(const Step& step) const;
  MutableTensorView rows(const Area& area, bool of_keys, std::int64_t columns) const;
  MutableTensorView attention_rows(const Area& area) const;
  MutableTensorView new_rows(MutableTensorView cached) const;
  MutableTensorView all_rows(MutableTensorView cached) const;
  MutableTensorView whole_latent() const;

  const Plan& plan_;
  const LayerProblem& p_;
  Steps steps_;
  void *saved_, *workspace_;
  LayerCache cache_;
};

}  // namespace fovea::layers
