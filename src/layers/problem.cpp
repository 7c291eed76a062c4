// Operations and bytes of a problem, and what it saves.
#include <algorithm>

#include "core/check.h"
#include "layers/norms.h"
#include "layers/plan.h"
#include "layers/validate.h"

namespace fovea {
namespace {

using layers::Step;

double elements(std::int64_t rows, std::int64_t columns) {
  return static_cast<double>(rows) * static_cast<double>(columns);
}

double bytes_of(DType dtype) { return static_cast<double>(size_of(dtype)); }

// Elements of all parameters: in forward those that are given, in backward all weights, or the gradients.
struct Parameters {
  double weights = 0, biases = 0, gradients = 0;
};

Parameters parameters_of(const LayerProblem& p) {
  Parameters all;
  for (const Step& step : layers::steps_of(p)) {
    const ProjectionFacts& facts = at(p.projections, step.slot);
    const double weight = elements(step.columns_out, step.columns_in), bias = elements(step.columns_out, 1);
    all.weights += weight;
    all.biases += facts.bias ? bias : 0;
    all.gradients += (facts.wants_dweight ? weight : 0) + (facts.wants_dbias ? bias : 0);
  }
  for (const layers::Norm norm : layers::kAllNorms) {
    const auto columns = static_cast<double>(layers::columns_of(p, norm));
    all.weights += at(p.norms, norm).given ? columns : 0;
    all.gradients += at(p.norms, norm).wants_dweight ? columns : 0;
  }
  return all;
}

}  // namespace

double flops(const LayerProblem& p) {
  double all = layers::needs_attention(p) ? flops(layers::attention_of(p)) : 0;
  for (const layers::Product& product : layers::products_of(p)) all += flops(product.problem);
  return all;
}

double bytes(const LayerProblem& p) {
  const double x = elements(p.batch * p.len_q, p.width), x_kv = p.cross ? elements(p.batch * p.len_k, p.width_kv) : 0;
  const double in = bytes_of(p.dtype), result = bytes_of(p.result_dtype);
  const double saved = static_cast<double>(layers::MemoryMap(p, 0, 0).saved_bytes);
  const Parameters parameters = parameters_of(p);
  const std::int64_t cached_columns =
      p.kind == LayerKind::mla ? p.latent_kv + p.dim_shared : p.heads_kv * (p.dim_qk + p.dim_v);
  const double cache = p.caches ? in * elements(p.batch * p.len_k, cached_columns) : 0;
  const double read = in * (x + x_kv + parameters.weights) + saved;
  if (p.pass == Pass::forward) return read + cache + in * parameters.biases + result * x;
  return read + in * x + result * ((p.wants_dx ? x : 0) + (p.wants_dx_kv ? x_kv : 0)) +
         bytes_of(p.parameter_dtype) * parameters.gradients * (p.accumulate ? 2 : 1);
}

std::int64_t saved_bytes(const LayerProblem& problem, std::string_view attention) {
  return core::guarded("saved_bytes", [&] {
    LayerProblem saving = problem;
    saving.saves = true;
    layers::validate(saving, "saved_bytes");
    const layers::Request request(saving, attention, {});
    return layers::MemoryMap(saving, layers::state_bytes(request), 0).saved_bytes;
  });
}

}  // namespace fovea
