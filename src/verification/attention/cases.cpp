// Random cases: the case's number gives the cell; random numbers of (seed, number) give everything else.
#include "verification/attention/cases.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/names.h"
#include "core/random.h"

namespace fovea::verification {
namespace {

constexpr std::int64_t kDims16[] = {1, 2, 3, 5, 7, 8, 11, 15, 16};
constexpr std::int64_t kDims32[] = {17, 20, 24, 31, 32, 32};
constexpr std::int64_t kDims64[] = {33, 40, 48, 56, 63, 64, 64, 64};
constexpr std::int64_t kDims128[] = {65, 72, 80, 96, 96, 112, 127, 128, 128, 128};
constexpr std::int64_t kDims256[] = {129, 160, 192, 192, 255, 256, 256};
constexpr std::int64_t kDimsAbove[] = {257, 288, 320, 512, 576, 1024, 2048, 4096};

constexpr DimClass kDimClasses[] = {{"d<=16", 16, kDims16},    {"d<=32", 32, kDims32},    {"d<=64", 64, kDims64},
                                    {"d<=128", 128, kDims128}, {"d<=256", 256, kDims256}, {"d>256", 4096, kDimsAbove}};
static_assert(kCells == std::size(kDtypes) * std::size(kPasses) * core::kMaskWords * std::size(kLayouts) *
                            std::size(kDimClasses));

constexpr std::int64_t kShort[] = {1,  2,  3,  5,  7,  8,  9,  13, 15, 16, 17, 23, 24, 25, 29, 31,
                                   32, 33, 40, 41, 47, 48, 49, 53, 61, 63, 64, 65, 71, 79, 81, 95};
constexpr std::int64_t kMiddle[] = {96,  97,  101, 113, 127, 128, 129, 149, 159, 161, 191, 192,
                                    193, 199, 211, 240, 255, 256, 257, 271, 319, 320, 321, 383};
constexpr std::int64_t kLong[] = {kBeyondFourTiles, 389, 449, 479, 480, 481, 509, 511, 513, 575, 641, 769, 1023, 1025};
// With one batch element and few heads, the CPU engine divides so many keys among tasks in backward, and in forward for
// few queries. There a task of these problems has 576 or 768 keys.
constexpr std::int64_t kDivided[] = {1024, 1031, 1152, 1153, 1279, 1537, 2049};
constexpr std::int64_t kFewQueries = 16;  // query rows per key head
// Of the cases that may have many bytes, so many for one that has; they take seconds, so short runs have none.
constexpr std::uint32_t kCasesPerManyBytes = 8;
constexpr std::uint64_t kFirstOfManyBytes = 2000;

// The cell of a case. Any kCells consecutive cases are in different cells, because kStep and kCells are coprime. With
// this step any 8 consecutive cases have every type and pass, any 47 also every mask, any 60 also every class of head
// dimensions. No other step but its mirror image is as good in all three. kShift spreads the starts of consecutive
// seeds, for runs that are split among processes: sixteen of them start at most 33 cases apart.
std::size_t cell_number(std::uint64_t seed, std::uint64_t n) {
  constexpr std::uint64_t kStep = 193, kShift = 157;
  static_assert(std::gcd(kStep, kCells) == 1 && std::gcd(kShift, kCells) == 1);
  return static_cast<std::size_t>((n % kCells + seed % kCells * kShift) * kStep % kCells);  // far from 2^64
}

bool has_equal_lengths(const Mask& mask) { return mask.alignment == Mask::Alignment::equal_lengths; }

// Which lengths of a case must be beyond four tiles.
struct Reach {
  bool queries = false, keys = false;
};

// Every fifth visit of a cell is long, at a different time for each cell. Visits alternate between many queries and
// many keys. With equal lengths both are long, so only every other of these visits is.
Reach reach_of(std::uint64_t n, const Mask& mask) {
  const std::uint64_t turn = n / kCells + n % kCells;
  if (turn % 5 != 0) return {};
  const bool odd = turn / 5 % 2 != 0;
  if (has_equal_lengths(mask)) return {!odd, !odd};
  return {odd, !odd};
}

// Random numbers of one case.
class Draw {
 public:
  Draw(std::uint64_t seed, std::uint64_t n) : seed_(seed), n_(n) {}
  std::uint32_t word() { return core::philox(seed_, n_, position_++)[0]; }
  bool one_in(std::uint32_t count) { return word() % count == 0; }
  template <class Range>
  auto of(const Range& values) {
    return values[word() % std::size(values)];
  }

