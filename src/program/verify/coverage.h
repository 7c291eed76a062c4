// Counts the cases that ran, per implementation and cell of the operation's axes.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "verification/operation.h"

namespace fovea::program {

class Coverage {
 public:
  explicit Coverage(const verification::Operation& operation);

  void count(std::string_view implementation, const verification::Case& c);

  struct Shortage {
    std::string cell;  // cpu.avx2 bf16 backward causal blhd d<=64
    std::int64_t executed;
  };
  // Cells that an implementation of the device takes but that ran less often than `wanted`.
  std::vector<Shortage> below(std::int64_t wanted, bool forward, bool backward, DeviceKind device) const;

  std::string text() const;  // a table with the classes of the last axis as columns
  nlohmann::json json() const;
  void add(const nlohmann::json& rows);  // adds another process's counts

 private:
  using Counts = std::vector<std::int64_t>;  // per cell; the last axis varies fastest
  Counts& of(std::string_view implementation);
  std::size_t index_of(const verification::AxisCell& cell) const;
  verification::AxisCell cell_of(std::size_t index) const;
  std::string row_name(const verification::AxisCell& cell) const;  // the classes of all axes but the last

  const verification::Operation& operation_;
  const std::vector<verification::Axis> axes_;
  std::size_t cells_ = 1;
  std::vector<std::pair<std::string, Counts>> counts_;
};

}  // namespace fovea::program
