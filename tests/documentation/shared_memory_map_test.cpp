// The map of shared memory in docs/kernels/cuda_any.md holds every tile, under the smallest class of cards that has it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <set>
#include <span>
#include <string>
#include <utility>

#include "cuda/attention/any/parameters.h"

namespace fovea::cuda::any {
namespace {

constexpr std::array kMostBytes{99 * 1024, 163 * 1024, 227 * 1024};  // per thread block, by class of cards

std::string with_commas(int number) {
  std::string text = std::to_string(number);
  for (auto place = std::ssize(text) - 3; place > 0; place -= 3) text.insert(static_cast<std::size_t>(place), ",");
  return text;
}

std::string text_of(const KernelInstance& one) {
  const TileShape& t = one.tile;
  return std::to_string(t.rows()) + " x " + std::to_string(t.streamed_rows()) + " x " + std::to_string(t.stages) +
         " (" + with_commas(one.shared_bytes) + ")";
}

std::string row_of(const std::string& kernel, const std::string& elements, std::span<const KernelInstance> all,
                   int dim) {
  std::array<std::string, kMostBytes.size()> cells;
  for (const KernelInstance& one : all) {
    if (one.tile.dim != dim) continue;
    const auto* const least = std::lower_bound(kMostBytes.begin(), kMostBytes.end(), one.shared_bytes);
    std::string& cell = cells.at(static_cast<std::size_t>(least - kMostBytes.begin()));
    cell += (cell.empty() ? "" : ", ") + text_of(one);
  }
  std::string row = "| " + kernel + ", " + elements + ", " + std::to_string(dim) + " |";
  for (const std::string& cell : cells) row += " " + (cell.empty() ? "-" : cell) + " |";
  return row + "\n";
}

std::string rows_of(const std::string& name, Kernel kernel, ElementKind kind, const std::string& elements) {
  std::set<int> dims;
  for (const KernelInstance& one : instances(kernel, kind)) dims.insert(one.tile.dim);
  std::string rows;
  for (const int dim : dims) rows += row_of(name, elements, instances(kernel, kind), dim);
  return rows;
}

TEST(SharedMemoryMap, MatchesTheKernels) {
  std::ifstream file(FOVEA_PAGE);
  const std::string page(std::istreambuf_iterator<char>(file), {});
  std::string map;
  for (const auto& [name, kernel] : {std::pair{"forward", Kernel::forward},
                                     {"backward_dkdv", Kernel::backward_dkdv},
                                     {"backward_dq", Kernel::backward_dq}}) {
    const std::string of_bf16 = rows_of(name, kernel, ElementKind::bf16, "16-bit");
    EXPECT_EQ(of_bf16, rows_of(name, kernel, ElementKind::fp16, "16-bit")) << "the page has one row for both";
    map += of_bf16 + rows_of(name, kernel, ElementKind::fp32, "fp32");
  }
  EXPECT_TRUE(page.find("|\n" + map + "\n") != std::string::npos) << "the page should say\n" << map;
}

}  // namespace
}  // namespace fovea::cuda::any
