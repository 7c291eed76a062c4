// Attention's case list: the axes of coverage, and random cases along them. Unit tests, `fovea verify` and the support
// matrix use it.
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

// The class of head dimensions depends on the larger of dim_qk and dim_v.
struct DimClass {
  std::string_view name;
  std::int64_t largest;
  std::span<const std::int64_t> dims;  // random cases draw from these
};
std::span<const DimClass> dim_classes();
std::size_t dim_class_of(const AttentionProblem& problem);

// The cells of the support matrix and of coverage: 3 x 2 x 7 x 2 x 6.
struct Cell {
  std::size_t dtype, pass, mask, layout, dim_class;  // indices of the arrays above; mask: of core::mask_words()
  bool operator==(const Cell&) const = default;
};
inline constexpr std::size_t kCells = 3 * 2 * core::kMaskWords * 2 * 6;
Cell cell_of(std::size_t index);
std::size_t index_of(const Cell& cell);
Cell cell_of(const AttentionCase& c, Pass pass);

// The shortest length with more than four of the CPU engine's query tiles and of backward's key blocks. Forward's key
// blocks are twice as long: it has more than two of them.
inline constexpr std::int64_t kBeyondFourTiles = 385;

// Lengths that every test should try: 0, 1, 2, around every tile size, primes, and beyond four tiles.
std::span<const std::int64_t> interesting_lengths();

// The n-th random case of a seed. Any kCells consecutive cases lie in different cells. Shorter runs are spread over all
// axes, and other seeds start in other cells. One case in ten has more than four query tiles, one in ten more than four
// key blocks.
AttentionCase random_case(std::uint64_t seed, std::uint64_t n, const CaseLimits& limits = {});

// Properties that the problem line has no word for, drawn from the case's seed. Cases of one seed share them, except
// where type or pass rules one out.
struct Variation {
  bool fp32_results = false;   // results of 16-bit problems in fp32
  bool accumulate = false;     // into fp32 gradients
  bool outside_delta = false;  // delta given instead of out
  bool lse = true;             // forward writes it
  bool dq = true, dk = true, dv = true;
  bool operator==(const Variation&) const = default;
};
Variation variation_of(const AttentionCase& c);
std::vector<std::string> words_of(const Variation& variation);  // the words of Operation::variation_of
std::vector<Axis> case_axes();                                  // the axes of Cell, in the order of its members

}  // namespace fovea::verification
