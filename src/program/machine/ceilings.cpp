// Runs the engines' probes and names them as records do.
#include "program/machine/ceilings.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "core/names.h"
#include "cpu/measure/probes.h"
#include "cuda/measure/device_ceilings.h"
#include "fovea/error.h"
#include "linear/blas/blas.h"

namespace fovea::program {
namespace {

constexpr std::int64_t kProductSize = 512;
constexpr int kProductRounds = 5;
constexpr double kLongProbe = 0.05;
constexpr int kMoreProbes = 3;

// One square product on every thread at once, each with its own matrices.
double product_round(int threads, std::vector<std::vector<float>>& matrices) {
  constexpr std::int64_t n = kProductSize;
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::jthread> others;  // joined even if a later one cannot start
  const auto multiply = [&matrices](int thread) {
    float* const a = matrices[static_cast<std::size_t>(thread)].data();
    linear::blas::multiply_fastest({.m = n,
                                    .n = n,
                                    .k = n,
                                    .a = {a, DType::fp32, n},
                                    .b = {a + n * n, DType::fp32, n},
                                    .c = {a + 2 * n * n, DType::fp32, n}});
  };
  for (int thread = 1; thread < threads; ++thread) others.emplace_back(multiply, thread);
  multiply(0);
  others.clear();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return 2.0 * n * n * n * threads / took.count();
}

// 0 if memory or threads run out, so that a run continues without this ceiling.
double rate_if_room(const std::function<double()>& probe) {
  try {
    return probe();
  } catch (const Error& error) {
    if (error.status() != Status::out_of_memory) throw;
    return 0;
  } catch (const std::bad_alloc&) {
    return 0;
  } catch (const std::system_error&) {  // no further thread
    return 0;
  }
}

}  // namespace

double probe_flops(DeviceKind device, DType dtype, int threads, double seconds) {
  if (device != DeviceKind::cpu) return cuda::product_flops(dtype, seconds);
  const double fma = cpu::fma_flops_per_second(cpu::best_isa(), threads, seconds);
  if (dtype != DType::bf16) return fma;
  return std::max(
      {fma, cpu::bf16_dot_flops_per_second(threads, seconds), cpu::bf16_tile_flops_per_second(threads, seconds)});
}

RowCeiling row_ceiling(double probe_before, double probe_after, double best_product,
                       const std::function<double()>& probe) {
  RowCeiling ceiling{.probe_before = probe_before, .probe_after = probe_after, .best_product = best_product};
  for (int n = 0; n < kMoreProbes && is_low_probe(ceiling, 0); ++n)
    ceiling.probe_after = std::max(ceiling.probe_after, probe());
  ceiling.flops_per_s = std::max({ceiling.probe_before, ceiling.probe_after, best_product});
  return ceiling;
}

bool is_low_probe(const RowCeiling& ceiling, double rate) {
  return std::max(ceiling.probe_before, ceiling.probe_after) < std::max(ceiling.best_product, rate);
}

double probe_product(int threads) {
  if (!linear::blas::unavailable().empty()) return 0;
  constexpr auto kElements = static_cast<std::size_t>(3 * kProductSize * kProductSize);
  std::vector<std::vector<float>> matrices(static_cast<std::size_t>(threads), std::vector<float>(kElements, 0.5f));
  double best = 0;
  for (int round = 0; round < kProductRounds; ++round) best = std::max(best, product_round(threads, matrices));
  return best;
}

std::map<std::string, double> probe_all(int threads) {
  std::map<std::string, double> rates{
      {"fma_fp32", cpu::fma_flops_per_second(cpu::best_isa(), threads, kLongProbe)},
      {"fma_fp32_avx2",
       cpu::best_isa() > cpu::Isa::avx2 ? cpu::fma_flops_per_second(cpu::Isa::avx2, threads, kLongProbe) : 0},
      {"dot_bf16", cpu::bf16_dot_flops_per_second(threads, kLongProbe)},
      {"tile_bf16", cpu::bf16_tile_flops_per_second(threads, kLongProbe)},
      {"product_fp32", rate_if_room([threads] { return probe_product(threads); })},
      {"read_bandwidth", rate_if_room([threads] { return cpu::read_bandwidth(threads, kLongProbe); })}};
  std::erase_if(rates, [](const auto& rate) { return rate.second <= 0; });
  return rates;
}

std::map<std::string, double> probe_gpu(bool with_products) {
  std::map<std::string, double> rates{{"gpu_copy_bandwidth", rate_if_room(cuda::copy_bandwidth)}};
  if (with_products) {
    for (const DType dtype : {DType::fp32, DType::fp16, DType::bf16})
      rates[product_name(DeviceKind::cuda, dtype)] =
          rate_if_room([dtype] { return cuda::product_flops(dtype, kLongProbe); });
  }
  std::erase_if(rates, [](const auto& rate) { return rate.second <= 0; });
  return rates;
}

std::string product_name(DeviceKind device, DType dtype) {
  if (device == DeviceKind::cpu) return "product_fp32";
  return "gpu_product_" + std::string(core::name_of(dtype));
}

}  // namespace fovea::program
