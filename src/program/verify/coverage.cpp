// Counting cells and printing them.
#include "program/verify/coverage.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/names.h"
#include "verification/support_matrix.h"

namespace fovea::program {
namespace {

using verification::Cell;
using verification::kCells;

std::string pass_name(Pass pass) { return pass == Pass::forward ? "forward" : "backward"; }

std::string row_name(const Cell& cell) {
  return fmt::format("{} {} {} {}", core::name_of(verification::kDtypes[cell.dtype]),
                     pass_name(verification::kPasses[cell.pass]), core::name_of(verification::kMasks[cell.mask]),
                     core::name_of(verification::kLayouts[cell.layout]));
}

std::string_view class_name(const Cell& cell) { return verification::dim_classes()[cell.dim_class].name; }

const core::Implementation* find(std::string_view name) {
  for (const auto& one : core::all_implementations()) {
    if (one.name == name) return &one;
  }
  return nullptr;
}

}  // namespace

Coverage::Counts& Coverage::of(std::string_view implementation) {
  for (auto& [name, counts] : counts_) {
    if (name == implementation) return counts;
  }
  return counts_.emplace_back(std::string(implementation), Counts{}).second;
}

void Coverage::count(std::string_view implementation, const core::Case& c) {
  Counts& counts = of(implementation);
  if (c.pass != core::CasePass::bwd) ++counts[index_of(verification::cell_of(c, Pass::forward))];
  if (c.pass != core::CasePass::fwd) ++counts[index_of(verification::cell_of(c, Pass::backward))];
}

std::vector<Coverage::Shortage> Coverage::below(std::int64_t wanted, bool forward, bool backward) const {
  std::vector<Shortage> found;
  for (const auto& [name, counts] : counts_) {
    const core::Implementation* const implementation = find(name);
    for (std::size_t n = 0; n < kCells; ++n) {
      const Cell cell = verification::cell_of(n);
      const bool asked = verification::kPasses[cell.pass] == Pass::forward ? forward : backward;
      if (!asked || counts[n] >= wanted || implementation == nullptr) continue;
      if (support_of(*implementation, cell).support != verification::Support::yes) continue;
      found.push_back({fmt::format("{} {} {}", name, row_name(cell), class_name(cell)), counts[n]});
    }
  }
  return found;
}

std::string Coverage::text() const {
  std::string text;
  for (const auto& [name, counts] : counts_) {
    text += fmt::format("{:<46}", "Cases that " + name + " ran");
    for (const auto& dims : verification::dim_classes()) text += fmt::format("{:>9}", dims.name);
    text += "\n";
    for (std::size_t n = 0; n < kCells; n += verification::dim_classes().size()) {
      std::string row;
      std::int64_t total = 0;
      for (std::size_t c = 0; c < verification::dim_classes().size(); ++c) {
        row += fmt::format("{:>9}", counts[n + c]);
        total += counts[n + c];
      }
      if (total > 0) text += fmt::format("  {:<44}{}\n", row_name(verification::cell_of(n)), row);
    }
  }
  return text;
}

nlohmann::json Coverage::json() const {
  auto rows = nlohmann::json::array();
  for (const auto& [name, counts] : counts_) {
    for (std::size_t n = 0; n < kCells; ++n) {
      const Cell cell = verification::cell_of(n);
      rows.push_back({{"impl", name},
                      {"dtype", core::name_of(verification::kDtypes[cell.dtype])},
                      {"pass", pass_name(verification::kPasses[cell.pass])},
                      {"mask", core::name_of(verification::kMasks[cell.mask])},
                      {"layout", core::name_of(verification::kLayouts[cell.layout])},
                      {"head_dims", class_name(cell)},
                      {"executed", counts[n]}});
    }
  }
  return rows;
}

void Coverage::add(const nlohmann::json& rows) {
  for (std::size_t n = 0; n < rows.size(); ++n)
    of(rows[n]["impl"].get<std::string>())[n % kCells] += rows[n]["executed"].get<std::int64_t>();
}

}  // namespace fovea::program
