// Parameters of the kernel that copies weights, and its address.
#pragma once

#include <cstdint>

namespace fovea::layers {

// A thread copies kCopyUnits units of a tile, kCopyThreads apart. All its loads are under way before its first store.
constexpr int kCopyThreads = 256, kCopyUnits = 4;
constexpr std::int64_t kCopyTile = kCopyThreads * kCopyUnits;  // units

// Rows that become neighbours. Counts and the stride are in units: of 16 bytes where everything is aligned to them,
// else of 2 bytes, which all element types are made of.
struct RowCopy {
  const void* from = nullptr;
  void* to = nullptr;
  std::int64_t units = 0, row_units = 0, from_stride = 0;  // of all rows, of one row, between rows of `from`
  std::int64_t first_tile = 0;
  bool wide = false;
};

constexpr int kMostCopies = 8;
struct RowCopies {
  RowCopy copies[kMostCopies];
  int count = 0;
  std::int64_t tiles = 0;  // of all copies
};
const void* copy_rows_kernel();  // a thread block per tile, or fewer

}  // namespace fovea::layers
