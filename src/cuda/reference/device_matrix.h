// Matrices in a GPU's memory: views, and memory that holds one.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "cuda/measure/device_memory.h"
#include "cuda/runtime/check.h"

namespace fovea::cuda::reference {

// Element (i, j) is data[i * row + j * column].
template <class Number>
struct DeviceMatrix {
  Number* data = nullptr;
  std::int64_t rows = 0, columns = 0, row = 0, column = 1;
  DeviceMatrix transposed() const { return {data, columns, rows, column, row}; }
};

// Dense memory of one matrix. The constructor throws Error(out_of_memory) if it does not fit.
template <class Number>
class MatrixMemory {
 public:
  // Not set to anything.
  MatrixMemory(std::int64_t rows, std::int64_t columns)
      : memory_(rows * columns * static_cast<std::int64_t>(sizeof(Number))), rows_(rows), columns_(columns) {}
  MatrixMemory(std::int64_t rows, std::int64_t columns, const Number* host) : MatrixMemory(rows, columns) {
    memory_.upload(host);
  }
  void zero() {
    if (memory_.bytes() > 0)
      check(cudaMemset(memory_.data(), 0, static_cast<std::size_t>(memory_.bytes())), "cudaMemset");
  }
  void download(Number* host) const { memory_.download(host); }

  Number* data() const { return reinterpret_cast<Number*>(memory_.data()); }
  DeviceMatrix<Number> view() const { return {data(), rows_, columns_, columns_, 1}; }
  // Row n of `len` of (batch, len) and columns of one head.
  DeviceMatrix<Number> head(std::int64_t batch, std::int64_t len, std::int64_t head, std::int64_t dim) const {
    return {data() + batch * len * columns_ + head * dim, len, dim, columns_, 1};
  }

 private:
  DeviceMemory memory_;
  std::int64_t rows_, columns_;
};

}  // namespace fovea::cuda::reference
