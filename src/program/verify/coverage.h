// How many cases ran per (implementation, element type, pass, mask, layout, class of head dimensions).
#pragma once

#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "verification/cases.h"

namespace fovea::program {

class Coverage {
 public:
  void count(std::string_view implementation, const core::Case& c);

  struct Shortage {
    std::string cell;  // cpu.avx2 bf16 backward causal blhd d<=64
    std::int64_t executed;
  };
  // Cells that the implementation takes and that ran less often than `wanted`.
  std::vector<Shortage> below(std::int64_t wanted, bool forward, bool backward) const;

  std::string text() const;  // a table: one row per mask and layout, one column per class of head dimensions
  nlohmann::json json() const;
  void add(const nlohmann::json& rows);  // what another process counted

 private:
  using Counts = std::array<std::int64_t, verification::kCells>;
  Counts& of(std::string_view implementation);
  std::vector<std::pair<std::string, Counts>> counts_;
};

}  // namespace fovea::program
