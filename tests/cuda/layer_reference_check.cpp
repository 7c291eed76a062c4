// A layer's products and attention on the GPU against the CPU's evaluator: plain products bit by bit, exact values
// within the roundings of double precision, plain attention by its error.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "core/random.h"
#include "cuda/measure/device_memory.h"
#include "on_device.h"
#include "program/worker/device_layers.h"
#include "verification/layers/evaluator.h"

namespace fovea::cuda {
namespace {

using verification::Heads;
using verification::LayerEvaluator;
using verification::Matrix;
using verification::Operand;
using verification::PlainVariant;

constexpr double kAgreement = 1e-12;  // of a tensor's norm
constexpr double kFactor = 2;         // between the errors of two plain evaluations

struct Count {
  int passed = 0, failed = 0;
  void add(bool is_right, const char* what, const std::string& of) {
    if (!is_right) std::printf("LAYER REFERENCE %s differs: %s\n", what, of.c_str());
    ++(is_right ? passed : failed);
  }
};

// Numbers of either sign below `size`, of several binary orders.
Matrix<float> filled(std::int64_t rows, std::int64_t columns, std::uint64_t stream, float size = 1) {
  Matrix<float> m(rows, columns);
  for (std::size_t n = 0; n < m.values.size(); ++n) {
    const core::RandomBlock random = core::philox(7, stream, n);
    const float number = static_cast<float>(random[0]) * 0x1p-31f - 1.0f;
    m.values[n] = std::ldexp(number * size, -static_cast<int>(random[1] % 8));
  }
  return m;
}

Matrix<double> widened(const Matrix<float>& m) {
  Matrix<double> result(m.rows, m.columns);
  std::copy(m.values.begin(), m.values.end(), result.values.begin());
  return result;
}

Heads<double> widened(const Heads<float>& heads) { return {widened(heads.q), widened(heads.k), widened(heads.v)}; }

template <class Number>
bool same_bits(const Matrix<Number>& a, const Matrix<Number>& b) {
  return std::equal(a.values.begin(), a.values.end(), b.values.begin(), b.values.end(),
                    [](Number x, Number y) { return std::memcmp(&x, &y, sizeof(Number)) == 0; });
}

// The norm of the difference over that of `wanted`. Infinite where the one is finite and the other is not, or not the
// same.
template <class Number>
double distance(const Matrix<Number>& got, const Matrix<double>& wanted) {
  double error = 0, size = 0;
  for (std::size_t n = 0; n < wanted.values.size(); ++n) {
    const double x = static_cast<double>(got.values[n]), y = wanted.values[n];
    const bool same = std::isnan(y) ? std::isnan(x) : x == y;
    if (!std::isfinite(x) || !std::isfinite(y)) {
      if (!same) return HUGE_VAL;
      continue;
    }
    error += (x - y) * (x - y);
    size += y * y;
  }
  return error == 0 ? 0 : std::sqrt(error / size);
}

std::vector<PlainVariant> variants() {
  std::vector<PlainVariant> all;
  for (const std::int64_t n : {0, 1, 2, 3, 4, 5, 6, 7, 21, 22}) {
    for (const bool tensor_cores : {false, true}) {
      all.push_back(verification::plain_variant(n));
      all.back().tensor_cores = tensor_cores;
    }
  }
  return all;
}

std::string text_of(const PlainVariant& v) {
  return "start " + std::to_string(v.start) + (v.fused ? " fused" : "") + (v.fused_delta ? " fused_delta" : "") +
         (v.scaled_first ? " scaled_first" : "") + (v.base_2 ? " base_2" : "") +
         (v.divided_last ? " divided_last" : "") + (v.tensor_cores ? " tensor_cores" : "");
}

// Every product also with both factors transposed in memory.
void check_exact_products(const LayerEvaluator& gpu, const Matrix<float>& a, const Matrix<float>& b,
                          const Matrix<float>& added, const std::string& sizes, Count& count) {
  const LayerEvaluator& cpu = verification::layer_evaluator_on_cpu();
  const Matrix<double> wide_a = widened(a), wide_b = widened(b), wide_added = widened(added);
  const Matrix<double> a_t = transposed(wide_a), b_t = transposed(wide_b);
  const Matrix<float> narrow_b_t = transposed(b);
  const Matrix<double> wanted = cpu.multiply(wide_a, wide_b, {});
  const auto is_right = [&wanted](const Matrix<double>& got) { return distance(got, wanted) <= kAgreement; };
  count.add(is_right(gpu.multiply(wide_a, wide_b, {})), "product", sizes);
  count.add(is_right(gpu.multiply(Operand(a_t, true), Operand(b_t, true), {})), "product of transposes", sizes);
  count.add(is_right(gpu.multiply(wide_a, b)), "product by fp32", sizes);
  count.add(is_right(gpu.multiply(Operand(a_t, true), Operand(narrow_b_t, true))), "product by a transpose", sizes);
  count.add(distance(gpu.multiply(wide_a, wide_b, wide_added), cpu.multiply(wide_a, wide_b, wide_added)) <= kAgreement,
            "added product", sizes);
}

void check_plain_products(const LayerEvaluator& gpu, const Matrix<float>& a, const Matrix<float>& b,
                          const Matrix<float>& added, const std::string& sizes, Count& count) {
  const LayerEvaluator& cpu = verification::layer_evaluator_on_cpu();
  const Matrix<float> a_t = transposed(a), b_t = transposed(b);
  for (const PlainVariant& v : variants()) {
    const std::string of = sizes + text_of(v);
    const Matrix<float> wanted = cpu.multiply(a, b, {}, v);
    count.add(same_bits(gpu.multiply(a, b, {}, v), wanted), "plain product", of);
    count.add(same_bits(gpu.multiply(Operand(a_t, true), Operand(b_t, true), {}, v), wanted),
              "plain product of transposes", of);
    count.add(same_bits(gpu.multiply(a, b, added, v), cpu.multiply(a, b, added, v)), "added plain product", of);
  }
}

void check_products(const LayerEvaluator& gpu, Count& count) {
  for (const auto& [rows, terms, columns] : {std::tuple{1, 1, 1},
                                             {3, 5, 7},
                                             {5, 0, 3},
                                             {64, 16, 64},
                                             {65, 17, 63},
                                             {130, 300, 70},
                                             {2, 1000, 129},
                                             {200, 31, 1}}) {
    const std::string sizes =
        std::to_string(rows) + " x " + std::to_string(terms) + " x " + std::to_string(columns) + " ";
    for (const float size : {1.0f, 0x1p-70f}) {  // the products of small numbers are subnormal in fp32
      const Matrix<float> a = filled(rows, terms, 1, size), b = filled(terms, columns, 2, size),
                          added = filled(rows, columns, 3, size * size);
      check_exact_products(gpu, a, b, added, sizes, count);
      check_plain_products(gpu, a, b, added, sizes, count);
    }
  }
}

struct HeadsCase {
  std::string name;
  AttentionProblem problem;
  Heads<float> heads;
  Matrix<float> dout;
};

HeadsCase heads_case(const std::string& name, std::int64_t len_q, std::int64_t len_k, const Mask& mask, DType dtype) {
  AttentionProblem p{.pass = Pass::backward,
                     .batch = 2,
                     .heads_q = 4,
                     .heads_kv = 2,
                     .len_q = len_q,
                     .len_k = len_k,
                     .dim_qk = 24,
                     .dim_v = 40,
                     .dtype = dtype,
                     .mask = mask,
                     .scale = 0.6};
  p.result_dtype = dtype;
  HeadsCase c{name + (dtype == DType::fp32 ? " fp32" : " 16-bit"), p, {}, filled(2 * len_q, 4 * 40, 13)};
  c.heads = {filled(2 * len_q, 4 * 24, 10, 4), filled(2 * len_k, 2 * 24, 11, 4), filled(2 * len_k, 2 * 40, 12)};
  for (Matrix<float>* const one : {&c.heads.q, &c.heads.k, &c.heads.v, &c.dout}) verification::round_to(dtype, *one);
  return c;
}

std::vector<HeadsCase> finite_cases() {
  std::vector<HeadsCase> cases;
  for (const DType dtype : {DType::fp32, DType::bf16, DType::fp16}) {
    cases.push_back(heads_case("no mask", 37, 53, Mask::none, dtype));
    cases.push_back(heads_case("causal", 70, 70, Mask::causal, dtype));
    cases.push_back(heads_case("causal bottom right", 37, 300, Mask::causal_bottom_right, dtype));
    cases.push_back(heads_case("rows that see nothing", 90, 40, Mask::causal_bottom_right, dtype));
    cases.push_back(heads_case("causal top left", 37, 53, Mask::causal_top_left, dtype));
    cases.push_back(heads_case("window", 100, 100, Mask::window(9, 20), dtype));
    cases.push_back(heads_case("window top left", 60, 41, Mask::window_top_left(Mask::kUnlimited, 3), dtype));
    cases.push_back(heads_case("window bottom right", 41, 60, Mask::window_bottom_right(17, 0), dtype));
  }
  return cases;
}

// Key 50 is behind the mask of every row, key 20 before rows that see it.
std::vector<HeadsCase> cases_with_non_finite_numbers() {
  std::vector<HeadsCase> cases;
  for (const std::int64_t key : {50, 20}) {
    for (const float value : {std::nanf(""), HUGE_VALF}) {
      for (const bool of_v : {false, true}) {
        HeadsCase c = heads_case("non-finite key " + std::to_string(key), 37, 53, Mask::causal_top_left, DType::fp32);
        (of_v ? c.heads.v : c.heads.k).row(key)[3] = value;
        cases.push_back(c);
      }
    }
  }
  cases.push_back(heads_case("non-finite query", 37, 53, Mask::causal_top_left, DType::fp32));
  cases.back().heads.q.row(11)[2] = -HUGE_VALF;
  cases.push_back(heads_case("non-finite dout", 37, 53, Mask::causal_top_left, DType::fp32));
  cases.back().dout.row(11)[2] = std::nanf("");
  return cases;
}

void check_exact_attention(const LayerEvaluator& gpu, const HeadsCase& c, Count& count) {
  const LayerEvaluator& cpu = verification::layer_evaluator_on_cpu();
  const Heads<double> heads = widened(c.heads);
  const Matrix<double> dout = widened(c.dout);
  count.add(distance(gpu.attend(c.problem, heads), cpu.attend(c.problem, heads)) <= kAgreement, "attention", c.name);
  const Heads<double> got = gpu.attend_backward(c.problem, heads, dout),
                      wanted = cpu.attend_backward(c.problem, heads, dout);
  count.add(distance(got.q, wanted.q) <= kAgreement, "dq", c.name);
  count.add(distance(got.k, wanted.k) <= kAgreement, "dk", c.name);
  count.add(distance(got.v, wanted.v) <= kAgreement, "dv", c.name);
}

// Whether two plain evaluations are equally far from the reference.
bool similar(const Matrix<float>& got, const Matrix<float>& plain, const Matrix<double>& exact) {
  const double error = distance(got, exact), usual = distance(plain, exact);
  return error <= kFactor * usual && usual <= kFactor * error;
}

void check_plain_attention(const LayerEvaluator& gpu, const HeadsCase& c, Count& count) {
  const LayerEvaluator& cpu = verification::layer_evaluator_on_cpu();
  const Heads<double> heads = widened(c.heads);
  const Matrix<double> exact = cpu.attend(c.problem, heads);
  const Heads<double> exact_gradients = cpu.attend_backward(c.problem, heads, widened(c.dout));
  for (const PlainVariant& v : variants()) {
    const std::string of = c.name + " " + text_of(v);
    const Matrix<float> out = cpu.attend(c.problem, c.heads, v);
    count.add(similar(gpu.attend(c.problem, c.heads, v), out, exact), "plain attention", of);
    const Heads<float> got = gpu.attend_backward(c.problem, c.heads, out, c.dout, v),
                       wanted = cpu.attend_backward(c.problem, c.heads, out, c.dout, v);
    count.add(similar(got.q, wanted.q, exact_gradients.q), "plain dq", of);
    count.add(similar(got.k, wanted.k, exact_gradients.k), "plain dk", of);
    count.add(similar(got.v, wanted.v, exact_gradients.v), "plain dv", of);
  }
}

}  // namespace

int check_layer_reference() {
  constexpr std::int64_t kEnough = std::int64_t{1} << 30;  // with less, the CPU might answer for the GPU
  if (free_device_bytes() < kEnough) {
    std::printf("LAYER REFERENCE the device has less than 1 GiB of free memory\n");
    return 1;
  }
  const auto gpu = program::layer_evaluator_on_gpu(0);
  Count count;
  check_products(*gpu, count);
  for (const HeadsCase& c : finite_cases()) {
    check_exact_attention(*gpu, c, count);
    check_plain_attention(*gpu, c, count);
  }
  for (const HeadsCase& c : cases_with_non_finite_numbers()) check_exact_attention(*gpu, c, count);
  std::printf("layer reference: %d passed, %d failed\n", count.passed, count.failed);
  return count.failed == 0 ? 0 : 1;
}

}  // namespace fovea::cuda
