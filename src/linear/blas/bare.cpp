// One library call for a whole product, with the library's own threads: the yardstick for Linear's tiles.
#include <dnnl.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "core/check.h"
#include "core/never_destroyed.h"
#include "linear/blas/blas.h"
#include "linear/blas/matmul_primitive.h"
#include "linear/implementation.h"
#include "linear/steps.h"

namespace fovea::linear::blas {
namespace {

enum BareCall { kMatmul, kSgemm, kOpenblas };

struct BarePlan final : Plan {
  BarePlan(const LinearProblem& p, BareCall named) : Plan(p), call_of_library(named) {
    constexpr std::string_view kCalls[] = {"oneDNN's matmul", "oneDNN's sgemm", "OpenBLAS's sgemm"};
    tiles = "each product one call of " + std::string(kCalls[named]);
  }
  BareCall call_of_library;
};

std::string refusal(const LinearProblem& p, BareCall call) {
  if (p.copies_x || p.copies_dy || p.bias || p.wants_dbias) return "multiplies only: no bias, no copies of inputs";
  const std::vector<WholeProduct> products = whole_products(p);
  if (products.empty()) return "takes no empty product";
  if (p.dtype == DType::fp32) return {};
  if (call != kMatmul) return "multiplies fp32 only";
  if (p.dtype == DType::fp16 || !has_bf16_products()) return "has no product of this type on this processor";
  for (const WholeProduct& one : products)
    if (one.k % kBf16Depth != 0) return "takes only sums of a multiple of " + std::to_string(kBf16Depth) + " products";
  return {};
}

core::Prepared prepare(const LinearProblem& p, int variant) {
  const auto call = static_cast<BareCall>(variant);
  if (std::string reason = refusal(p, call); !reason.empty()) return {.refusal = std::move(reason)};
  return {.plan = std::make_shared<BarePlan>(p, call)};
}

template <class Tensors>
void run(const core::Plan& base, const Tensors& tensors, const core::RunContext& context) {
  const auto& plan = static_cast<const BarePlan&>(base);
  for (const BatchedProduct& product : steps_of(plan, tensors, nullptr).products) {
    for (std::int64_t number = 0; number < product.count; ++number) {
      BatchedProduct one = product;
      one.a = product.a.number(number), one.b = product.b.number(number), one.c = product.c.number(number);
      constexpr decltype(&multiply_by_sgemm) kCalls[] = {multiply_by_primitive, multiply_by_sgemm,
                                                         multiply_by_openblas};
      kCalls[plan.call_of_library](one, context.threads);
    }
  }
}

Implementation entry(std::string_view name, BareCall call) {
  return {.name = name,
          .variant = call,
          .automatic = false,
          .named_because = "it is there to be measured against",
          .reproducible = false,  // the library promises nothing
          .unavailable = [](int) { return std::string(); },
          .prepare = prepare,
          .forward = run<LinearForwardTensors>,
          .backward = run<LinearBackwardTensors>};
}

}  // namespace

void register_bare_calls() {
  const Implementation all[] = {entry("cpu.bare_matmul", kMatmul), entry("cpu.bare_sgemm", kSgemm),
                                entry("cpu.bare_openblas", kOpenblas)};
  Types::list().add(all);
}

}  // namespace fovea::linear::blas
