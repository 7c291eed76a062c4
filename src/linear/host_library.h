// Matrix products on the calling thread: the engine's own, and those of libraries that a program brings along.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "linear/product.h"

namespace fovea::linear {

struct TileSize {
  std::int64_t rows, columns;
};

struct HostLibrary {
  std::string_view name;                // cpu.onednn
  std::string_view title;               // oneDNN
  std::string_view named_because = {};  // why it multiplies only when named; empty if it is chosen too
  // Why it takes no products of this type; empty if it does.
  std::string (*refusal)(DType operands) = nullptr;
  // The largest piece of a result that one call computes: large enough that packing operands takes little of the time.
  TileSize (*largest_tile)(DType operands) = nullptr;
  // Bytes of memory that a product of these sizes and types needs, 64-byte aligned; the larger product, the more.
  std::int64_t (*scratch_bytes)(const BatchedProduct&) = nullptr;
  // Whether it writes the product's result as it is; else it is asked for sums in fp32, which are rounded afterwards.
  bool (*rounds)(const BatchedProduct&) = nullptr;
  // One product without a bias, on the calling thread alone.
  void (*multiply)(const BatchedProduct&, void* scratch) = nullptr;
};

// Best first, the engine's own product last, which takes everything.
const std::vector<HostLibrary>& host_libraries();

// Puts libraries before those that are known. Call before any product, once.
void register_host_libraries(std::span<const HostLibrary> libraries);

}  // namespace fovea::linear
