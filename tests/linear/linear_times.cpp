// Linear's time over that of the bare library call, with as many threads, in turns: fovea_linear_times [THREADS
// [TURNS]]
#include <omp.h>
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <dnnl.hpp>
#include <functional>
#include <string>
#include <vector>

#include "fovea/linear.h"
#include "linear/blas/blas.h"

namespace {

using namespace fovea;
namespace dn = dnnl;

// One thread's processor time does not count what else the machine does.
double now(int threads) {
  timespec time{};
  clock_gettime(threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

double seconds_of(const std::function<void()>& call, int threads) {
  const double start = now(threads);
  call();
  return now(threads) - start;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Size {
  std::int64_t m, n, k;
};

// Operands of the product: y = x weight^T, dx = dy weight or dweight = dy^T x.
enum class Which { y, dx, dweight };

// oneDNN's matmul of the product's shape, strides and types, on the threads that OpenMP is told.
std::function<void()> bare_call(Which which, const Size& s, DType type, void* x, void* weight, void* y) {
  static dn::engine engine(dn::engine::kind::cpu, 0);
  static dn::stream stream(engine);
  const auto element = type == DType::bf16 ? dn::memory::data_type::bf16 : dn::memory::data_type::f32;
  const auto matrix = [&](std::int64_t rows, std::int64_t columns, std::int64_t row, std::int64_t column) {
    return dn::memory::desc({rows, columns}, element, {row, column});
  };
  const auto rows = matrix(s.m, s.k, s.k, 1), rows_t = matrix(s.k, s.m, 1, s.k);
  const auto of_y = matrix(s.m, s.n, s.n, 1), of_y_t = matrix(s.n, s.m, 1, s.n);
  const auto of_w = matrix(s.n, s.k, s.k, 1), of_w_t = matrix(s.k, s.n, 1, s.k);
  (void)rows_t;
  const auto a = which == Which::y ? rows : which == Which::dx ? of_y : of_y_t;
  const auto b = which == Which::y ? of_w_t : which == Which::dx ? of_w : rows;
  const auto c = which == Which::y ? of_y : which == Which::dx ? rows : of_w;
  void* const data[3] = {which == Which::y ? x : y, which == Which::dweight ? x : weight,
                         which == Which::y    ? y
                         : which == Which::dx ? x
                                              : weight};
  const dn::matmul matmul(dn::matmul::primitive_desc(dn::matmul::desc(a, b, c), engine));
  return [=] {
    matmul.execute(stream, {{DNNL_ARG_SRC, dn::memory(a, engine, data[0])},
                            {DNNL_ARG_WEIGHTS, dn::memory(b, engine, data[1])},
                            {DNNL_ARG_DST, dn::memory(c, engine, data[2])}});
    stream.wait();
  };
}

void compare(Which which, const Size& s, DType type, const std::string& name, int threads, int turns) {
  const auto memory = [&](std::int64_t elements) {
    std::vector<std::uint16_t> values(static_cast<std::size_t>(elements * size_of(type) / 2));
    for (std::size_t i = 0; i < values.size(); ++i)  // small numbers of either type
      values[i] = static_cast<std::uint16_t>(0x3e00 + i * 37 % 0x80);
    return values;
  };
  std::vector<std::uint16_t> x = memory(s.m * s.k), weight = memory(s.n * s.k), y = memory(s.m * s.n);
  std::vector<std::uint16_t> to = memory(std::max({s.m * s.k, s.n * s.k, s.m * s.n}));
  const MutableTensorView rows = contiguous(x.data(), type, {1, 1, s.m, s.k}),
                          w = contiguous(weight.data(), type, {1, 1, s.n, s.k}),
                          out = contiguous(y.data(), type, {1, 1, s.m, s.n});
  const auto result = [&](const MutableTensorView& like) { return contiguous(to.data(), type, like.sizes); };
  const LinearOptions options{.implementation = name, .threads = threads};
  const auto ours = [&] {
    if (which == Which::y) linear_forward({rows, w, {}, result(out)}, options);
    if (which == Which::dx) linear_backward({{}, w, out, result(rows), {}, {}}, options);
    if (which == Which::dweight) linear_backward({rows, {}, out, {}, result(w), {}}, options);
  };
  omp_set_num_threads(threads);
  const auto bare = bare_call(which, s, type, x.data(), weight.data(), y.data());
  bare(), ours();
  std::vector<double> ratios, own;
  for (int turn = 0; turn < turns; ++turn) {
    const bool first = turn % 2 == 0;
    const double one = seconds_of(first ? std::function<void()>(bare) : ours, threads);
    const double other = seconds_of(first ? std::function<void()>(ours) : bare, threads);
    ratios.push_back(first ? other / one : one / other);
    own.push_back(first ? other : one);
  }
  const double flops = 2.0 * static_cast<double>(s.m) * static_cast<double>(s.n) * static_cast<double>(s.k);
  std::printf("%-8s %s %5lld %5lld %5lld %-12s %d threads: %7.1f GFLOP/s, %.3f of the bare call's time\n",
              which == Which::y    ? "y"
              : which == Which::dx ? "dx"
                                   : "dweight",
              type == DType::bf16 ? "bf16" : "fp32", static_cast<long long>(s.m), static_cast<long long>(s.n),
              static_cast<long long>(s.k), name.c_str(), threads, flops / median(own) * 1e-9, median(ratios));
}

}  // namespace

int main(int count, char** arguments) {
  const int threads = count > 1 ? std::atoi(arguments[1]) : default_threads();
  const int turns = count > 2 ? std::atoi(arguments[2]) : 21;
  linear::register_host_libraries(linear::blas::libraries());
  for (const DType type : {DType::fp32, DType::bf16})
    for (const Size& size : {Size{1024, 1024, 1024}, Size{2048, 2048, 2048}, Size{2048, 768, 3072}})
      for (const Which which : {Which::y, Which::dx, Which::dweight})
        for (const char* name : {"cpu.onednn", "cpu.own"}) compare(which, size, type, name, threads, turns);
}
