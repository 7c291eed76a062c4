// Converts matrices and variants to the types of the GPU's functions.
#include "program/worker/device_layers.h"

#include <optional>

#include "core/never_destroyed.h"
#include "cuda/reference/layers.h"
#include "fovea/error.h"

namespace fovea::program {
namespace {

using cuda::reference::HostHeads;
using cuda::reference::HostMatrix;
using cuda::reference::PlainForm;
using verification::Heads;
using verification::Matrix;
using verification::Operand;
using verification::PlainVariant;

constexpr double kWorthTransfers = 2e9;  // flops

PlainForm form_of(const PlainVariant& variant) {
  return {.start = variant.start,
          .fused = variant.fused,
          .fused_delta = variant.fused_delta,
          .scaled_first = variant.scaled_first,
          .base_2 = variant.base_2,
          .divided_last = variant.divided_last,
          .tensor_cores = variant.tensor_cores};
}

template <class Number>
HostMatrix<Number> host(const Operand<Number>& operand) {
  return {operand.matrix.values.data(), operand.matrix.rows, operand.matrix.columns, operand.is_transposed};
}

template <class A, class B>
double flops_of(const Operand<A>& a, const Operand<B>& b) {
  return 2.0 * static_cast<double>(a.rows()) * static_cast<double>(a.columns()) * static_cast<double>(b.columns());
}

// Gradients with the sizes of the heads, which write(gradients) fills.
template <class Number, class Write>
Heads<Number> gradients_of(const Heads<Number>& heads, const Write& write) {
  const auto blank = [](const Matrix<Number>& m) { return Matrix<Number>::unset(m.rows, m.columns); };
  Heads<Number> result{blank(heads.q), blank(heads.k), blank(heads.v)};
  write({result.q.values.data(), result.k.values.data(), result.v.values.data()});
  return result;
}

class OnGpu final : public verification::LayerEvaluator {
 public:
  explicit OnGpu(double least_flops) : least_flops_(least_flops) {}
  Matrix<double> multiply(const Operand<double>& a, const Operand<double>& b,
                          const Matrix<double>& added) const override;
  Matrix<double> multiply(const Operand<double>& a, const Operand<float>& b) const override;
  Matrix<float> multiply(const Operand<float>& a, const Operand<float>& b, const Matrix<float>& added,
                         const PlainVariant& variant) const override;
  Matrix<double> attend(const AttentionProblem& p, const Heads<double>& heads) const override;
  Heads<double> attend_backward(const AttentionProblem& p, const Heads<double>& heads,
                                const Matrix<double>& dout) const override;
  Matrix<float> attend(const AttentionProblem& p, const Heads<float>& heads,
                       const PlainVariant& variant) const override;
  Heads<float> attend_backward(const AttentionProblem& p, const Heads<float>& heads, const Matrix<float>& out,
                               const Matrix<float>& dout, const PlainVariant& variant) const override;

 private:
  template <class OnDevice, class OnCpu>
  auto where_it_fits(double flops, const OnDevice& on_device, const OnCpu& on_cpu) const {
    if (flops < least_flops_) return on_cpu();
    try {
      return on_device();
    } catch (const Error& error) {
      if (error.status() != Status::out_of_memory) throw;
      return on_cpu();
    }
  }

