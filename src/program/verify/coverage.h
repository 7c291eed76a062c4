// Counts the cases that ran, per implementation and cell of the operation's axes, and per kind of plan.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "verification/operation.h"

namespace fovea::program {

class Coverage {
 public:
  explicit Coverage(const verification::Operation& operation);

  void count(std::string_view implementation, const verification::Case& c);

  struct Shortage {
    std::string cell;  // cpu.avx2 bf16 backward causal blhd d<=64; or a kind of plan: cpu.avx2 backward chunks
    std::int64_t executed, wanted;
  };
  struct Wanted {
    std::int64_t per_cell, per_plan_kind;
  };
  // Cells that an implementation of the device takes, and kinds of its plans, that ran less often than `wanted`.
  std::vector<Shortage> below(const Wanted& wanted, bool forward, bool backward, DeviceKind device) const;

  // A table for each implementation, with the classes of the last axis as columns, and its kinds of plans.
  std::string text() const;
  nlohmann::json json() const;                                             // of the cells
  nlohmann::json plan_kinds_json() const;                                  // by implementation and kind
  void add(const nlohmann::json& rows, const nlohmann::json& plan_kinds);  // adds another process's counts

 private:
  // Per cell, where the last axis varies fastest; and per kind of plan, as the operation lists them.
  struct Counts {
    verification::ImplementationFacts implementation;
    std::vector<std::int64_t> cells;
    std::vector<verification::PlanKind> kinds;
    std::vector<std::int64_t> plans;
  };
  Counts& of(std::string_view implementation);
  std::size_t index_of(const verification::AxisCell& cell) const;
  verification::AxisCell cell_of(std::size_t index) const;
  std::string row_name(const verification::AxisCell& cell) const;  // the classes of all axes but the last

  const verification::Operation& operation_;
  const std::vector<verification::Axis> axes_;
  std::size_t cells_ = 1;
  std::vector<Counts> counts_;
};

}  // namespace fovea::program
