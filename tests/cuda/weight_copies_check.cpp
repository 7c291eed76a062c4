// The kernel that copies weights: every width and alignment of rows, one matrix and several in a launch, and nothing
// written around them.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "core/random.h"
#include "cuda/measure/device_memory.h"
#include "cuda/runtime/check.h"
#include "layers/cuda/kernels.h"
#include "layers/cuda/weight_copies.h"
#include "on_device.h"

namespace fovea::cuda {
namespace {

using Bytes = std::vector<unsigned char>;

// The rows begin `from` and `to` elements behind the beginning of an allocation.
struct Matrix {
  std::int64_t rows, columns, stride;
  DType dtype = DType::bf16;
  std::int64_t from = 0, to = 0;
};

// A matrix on the device, and room of its own for the copy.
class Copied {
 public:
  explicit Copied(const Matrix& m)
      : m_(m),
        source_(static_cast<std::size_t>(bytes_of(m.from + m.rows * m.stride))),
        from_(static_cast<std::int64_t>(source_.size())),
        to_(bytes_of(m.to + m.rows * m.columns + kBehind)) {
    for (std::size_t i = 0; i < source_.size(); ++i)
      source_[i] = static_cast<unsigned char>(core::philox(23, static_cast<std::uint64_t>(m.rows), i)[0]);
    from_.upload(source_.data());
    to_.poison();
  }

  layers::WeightCopy copy() const {
    const Device device{DeviceKind::cuda, 0};
    const Sizes sizes{1, 1, m_.rows, m_.columns};
    TensorView from = contiguous(from_.data() + bytes_of(m_.from), m_.dtype, sizes, device);
    from.strides[2] = m_.stride;
    return {from, contiguous(to_.data() + bytes_of(m_.to), m_.dtype, sizes, device)};
  }

  // What is wrong; empty if the rows are there and the bytes around them are as they were.
  std::string fault() const {
    Bytes wanted(static_cast<std::size_t>(to_.bytes()), 0xff), got(wanted.size());
    for (std::int64_t row = 0; row < m_.rows; ++row) {
      const auto first = source_.begin() + bytes_of(m_.from + row * m_.stride);
      std::copy(first, first + bytes_of(m_.columns), wanted.begin() + bytes_of(m_.to + row * m_.columns));
    }
    to_.download(got.data());
    for (std::size_t i = 0; i < got.size(); ++i) {
      if (got[i] != wanted[i]) return "byte " + std::to_string(i) + " of " + std::to_string(got.size());
    }
    return {};
  }

 private:
  static constexpr std::int64_t kBehind = 64;

  std::int64_t bytes_of(std::int64_t elements) const { return elements * size_of(m_.dtype); }

  Matrix m_;
  Bytes source_;
  DeviceMemory from_, to_;
};

// Sets of matrices, each of which is copied by one launch.
std::vector<std::vector<Matrix>> sets() {
  constexpr std::int64_t kWideTile = layers::kCopyTile * 16 / 2;  // elements of bf16
  std::vector<std::vector<Matrix>> all;
  const std::vector<Matrix> alone = {{1, 1, 1},
                                     {1, 8, 8},
                                     {7, 3, 3},
                                     {12, 12, 12},
                                     {1, kWideTile, kWideTile},
                                     {2, kWideTile + 8, kWideTile + 8},
                                     {1, layers::kCopyTile, layers::kCopyTile, DType::bf16, 1},
                                     {1, layers::kCopyTile + 1, layers::kCopyTile + 1, DType::bf16, 0, 1},
                                     {129, 64, 72},
                                     {129, 64, 66},
                                     {129, 60, 64},
                                     {300, 513, 600},
                                     {300, 512, 600, DType::bf16, 8, 16},
                                     {300, 512, 600, DType::bf16, 4},
                                     {300, 512, 600, DType::bf16, 0, 4},
                                     {33, 5, 9, DType::fp32, 1},
                                     {33, 64, 68, DType::fp32, 4, 4},
                                     {33, 64, 64, DType::fp32, 0, 1},
                                     {3000, 2000, 2000}};
  for (const Matrix& one : alone) all.push_back({one});
  // The weights of a latent layer; rows of every kind beside each other.
  all.push_back({{2048, 512, 512}, {2048, 512, 512}, {1536, 2048, 2048}, {576, 2048, 2048}});
  all.push_back({{300, 513, 600}, {1, 8, 8}, {129, 64, 72, DType::bf16, 8}, {700, 31, 31, DType::bf16, 0, 3}});
  all.push_back({{1, 1, 1}, {1, 1, 1}, {64, 1024, 1024}});
  return all;
}

std::string words_of(const std::vector<Matrix>& set) {
  std::string words;
  for (const Matrix& m : set)
    words += std::to_string(m.rows) + "x" + std::to_string(m.columns) + " of " + std::to_string(m.stride) + ", ";
  return words;
}

}  // namespace

int check_weight_copies() {
  int passed = 0, failed = 0;
  for (const std::vector<Matrix>& set : sets()) {
    std::vector<Copied> matrices;
    std::vector<layers::WeightCopy> copies;
    for (const Matrix& one : set) copies.push_back(matrices.emplace_back(one).copy());
    layers::copy_weights_on_gpu(copies, {});
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    for (const Copied& one : matrices) {
      const std::string fault = one.fault();
      (fault.empty() ? passed : failed) += 1;
      if (!fault.empty()) std::printf("COPIES %swrong at %s\n", words_of(set).c_str(), fault.c_str());
    }
  }
  std::printf("copies of weights: %d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace fovea::cuda