  double least_flops_;
};

Matrix<double> OnGpu::multiply(const Operand<double>& a, const Operand<double>& b, const Matrix<double>& added) const {
  const auto on_device = [&] {
    auto result = Matrix<double>::unset(a.rows(), b.columns());
    cuda::reference::product(host(a), host(b), host(Operand(added)), result.values.data());
    return result;
  };
  return where_it_fits(flops_of(a, b), on_device, [&] { return LayerEvaluator::multiply(a, b, added); });
}

Matrix<double> OnGpu::multiply(const Operand<double>& a, const Operand<float>& b) const {
  const auto on_device = [&] {
    auto result = Matrix<double>::unset(a.rows(), b.columns());
    cuda::reference::product(host(a), host(b), result.values.data());
    return result;
  };
  return where_it_fits(flops_of(a, b), on_device, [&] { return LayerEvaluator::multiply(a, b); });
}

Matrix<float> OnGpu::multiply(const Operand<float>& a, const Operand<float>& b, const Matrix<float>& added,
                              const PlainVariant& variant) const {
  const auto on_device = [&] {
    auto result = Matrix<float>::unset(a.rows(), b.columns());
    cuda::reference::product(host(a), host(b), host(Operand(added)), form_of(variant), result.values.data());
    return result;
  };
  return where_it_fits(flops_of(a, b), on_device, [&] { return LayerEvaluator::multiply(a, b, added, variant); });
}

Matrix<double> OnGpu::attend(const AttentionProblem& p, const Heads<double>& heads) const {
  const auto on_device = [&] {
    auto out = Matrix<double>::unset(p.batch * p.len_q, p.heads_q * p.dim_v);
    const HostHeads<double> given{heads.q.values.data(), heads.k.values.data(), heads.v.values.data()};
    cuda::reference::attend(p, given, out.values.data());
    return out;
  };
  return where_it_fits(flops(p), on_device, [&] { return LayerEvaluator::attend(p, heads); });
}

Heads<double> OnGpu::attend_backward(const AttentionProblem& p, const Heads<double>& heads,
                                     const Matrix<double>& dout) const {
  const auto on_device = [&] {
    const HostHeads<double> given{
        .q = heads.q.values.data(), .k = heads.k.values.data(), .v = heads.v.values.data(), .dout = dout.values.data()};
    return gradients_of(heads, [&](const cuda::reference::HostGradients<double>& gradients) {
      cuda::reference::attend_backward(p, given, gradients);
    });
  };
  return where_it_fits(flops(p), on_device, [&] { return LayerEvaluator::attend_backward(p, heads, dout); });
}

Matrix<float> OnGpu::attend(const AttentionProblem& p, const Heads<float>& heads, const PlainVariant& variant) const {
  const auto on_device = [&] {
    auto out = Matrix<float>::unset(p.batch * p.len_q, p.heads_q * p.dim_v);
    const HostHeads<float> given{heads.q.values.data(), heads.k.values.data(), heads.v.values.data()};
    cuda::reference::attend(p, given, form_of(variant), out.values.data());
    verification::round_to(p.result_dtype, out);
    return out;
  };
  return where_it_fits(flops(p), on_device, [&] { return LayerEvaluator::attend(p, heads, variant); });
}

Heads<float> OnGpu::attend_backward(const AttentionProblem& p, const Heads<float>& heads, const Matrix<float>& out,
                                    const Matrix<float>& dout, const PlainVariant& variant) const {
  const auto on_device = [&] {
    const HostHeads<float> given{heads.q.values.data(), heads.k.values.data(), heads.v.values.data(), out.values.data(),
                                 dout.values.data()};
    const auto variant_of_lse = verification::variant_of_lse(variant);
    const auto form_of_lse = variant_of_lse ? std::optional(form_of(*variant_of_lse)) : std::nullopt;
    Heads<float> result = gradients_of(heads, [&](const cuda::reference::HostGradients<float>& gradients) {
      cuda::reference::attend_backward(p, given, form_of(variant), form_of_lse ? &*form_of_lse : nullptr, gradients);
    });
    for (Matrix<float>* const one : {&result.q, &result.k, &result.v}) verification::round_to(p.result_dtype, *one);
    return result;
  };
  return where_it_fits(flops(p), on_device,
                       [&] { return LayerEvaluator::attend_backward(p, heads, out, dout, variant); });
}

}  // namespace

std::unique_ptr<const verification::LayerEvaluator> layer_evaluator_on_gpu(double least_flops) {
  return std::make_unique<OnGpu>(least_flops);
}

const verification::LayerEvaluator& layer_evaluator(DeviceKind device) {
  static const auto& on_gpu = core::never_destroyed<OnGpu>(kWorthTransfers);
  return device == DeviceKind::cpu ? verification::layer_evaluator_on_cpu() : on_gpu;
}

}  // namespace fovea::program