 private:
  std::uint64_t seed_, n_, position_ = 0;
};

double multiplications(const AttentionProblem& p) {
  return static_cast<double>(p.batch * p.heads_q) * static_cast<double>(p.len_q * p.len_k) *
         static_cast<double>(p.dim_qk + p.dim_v);
}

void draw_lengths(Draw& draw, Reach reach, AttentionProblem& p) {
  const bool may_be_none = !reach.queries && !reach.keys;
  const auto length = [&draw, may_be_none](bool is_long) {
    if (is_long) return draw.of(kLong);
    if (draw.one_in(40) && may_be_none) return std::int64_t{0};
    return draw.one_in(4) ? draw.of(kMiddle) : draw.of(kShort);
  };
  const bool divided = reach.keys && std::max(p.dim_qk, p.dim_v) <= 256 && !draw.one_in(4);
  p.len_k = divided ? draw.of(kDivided) : length(reach.keys);
  p.len_q = has_equal_lengths(p.mask) || (draw.one_in(3) && !reach.queries) ? p.len_k : length(reach.queries);
  if (!has_equal_lengths(p.mask) && !reach.queries && draw.one_in(10)) p.len_q = 1;  // decoding
  if (divided && !has_equal_lengths(p.mask) && !reach.queries && (p.pass == Pass::forward || draw.one_in(2)))
    p.len_q = 1 + draw.word() % std::max<std::int64_t>(1, kFewQueries * p.heads_kv / p.heads_q);
}

void draw_heads(Draw& draw, Reach reach, AttentionProblem& p) {
  constexpr std::int64_t kRatios[] = {1, 1, 1, 2, 3, 4, 5, 7, 8}, kKeyHeads[] = {1, 1, 2, 3}, kBatches[] = {1, 1, 2, 3};
  p.heads_kv = draw.of(kKeyHeads);
  p.heads_q = p.heads_kv * draw.of(kRatios);
  p.batch = draw.of(kBatches);
  const bool may_be_none = !reach.queries && !reach.keys;
  if (draw.one_in(150) && may_be_none) p.batch = 0;
  if (draw.one_in(150) && may_be_none) p.heads_q = p.heads_kv = 0;
}

double elements(const AttentionProblem& p) {
  return static_cast<double>(p.batch) * static_cast<double>(p.heads_q * p.len_q + p.heads_kv * p.len_k) *
         static_cast<double>(p.dim_qk + p.dim_v);
}

// One size becomes 0 and another one huge, as far as the other tensors stay small.
void draw_empty(Draw& draw, AttentionProblem& p) {
  constexpr std::int64_t kHuge[] = {2048, 2053, 4097, 8209};
  constexpr std::int64_t kSequences = 1 << 14;
  const std::uint32_t kind = draw.word() % 4;
  std::int64_t* huge = nullptr;
  if (kind < 2 && !has_equal_lengths(p.mask)) {
    (kind == 0 ? p.len_q : p.len_k) = 0;
    huge = kind == 0 ? &p.len_k : &p.len_q;
    p.batch = p.heads_kv = 1;
    p.heads_q = 2;
  } else if (kind % 2 == 0) {
    p.batch = 0;
    huge = &p.heads_kv;
  } else {
    p.heads_q = 0;
    p.heads_kv = draw.of(kHuge);
    p.len_q = p.len_k = 1;
    huge = &p.batch;
  }
  *huge = draw.of(kHuge);
  if (huge == &p.heads_kv) p.heads_q = 2 * p.heads_kv;
  while (elements(p) > 1 << 19 || p.batch * p.heads_kv > kSequences) {
    std::int64_t& size = *huge > 1 ? *huge : p.heads_kv;
    size /= 2;
  }
}

void draw_dims(Draw& draw, const DimClass& dims, AttentionProblem& p) {
  p.dim_qk = p.dim_v = draw.of(dims.dims);
  if (!draw.one_in(3)) return;
  std::int64_t& smaller = draw.one_in(2) ? p.dim_qk : p.dim_v;
  smaller = 1 + static_cast<std::int64_t>(draw.word()) % smaller;
}

// Shrinks the problem so that twenty thousand cases take minutes. Lengths that must be beyond four tiles stay so.
void shrink_to(double limit, Reach reach, AttentionProblem& p) {
  while (multiplications(p) > limit) {
    if (p.batch > 1) {
      --p.batch;
    } else if (p.heads_kv > 1) {
      p.heads_q -= p.heads_q / p.heads_kv;
      --p.heads_kv;
    } else if (p.heads_q > 2 && multiplications(p) > 4 * limit) {
      p.heads_q = 2;
    } else if (has_equal_lengths(p.mask)) {
      const std::int64_t least = reach.keys ? kBeyondFourTiles : 0;
      if (p.len_q <= least) return;
      p.len_q = p.len_k = std::max(p.len_q * 3 / 4, least);
    } else {
      const bool shortens_keys = reach.queries || (!reach.keys && p.len_k >= p.len_q);
      std::int64_t& length = shortens_keys ? p.len_k : p.len_q;
      if (length == 1) return;  // no queries or no keys would leave little to compare
      length = length * 3 / 4;
    }
  }
}

// 0, a few keys, around a tile edge, any number of keys, the largest bound, or no limit.
std::int64_t draw_bound(Draw& draw, std::int64_t len_k) {
  constexpr std::int64_t kEdges[] = {15, 16, 31, 32, 47, 48, 63, 64, 65, 95, 96, 97, 127, 128, 129};
  switch (draw.word() % 8) {
    case 0:
      return 0;
    case 1:
      return 1 + draw.word() % 4;
    case 2:
    case 3:
      return draw.of(kEdges);
    case 4:
      return draw.one_in(4) ? Mask::kLargestBound : Mask::kUnlimited;
    default:
      return static_cast<std::int64_t>(draw.word()) % (len_k + 1);
  }
}

// Draws bounds that no other mask has: both unlimited is no mask, and left unlimited with right 0 is causal.
void draw_window(Draw& draw, AttentionProblem& p) {
  if (!core::word_of(p.mask).is_window) return;
  p.mask.left = draw_bound(draw, p.len_k);
  p.mask.right = draw.one_in(3) ? 0 : draw_bound(draw, p.len_k);
  if (p.mask.left == Mask::kUnlimited && (p.mask.right == Mask::kUnlimited || p.mask.right == 0))
    p.mask.left = 1 + p.len_k / 3;
}

// So many sequences that the CPU engine gives one task several tiles of query rows, which may be all of a sequence.
void draw_many_sequences(Draw& draw, AttentionProblem& p) {
  p.batch = 32 + draw.word() % 8;
  p.heads_q = p.heads_kv = 1;
  p.len_q = p.len_k = 17 + draw.word() % 8;
}

// Whether the case can be made cheap enough for draw_many_bytes.
bool may_have_many_bytes(const Cell& cell, const AttentionProblem& p) {
  if (kDimClasses[cell.dim_class].largest != 256 || has_equal_lengths(p.mask)) return false;
  return core::word_of(p.mask).is_window || (p.pass == Pass::forward && p.mask != Mask::causal_top_left);
}

// Tensors become larger than what the CPU engine packs or reads at once: 64 MiB, so that sequences are packed in waves;
// or 12 MiB, beyond which K and V of few queries come from memory. Windows of few keys keep the former cheap.
void draw_many_bytes(Draw& draw, AttentionProblem& p) {
  constexpr std::int64_t kPacked = std::int64_t{66} << 20, kRead = std::int64_t{13} << 20, kBound = 40;
  const std::int64_t dims = p.dim_qk + p.dim_v, any = draw.word() % 64;
  p.batch = 1;
  if (!core::word_of(p.mask).is_window) {
    p.heads_q = p.heads_kv = 4;
    p.len_q = 1 + draw.word() % 3;
    p.len_k = kRead / (4 * dims * size_of(p.dtype)) + any;
    return;
  }
  p.mask.left = std::min(p.mask.left, kBound);
  p.mask.right = std::min(p.mask.right, kBound);
  // What packs bf16 as fp32 has more waves.
  const std::int64_t bytes = dims * (p.dtype == DType::bf16 ? 2 : 4);
  p.heads_q = 8;
  if (p.pass == Pass::forward) {
    p.heads_kv = 8;
    p.len_q = 100 + any;
    p.len_k = kPacked / (8 * bytes) + any;
  } else {  // a row is packed twice: by rows and by columns
    p.heads_kv = 2;
    p.len_q = kPacked / (8 * 2 * bytes) + any;
    p.len_k = 1024 + any;
  }
}

void draw_inputs(Draw& draw, AttentionCase& c) {
  constexpr std::string_view kPlaces[] = {"contiguous", "contiguous", "strided",       "strided",
                                          "broadcast",  "guarded",    "guarded_front", "guarded"};
  c.data = draw.one_in(4) ? "normal" : std::string(draw.of(kDataFamilies));
  c.place = draw.of(kPlaces);
  constexpr double kScales[] = {0.0, 1.0, -0.3, 0.05, 0.5};
  c.problem.scale = draw.one_in(3) ? draw.of(kScales) : 1.0 / std::sqrt(static_cast<double>(c.problem.dim_qk));
  c.seed = draw.word();
}

}  // namespace

std::span<const DimClass> dim_classes() { return kDimClasses; }

std::size_t dim_class_of(const AttentionProblem& problem) {
  const std::int64_t dim = std::max(problem.dim_qk, problem.dim_v);
  std::size_t index = 0;
  while (index + 1 < std::size(kDimClasses) && dim > kDimClasses[index].largest) ++index;
  return index;
}

Cell cell_of(std::size_t index) {
  Cell cell{};
  const auto take = [&index](std::size_t size) {
    const std::size_t value = index % size;
    index /= size;
    return value;
  };
  cell.dim_class = take(std::size(kDimClasses));
  cell.layout = take(std::size(kLayouts));
  cell.mask = take(core::kMaskWords);
  cell.pass = take(std::size(kPasses));
  cell.dtype = take(std::size(kDtypes));
  return cell;
}

std::size_t index_of(const Cell& cell) {
  return (((cell.dtype * std::size(kPasses) + cell.pass) * core::kMaskWords + cell.mask) * std::size(kLayouts) +
          cell.layout) *
             std::size(kDimClasses) +
         cell.dim_class;
}

Cell cell_of(const AttentionCase& c, Pass pass) {
  return {static_cast<std::size_t>(c.problem.dtype), static_cast<std::size_t>(pass), core::index_of(c.problem.mask),
          static_cast<std::size_t>(c.layout), dim_class_of(c.problem)};
}

std::span<const std::int64_t> interesting_lengths() {
  static const std::vector<std::int64_t> all = [] {
    std::vector<std::int64_t> lengths{0};
    for (const auto some : {std::span<const std::int64_t>(kShort), std::span<const std::int64_t>(kMiddle),
                            std::span<const std::int64_t>(kLong)}) {
      lengths.insert(lengths.end(), some.begin(), some.end());
    }
    return lengths;
  }();
  return all;
}

AttentionCase random_case(std::uint64_t seed, std::uint64_t n, const CaseLimits& limits) {
  Draw draw(seed, n);
  const Cell cell = cell_of(cell_number(seed, n));
  const Reach reach = reach_of(n, core::mask_words()[cell.mask].mask);
  AttentionCase c;
  AttentionProblem& p = c.problem;
  const bool backward = limits.backward && (!limits.forward || kPasses[cell.pass] == Pass::backward);
  c.pass = !backward ? CasePass::fwd : draw.one_in(6) ? CasePass::e2e : CasePass::bwd;
  p.pass = c.pass == CasePass::bwd ? Pass::backward : Pass::forward;
  p.dtype = p.result_dtype = kDtypes[cell.dtype];
  p.mask = core::mask_words()[cell.mask].mask;
  p.device.kind = limits.device;
  c.layout = kLayouts[cell.layout];
  draw_dims(draw, kDimClasses[cell.dim_class], p);
  draw_heads(draw, reach, p);
  draw_lengths(draw, reach, p);
  if (!reach.queries && !reach.keys && draw.one_in(50)) draw_empty(draw, p);
  shrink_to(!reach.queries && !reach.keys ? 1.5e6 : backward ? 1e7 : 1.5e7, reach, p);
  draw_window(draw, p);
  if (!reach.queries && !reach.keys && kDimClasses[cell.dim_class].largest <= 64 && draw.one_in(60))
    draw_many_sequences(draw, p);
  if (n >= kFirstOfManyBytes && may_have_many_bytes(cell, p) && draw.one_in(kCasesPerManyBytes))
    draw_many_bytes(draw, p);
  draw_inputs(draw, c);
  return c;
}

// Draws every field in every case, and then drops those that do not apply. So a smaller case of the same seed keeps the
// other fields.
Variation variation_of(const AttentionCase& c) {
  Draw draw(c.seed, 0xC0FFEE);
  const bool fp32_results = draw.one_in(3), accumulate = draw.one_in(2), outside_delta = draw.one_in(4),
             no_lse = draw.one_in(4), some_gradients = draw.one_in(4);
  const std::uint32_t kept = 1 + draw.word() % 7;
  Variation v;
  v.fp32_results = fp32_results && c.problem.dtype != DType::fp32;
  v.accumulate = accumulate && fp32_results;  // 16-bit results cannot accumulate
  v.outside_delta = outside_delta && c.pass == CasePass::bwd;
  v.lse = !no_lse || c.pass == CasePass::e2e;
  v.dq = !some_gradients || (kept & 1u) != 0;
  v.dk = !some_gradients || (kept & 2u) != 0;
  v.dv = !some_gradients || (kept & 4u) != 0;
  return v;
}

std::vector<std::string> words_of(const Variation& v) {
  std::vector<std::string> words;
  for (const auto& [condition, word] : {std::pair{v.fp32_results, "fp32_results"},
                                        {v.accumulate, "accumulate"},
                                        {v.outside_delta, "outside_delta"},
                                        {!v.lse, "no_lse"},
                                        {!v.dq, "no_dq"},
                                        {!v.dk, "no_dk"},
                                        {!v.dv, "no_dv"}}) {
    if (condition) words.emplace_back(word);
  }
  return words;
}

std::vector<Axis> case_axes() {
  std::vector<Axis> axes{
      {"dtype", {}}, {"pass", {"forward", "backward"}}, {"mask", {}}, {"layout", {}}, {"head_dims", {}}};
  for (const DType one : kDtypes) axes[0].classes.emplace_back(core::name_of(one));
  for (const core::MaskWord& one : core::mask_words()) axes[2].classes.emplace_back(one.word);
  for (const Layout one : kLayouts) axes[3].classes.emplace_back(name_of(one));
  for (const DimClass& one : dim_classes()) axes[4].classes.emplace_back(one.name);
  return axes;
}

}  // namespace fovea::verification
