// The engine's own product. b is packed once per K block and shared by all threads; each task packs the rows of a that
// it multiplies.
#pragma once

#include <string>

#include "core/plan.h"
#include "linear/packed_layout.h"
#include "linear/product.h"

namespace fovea::linear {

// The workspace of products.
struct PackedRoom {
  std::int64_t panel_bytes = 0;  // packed columns of b
  std::int64_t row_bytes = 0;    // packed rows of a, of each worker
  std::int64_t sums_bytes = 0;   // results that are not fp32, until they are rounded
  int workers = 1;

  std::int64_t bytes() const { return panel_bytes + workers * row_bytes + sums_bytes; }
  void grow_to(const PackedRoom& other);
};

PackedRoom packed_room(const PackedLayout& layout);    // what the product needs
std::string packed_words(const PackedLayout& layout);  // its tiles, for `explain`

// `layout`: of this product. `room`: of this product, or of one that is at least as large in every dimension.
void multiply_packed(const BatchedProduct& product, const PackedLayout& layout, const PackedRoom& room, void* workspace,
                     const core::RunContext& context);

}  // namespace fovea::linear
