// Matrix products on the calling thread: the engine's own, and those of libraries that a program brings along.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>

#include "fovea/linear.h"
#include "linear/product.h"

namespace fovea::linear {

struct TileSize {
  std::int64_t rows, columns;
  bool whole_rows = false;  // tiles of fewer columns would be slower than tiles of few rows
};

struct HostLibrary {
  std::string_view name;                // cpu.onednn
  std::string_view title;               // oneDNN
  std::string_view named_because = {};  // why it multiplies only when named; empty if it is chosen too
  // Why it leaves a problem to later entries unless it is named; empty if it does not, null if it never does.
  std::string (*leaves)(const LinearProblem&) = nullptr;
  // Why it takes no products of this type; empty if it does.
  std::string (*refusal)(DType operands) = nullptr;
  // The largest tile of a result that one call computes: large enough that packing operands takes little of the time.
  TileSize (*largest_tile)(DType operands) = nullptr;
  // Bytes of memory that a product of these sizes and types needs, 64-byte aligned. Grows with the sizes.
  std::int64_t (*scratch_bytes)(const BatchedProduct&) = nullptr;
  // Whether it can store the result's type; otherwise it stores fp32, and Linear rounds.
  bool (*rounds)(const BatchedProduct&) = nullptr;
  // One product without a bias, on the calling thread alone. Null in the entry of the engine's own product, which is no
  // library: it packs whole products (packed_product.h), and of the members above it has only the refusal.
  void (*multiply)(const BatchedProduct&, void* scratch) = nullptr;
};

// The engine's own product, which takes everything, then those that were registered. They stay in place: plans refer to
// them.
const std::deque<HostLibrary>& host_libraries();
int add_host_library(const HostLibrary& library);  // its number in that list

// Libraries come before the engine's own product in Linear's list, in this order. Must not be called while calls run.
void register_host_libraries(std::span<const HostLibrary> libraries);

}  // namespace fovea::linear
