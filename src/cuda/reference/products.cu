// A thread block computes a tile of the result from tiles of a and b in shared memory; each thread has 16 sums of it.
#include <cuda_runtime_api.h>

#include <algorithm>

#include "cuda/reference/products.h"
#include "cuda/reference/sums.cuh"

namespace fovea::cuda::reference {
namespace {

constexpr int kThreads = 256, kTile = 64;
constexpr int kAcross = 16, kEach = kTile / kAcross;  // a thread's sums are kAcross rows and columns from one another
constexpr std::int64_t kMostCtas = 1 << 20;           // they take tiles in turn

// b of a product in double precision may have fp32 numbers.
template <class Number, class B>
struct Product {
  DeviceMatrix<Number> a;
  DeviceMatrix<B> b;
  DeviceMatrix<Number> added, result;
  TermOrder order;
  bool starts_from_added;
};

// `lines` are rows of a or columns of b; their elements are terms.
template <class Number>
struct Lines {
  const Number* data;
  std::int64_t count, line, term;  // how many, and the strides
};

// Terms [first_term, first_term + kTermsAtOnce) in the order, of the lines from `first` on. The other elements are 0.
template <class Number, class Term>
__device__ void load_tile(const Lines<Number>& lines, std::int64_t first, const TermOrder& order, const IndexRange& all,
                          std::int64_t first_term, Term (&tile)[kTermsAtOnce][kTile + 1]) {
  const bool terms_are_neighbours = lines.term == 1;
  for (int n = threadIdx.x; n < kTile * kTermsAtOnce; n += kThreads) {
    const int t = terms_are_neighbours ? n % kTermsAtOnce : n / kTile;
    const int line = terms_are_neighbours ? n / kTermsAtOnce : n % kTile;
    const bool exists = first + line < lines.count && first_term + t < all.size();
    tile[t][line] =
        exists ? static_cast<Term>(lines.data[(first + line) * lines.line + order.at(first_term + t, all) * lines.term])
               : Term{0};
  }
}

template <class Sum, class B>
__global__ void __launch_bounds__(kThreads) tiled_product(Product<typename Sum::Number, B> p) {
  using Number = typename Sum::Number;
  __shared__ typename Sum::Term a[kTermsAtOnce][kTile + 1], b[kTermsAtOnce][kTile + 1];
  const int own_row = threadIdx.x / kAcross, own_column = threadIdx.x % kAcross;
  const std::int64_t rows = p.result.rows, columns = p.result.columns;
  const std::int64_t tiles_across = (columns + kTile - 1) / kTile, tiles = (rows + kTile - 1) / kTile * tiles_across;
  const IndexRange terms{0, p.a.columns};
  for (std::int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const std::int64_t first_row = tile / tiles_across * kTile, first_column = tile % tiles_across * kTile;
    Sum sums[kEach][kEach];
    const auto for_each_sum = [&](const auto& work) {
#pragma unroll
      for (int r = 0; r < kEach; ++r) {
#pragma unroll
        for (int c = 0; c < kEach; ++c) {
          const std::int64_t row = first_row + own_row + r * kAcross, column = first_column + own_column + c * kAcross;
          if (row < rows && column < columns) work(sums[r][c], row, column);
        }
      }
    };
    const auto added_at = [&](std::int64_t row, std::int64_t column) {
      return p.added.data[row * p.added.row + column * p.added.column];
    };
    if (p.starts_from_added)
      for_each_sum([&](Sum& sum, std::int64_t row, std::int64_t column) { sum.value = added_at(row, column); });
    for (std::int64_t first = 0; first < terms.size(); first += kTermsAtOnce) {
      load_tile(Lines<Number>{p.a.data, rows, p.a.row, p.a.column}, first_row, p.order, terms, first, a);
      load_tile(Lines<B>{p.b.data, columns, p.b.column, p.b.row}, first_column, p.order, terms, first, b);
      __syncthreads();
      const auto for_each_term = [&](const auto& work) {
#pragma unroll
        for (int t = 0; t < kTermsAtOnce; ++t) {
          if (first + t >= terms.size()) break;  // even a term of zeros would change the sum -0
#pragma unroll
          for (int r = 0; r < kEach; ++r) {
#pragma unroll
            for (int c = 0; c < kEach; ++c)
              work(sums[r][c], a[t][own_row + r * kAcross], b[t][own_column + c * kAcross]);
          }
        }
      };
      if constexpr (Sum::kAligns) {
        for_each_term([](Sum& sum, auto x, auto y) { sum.see(x, y); });
#pragma unroll
        for (int n = 0; n < kEach * kEach; ++n) sums[n / kEach][n % kEach].align();
      }
      for_each_term([](Sum& sum, auto x, auto y) { sum.add(x, y); });
#pragma unroll
      for (int n = 0; n < kEach * kEach; ++n) sums[n / kEach][n % kEach].round();
      __syncthreads();  // the next tiles overwrite these
    }
    for_each_sum([&](Sum& sum, std::int64_t row, std::int64_t column) {
      Number value = sum.value;
      if (p.added.data != nullptr && !p.starts_from_added) value += added_at(row, column);
      p.result.data[row * p.result.row + column * p.result.column] = value;
    });
  }
}

template <class Sum, class B>
void launch(const Product<typename Sum::Number, B>& p) {
  const std::int64_t tiles = (p.result.rows + kTile - 1) / kTile * ((p.result.columns + kTile - 1) / kTile);
  if (tiles == 0) return;
  tiled_product<Sum, B><<<static_cast<unsigned>(std::min(tiles, kMostCtas)), kThreads>>>(p);
  check(cudaGetLastError(), "the reference's product");
}

}  // namespace

void write_product(const DeviceMatrix<double>& a, const DeviceMatrix<double>& b, const DeviceMatrix<double>& added,
                   const DeviceMatrix<double>& result) {
  launch<ExactSum, double>({a, b, added, result, {}, false});
}

void write_product(const DeviceMatrix<double>& a, const DeviceMatrix<float>& b, const DeviceMatrix<double>& added,
                   const DeviceMatrix<double>& result) {
  launch<ExactSum, float>({a, b, added, result, {}, false});
}

void write_product(const DeviceMatrix<float>& a, const DeviceMatrix<float>& b, const DeviceMatrix<float>& added,
                   const DeviceMatrix<float>& result, const PlainForm& form) {
  const Product<float, float> product{
      a, b, added, result, order_of(form, a.columns), form.fused && added.data != nullptr};
  with_sum_of(form, [&product](auto sum) { launch<decltype(sum), float>(product); });
}

}  // namespace fovea::cuda::reference
