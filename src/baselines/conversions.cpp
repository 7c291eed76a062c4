// Selects the row passes' conversions by type.
#include "baselines/conversions.h"

#include <algorithm>
#include <cstring>

#include "baselines/row_passes.h"

namespace fovea::baselines {

void widen_row(float* to, DType type, const void* from, std::int64_t index, std::int64_t count) {
  if (type == DType::fp32) {
    std::copy_n(static_cast<const float*>(from) + index, count, to);
  } else {
    const auto widen = type == DType::bf16 ? row_passes().widen_bf16 : row_passes().widen_fp16;
    widen(to, static_cast<const std::uint16_t*>(from) + index, count);
  }
}

void narrow_row(void* to, DType type, std::int64_t index, const float* from, std::int64_t count) {
  if (type == DType::fp32) {
    std::copy_n(from, count, static_cast<float*>(to) + index);
  } else {
    const auto narrow = type == DType::bf16 ? row_passes().narrow_bf16 : row_passes().narrow_fp16;
    narrow(static_cast<std::uint16_t*>(to) + index, from, count);
  }
}

void narrow_in_place(DType type, float* row, std::int64_t count) {
  constexpr std::int64_t kPiece = 512;  // goes through a copy: narrow elements overlap floats that are still to be read
  std::uint16_t piece[kPiece];
  auto* to = reinterpret_cast<char*>(row);
  for (std::int64_t first = 0; first < count; first += kPiece) {
    const std::int64_t length = std::min(kPiece, count - first);
    narrow_row(piece, type, 0, row + first, length);
    std::memcpy(to + 2 * first, piece, static_cast<std::size_t>(2 * length));
  }
}

}  // namespace fovea::baselines
