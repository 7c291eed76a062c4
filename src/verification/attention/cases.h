// Attention's case list: the axes that implementations are measured on, and random cases along them. Unit tests, `fovea
// verify` and the support matrix all read it.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attention/mask.h"
#include "verification/attention/case.h"
#include "verification/operation.h"

namespace fovea::verification {

inline constexpr DType kDtypes[] = {DType::fp32, DType::bf16, DType::fp16};
inline constexpr Pass kPasses[] = {Pass::forward, Pass::backward};
inline constexpr Layout kLayouts[] = {Layout::bhld, Layout::blhd};

// Head dimensions are classed by the larger of dim_qk and dim_v.
struct DimClass {
  std::string_view name;
  std::int64_t largest;
  std::span<const std::int64_t> dims;  // what random cases draw from
};
std::span<const DimClass> dim_classes();
std::size_t dim_class_of(const AttentionProblem& problem);

// What the support matrix and the coverage count: 3 x 2 x 7 x 2 x 6 cells.
struct Cell {
  std::size_t dtype, pass, mask, layout, dim_class;  // indices of the arrays above; mask: of core::mask_words()
  bool operator==(const Cell&) const = default;
};
inline constexpr std::size_t kCells = 3 * 2 * core::kMaskWords * 2 * 6;
Cell cell_of(std::size_t index);
std::size_t index_of(const Cell& cell);
Cell cell_of(const AttentionCase& c, Pass pass);

// The shortest length of more than four of the CPU engine's blocks of keys, which are longer than its tiles of queries.
inline constexpr std::int64_t kBeyondFourTiles = 385;

// Lengths worth trying by themselves: 0, 1, 2, around every tile size, primes, and beyond four tiles.
std::span<const std::int64_t> interesting_lengths();

// The n-th random case of a seed. Cases n, n + 1, .. walk through the cells, so that every one gets its share: any
// kCells of them are in kCells cells, fewer are spread over all axes, and another seed begins in another cell. One in
// ten has more than four tiles of queries, one in ten more than four blocks of keys.
AttentionCase random_case(std::uint64_t seed, std::uint64_t n, const CaseLimits& limits = {});

// What the problem line has no word for, drawn from the case's seed: the same for every case of that seed but for what
// its type and pass rule out.
struct Variation {
  bool fp32_results = false;   // results of 16-bit problems in fp32
  bool accumulate = false;     // into fp32 gradients
  bool outside_delta = false;  // delta given instead of out
  bool lse = true;             // forward writes it
  bool dq = true, dk = true, dv = true;
  bool operator==(const Variation&) const = default;
};
Variation variation_of(const AttentionCase& c);
std::vector<std::string> words_of(const Variation& variation);  // those that an operation knows (operation.h)
std::vector<Axis> case_axes();                                  // of cells, in the order of their members

}  // namespace fovea::verification
