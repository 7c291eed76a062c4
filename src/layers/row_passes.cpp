// Where nothing is normalised, rows are rotated where they lie.
#include "layers/row_passes.h"

namespace fovea::layers {
namespace {

class Transforms {
 public:
  Transforms(const Views& views, const LayerProblem& p, const LayerNorms& norms, const RunOfPasses& run)
      : views_(views), p_(p), norms_(norms), run_(run) {}

  void forward(Norm norm) const {
    const auto rotation = rotation_of(p_, norm);
    const TensorView& weight = at(norms_, norm);
    const MutableTensorView from = views_.read_rows(norm), to = views_.made_rows(norm);
    if (!weight && !rotation && from.data == to.data) return;
    run_.forward({.from = from, .to = to, .weight = weight, .epsilon = p_.epsilon, .rotation = rotation});
  }

  // q and k side by side, which are rotated by the same angles: one pass over the heads of both.
  bool rotates_together(const MutableTensorView& q, const MutableTensorView& k) const {
    const auto of_q = rotation_of(p_, Norm::q), of_k = rotation_of(p_, Norm::k);
    const char* const behind_q = static_cast<const char*>(q.data) + q.sizes[1] * q.strides[1] * size_of(q.dtype);
    return of_q && of_q == of_k && !norms_.q && !norms_.k && q.strides == k.strides && q.sizes[2] == k.sizes[2] &&
           behind_q == k.data;
  }
  void forward_qk() const {
    MutableTensorView q = views_.read_rows(Norm::q);
    const MutableTensorView k = views_.read_rows(Norm::k);
    if (p_.caches) run_.forward({.from = views_.fused_values(), .to = views_.cached_values()});
    if (p_.caches || !rotates_together(q, k)) return forward(Norm::q), forward(Norm::k);
    q.sizes[1] += k.sizes[1];
    run_.forward({.from = q, .to = q, .rotation = rotation_of(p_, Norm::q)});
  }

  // The first columns of each head of k come from its projection, the last ones are the shared key's.
  void copy_own_key() const {
    const MutableTensorView own = views_.own_key();
    run_.forward({.from = own, .to = columns_from(views_.made_rows(Norm::k), 0, own.sizes[3])});
  }
  // The cache holds it rotated.
  void copy_shared_key() const {
    const auto rotation = rotation_of_shared_key(p_);
    const MutableTensorView own = views_.shared_key();
    if (p_.caches) run_.forward({.from = own, .to = own, .rotation = rotation});
    TensorView shared = views_.whole_shared_key();
    shared.sizes[1] = p_.heads_kv, shared.strides[1] = 0;
    const MutableTensorView k = views_.made_rows(Norm::k);
    run_.forward({.from = shared,
                  .to = columns_from(k, p_.dim_qk - p_.dim_shared, p_.dim_shared),
                  .rotation = p_.caches ? std::nullopt : rotation});
  }

  void backward(Norm norm, const MutableTensorView& dweight, bool accumulate) const {
    const auto rotation = rotation_of(p_, norm);
    const TensorView& weight = at(norms_, norm);
    if (!weight && !rotation) return;
    const MutableTensorView gradients = views_.row_gradients(norm);
    float* const partial = dweight ? views_.partial() : nullptr;
    run_.backward({.x = weight ? TensorView(views_.read_rows(norm)) : TensorView{},
                   .dy = gradients,
                   .dx = gradients,
                   .weight = weight,
                   .epsilon = p_.epsilon,
                   .rotation = rotation,
                   .partial = partial});
    if (!dweight) return;
    const std::int64_t rows = heads::partial_rows(p_.device.kind, gradients.sizes, rotation);
    run_.sum({partial, rows, dweight, accumulate});
  }

  // Of the gradients that attention has written.
  void backward_qk(const AttentionProblem& written, const LayerBackwardTensors& t) const {
    auto [q, k, v] = views_.head_gradients();
    if (written.wants_dq && written.wants_dk && rotates_together(q, k)) {
      q.sizes[1] += k.sizes[1];
      return run_.backward({.dy = q, .dx = q, .rotation = rotation_of(p_, Norm::q)});
    }
    if (written.wants_dq) backward(Norm::q, t.norm_gradients.q, t.accumulate);
    if (!written.wants_dk) return;
    p_.dim_shared > 0 ? split_key_gradient() : backward(Norm::k, t.norm_gradients.k, t.accumulate);
  }

  void split_key_gradient() const {
    const MutableTensorView whole = views_.head_gradients().k, own = views_.own_key_gradient();
    run_.forward({.from = columns_from(whole, 0, own.sizes[3]), .to = own});
    run_.backward({.dy = columns_from(whole, own.sizes[3], p_.dim_shared),
                   .dx = views_.shared_key_gradient(),
                   .rotation = rotation_of_shared_key(p_)});
  }

 private:
  const Views& views_;
  const LayerProblem& p_;
  const LayerNorms& norms_;
  const RunOfPasses& run_;
};

}  // namespace

void RunOfPasses::tell(std::initializer_list<TensorView> rows) const {
  if (context.watch == nullptr) return;
  LayerPart part{.name = "row passes"};
  for (const TensorView& one : rows) {
    if (!one) continue;
    const auto& [batch, heads, len, dim] = one.sizes;
    part.bytes += static_cast<double>(batch * heads * len * dim * size_of(one.dtype));
  }
  (*context.watch)(part);
}

void RunOfPasses::forward(const heads::RowPass& pass) const {
  tell({pass.from, pass.to});
  passes.forward(pass, context);
}

void RunOfPasses::backward(const heads::RowPassBackward& pass) const {
  tell({pass.x, pass.dy, pass.dx});
  passes.backward(pass, context);
}

void RunOfPasses::sum(const heads::WeightGradient& gradient) const {
  tell({});  // little beside the pass that wrote the partial sums
  passes.sum(gradient, context);
}

void transform_result(const Views& views, const LayerProblem& p, const Step& step, const LayerNorms& norms,
                      const RunOfPasses& run) {
  const Transforms transforms(views, p, norms, run);
  switch (step.slot) {
    case Slot::q_down:
      return transforms.forward(Norm::q_latent);
    case Slot::kv_down:
      transforms.forward(Norm::kv_latent);
      if (p.dim_shared > 0) transforms.copy_shared_key();
      return;
    case Slot::qkv:
      return transforms.forward_qk();
    case Slot::q:
      return transforms.forward(Norm::q);
    case Slot::k:
      return p.dim_shared > 0 ? transforms.copy_own_key() : transforms.forward(Norm::k);
    case Slot::v:
    case Slot::out:
      return;
  }
}

void differentiate_heads(const Views& views, const LayerProblem& p, const AttentionProblem& written,
                         const LayerBackwardTensors& t, const RunOfPasses& run) {
  Transforms(views, p, t.norms, run).backward_qk(written, t);
}

void differentiate_latent(const Views& views, const LayerProblem& p, Source latent, const LayerBackwardTensors& t,
                          const RunOfPasses& run) {
  const Norm norm = latent == Source::q_latent ? Norm::q_latent : Norm::kv_latent;
  Transforms(views, p, t.norms, run).backward(norm, at(t.norm_gradients, norm), t.accumulate);
}

}  // namespace fovea::layers
