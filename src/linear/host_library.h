// Matrix products on the calling thread: the engine's own, and those of libraries that a program brings along.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "linear/product.h"

namespace fovea::linear {

struct HostLibrary {
  std::string_view name;  // oneDNN
  // Why it is not asked for products of this type; empty if it is.
  std::string (*refusal)(DType operands) = nullptr;
  // Bytes of memory that a product of these sizes and types needs, 64-byte aligned; the larger product, the more.
  std::int64_t (*scratch_bytes)(const BatchedProduct&) = nullptr;
  // One product with a result in fp32 and no bias, on the calling thread alone.
  void (*multiply)(const BatchedProduct&, void* scratch) = nullptr;
};

// Best first, the engine's own product last, which takes everything.
std::vector<HostLibrary> host_libraries();

// Puts libraries before those that are known. Call before any product, once.
void register_host_libraries(std::span<const HostLibrary> libraries);

// The first that takes the type.
const HostLibrary& host_library(DType operands);

}  // namespace fovea::linear
