// Asks implementations for refusals along the axes of the case list.
#include "verification/attention/support_matrix.h"

#include <iterator>

#include "core/names.h"

namespace fovea::verification {
namespace {

AttentionProblem problem_of(const Cell& cell, std::int64_t dim_qk, std::int64_t dim_v) {
  AttentionProblem p{.pass = kPasses[cell.pass], .batch = 2, .heads_q = 6, .heads_kv = 2, .len_q = 100, .len_k = 100};
  p.dim_qk = dim_qk;
  p.dim_v = dim_v;
  p.dtype = p.result_dtype = kDtypes[cell.dtype];
  p.mask = core::mask_words()[cell.mask].mask;
  if (core::mask_words()[cell.mask].is_window) p.mask.left = 20, p.mask.right = 3;
  if (p.mask.alignment != Mask::Alignment::equal_lengths) p.len_k = 70;
  return p;
}

// Asks for the problem itself, with fp32 results, and with accumulation.
std::string refusal_of(const attention::Implementation& implementation, AttentionProblem p) {
  p.reproducible = implementation.reproducible;
  const std::string reason = implementation.prepared(p).refusal;
  if (!reason.empty()) return reason;
  p.result_dtype = DType::fp32;
  p.accumulate = p.pass == Pass::backward;
  return implementation.prepared(p).refusal;
}

// One cell of the table: every mask. Layouts are strides, and no implementation refuses strides.
CellSupport over_masks(const attention::Implementation& implementation, Cell cell) {
  CellSupport total;
  for (cell.mask = 0; cell.mask < core::kMaskWords; ++cell.mask) {
    CellSupport one = support_of(implementation, cell);
    if (cell.mask == 0) {
      total = std::move(one);
    } else if (one.support != total.support) {
      total = {Support::partly, total.reason.empty() ? one.reason : total.reason};
    }
  }
  return total;
}

}  // namespace

CellSupport support_of(const attention::Implementation& implementation, const Cell& cell) {
  std::size_t taken = 0, asked = 0;
  std::string reason;
  for (const std::int64_t dim : dim_classes()[cell.dim_class].dims) {
    for (const auto& [dim_qk, dim_v] : {std::pair{dim, dim}, {dim, (dim + 1) / 2}, {(dim + 1) / 2, dim}}) {
      const std::string refusal = refusal_of(implementation, problem_of(cell, dim_qk, dim_v));
      ++asked;
      taken += refusal.empty() ? 1 : 0;
      if (reason.empty()) reason = refusal;
    }
  }
  return {taken == asked ? Support::yes : taken == 0 ? Support::no : Support::partly, reason};
}

std::string support_matrix_markdown() {
  std::string text =
      "# What each implementation of attention takes\n\n"
      "`fovea info --matrix` generates this page; a test fails when it is stale. \"yes\" includes every mask, both\n"
      "layouts, grouped queries (GQA, MQA), different head dimensions of K and V, and fp32 results. It does not mean "
      "that\n"
      "this machine can run the implementation: see `fovea info`. A column is about problems whose larger head\n"
      "dimension is in the column's range and above the range of the column before. Scales other than 0 and 8.2e-39 "
      "to\n"
      "2.3e38 in size are left out: only `reference` takes them.\n\n"
      "Implementations on GPUs are not listed, since their limits depend on the GPU: see `fovea explain`. `cuda.any`\n"
      "takes all types and passes up to d<=256; `cuda.sm90`, on Hopper, bf16 and fp16 with head dimensions that are\n"
      "multiples of 8 up to 256.\n\n"
      "| implementation | type | pass |";
  for (const DimClass& dims : dim_classes()) text += " " + std::string(dims.name) + " |";
  text += " bitwise equal for any number of threads |\n|---|---|---|";
  for (std::size_t n = 0; n <= dim_classes().size(); ++n) text += "---|";
  text += "\n";
  std::vector<std::string> notes;
  for (const auto& implementation : attention::implementations()) {
    if (implementation.device != DeviceKind::cpu) continue;
    for (std::size_t dtype = 0; dtype < std::size(kDtypes); ++dtype) {
      for (std::size_t pass = 0; pass < std::size(kPasses); ++pass) {
        text += "| `" + std::string(implementation.name) + "` | " + std::string(core::name_of(kDtypes[dtype])) + " | " +
                (kPasses[pass] == Pass::forward ? "forward" : "backward") + " |";
        for (std::size_t dims = 0; dims < dim_classes().size(); ++dims) {
          const CellSupport cell = over_masks(implementation, {dtype, pass, 0, 0, dims});
          text += cell.support == Support::yes ? " yes |" : cell.support == Support::no ? " no |" : " partly |";
          const std::string note = "- `" + std::string(implementation.name) + "`: " + cell.reason + "\n";
          if (cell.support != Support::yes && (notes.empty() || notes.back() != note)) notes.push_back(note);
        }
        text += implementation.reproducible ? " yes |\n" : " no |\n";
      }
    }
  }
  if (!notes.empty()) text += "\nReasons:\n\n";
  for (const std::string& note : notes) text += note;
  return text;
}

}  // namespace fovea::verification
