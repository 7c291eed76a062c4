// The interface of an operation for code that verifies and measures: its keys, tensors, cost, expected results,
// implementations and calls. Problem lines, inputs, placements, workers, timers, records, verification and shrinking
// use only this interface.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fovea/attention.h"
#include "verification/case.h"
#include "verification/expectation.h"
#include "verification/families.h"
#include "verification/tensor_set.h"

namespace fovea::verification {

enum class Role : std::uint8_t {
  input,      // read by forward and backward; also an upstream gradient, which only backward reads
  parameter,  // a learned input
  output,     // written by forward; backward may read it
  gradient,   // written or accumulated into by backward; callers may leave it out
  saved,      // written by forward, read only by backward
};
constexpr bool is_read(Role role) { return role <= Role::parameter; }  // these are filled from the case's seed

struct TensorSpec {
  std::string name;
  Role role = Role::input;
  DType dtype = DType::fp32;
  Sizes sizes{};
  Sizes strides{};        // dense, in the case's order of dimensions
  bool optional = false;  // an output that callers may leave out and foreign kernels need not write
};

struct Cost {  // for all passes of a case
  double flops = 0, bytes = 0;
  double scratch_bytes = 0;  // the most that an implementation may allocate, if it materialises everything
};

struct ImplementationFacts {
  std::string name;
  DeviceKind device = DeviceKind::cpu;
  bool automatic = true;     // chosen without being named
  bool reproducible = true;  // the same bits from run to run and for any number of threads
  std::string unavailable;   // why this machine cannot run it; empty if it can
};

// How an implementation would run a case.
struct CasePlan {
  struct Step {
    std::string name;
    bool accepts = false;
    std::string reason;
    double seconds = 0;  // predicted; 0: not known
  };
  struct Array {
    std::string name;
    std::int64_t bytes = 0;
  };
  std::vector<Step> walk;                     // the verdicts of all implementations, in the order of the list
  std::string implementation;                 // the chosen one; empty if all refuse
  std::string forward_tiles, backward_tiles;  // how it tiles these passes; empty if the case does not have them
  std::int64_t workspace_bytes = 0;
  std::int64_t saved_bytes = 0;   // saved state between forward and backward
  std::vector<Array> saved;       // what it holds; empty if the implementation does not tell
  std::vector<Array> own_memory;  // of an implementation that has memory of its own
  double seconds = 0;             // predicted for all passes of the case; 0: not known
  std::string refusal() const;    // why all refuse; empty if one runs
};

struct CallSettings {
  std::string implementation;
  int threads = 1;
  void* stream = nullptr;  // on a GPU
  Buffer workspace = {};   // null: from the library's own pool
  Buffer saved = {};       // has the plan's saved_bytes; null: forward saves nothing
};

// A call on given tensors, ready to run. A function is empty if the case does not have that pass.
struct Call {
  std::function<void()> forward, backward;
  // Of an implementation that has memory of its own; else empty, and never timed. `begin` runs before the passes of the
  // case and takes what they read; before a backward alone it runs forward. `end` writes the results to the tensors.
  std::function<void()> begin = {}, end = {};
};

// One axis of the cells that coverage and the support matrix count. A cell: fp32 backward causal blhd d<=64.
struct Axis {
  std::string name;
  std::vector<std::string> classes;
};
using AxisCell = std::vector<std::size_t>;  // an index per axis

enum class Support { yes, partly, no };
struct CellSupport {
  Support support = Support::no;
  std::string reason;  // the first refusal
};

// A way in which plans of a pass run cases.
struct PlanKind {
  Pass pass = Pass::forward;
  std::string name;
  bool operator==(const PlanKind&) const = default;
};

struct CaseLimits {
  bool forward = true, backward = true;
  DeviceKind device = DeviceKind::cpu;
};

class Operation {
 public:
  // `keys`: the keys of the canonical line up to data, place and seed. They must include pass, dtype and device.
  explicit Operation(const core::KeyTable& keys, std::vector<Family> families = common_families());
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  std::string_view name() const { return keys_.operation; }
  const core::KeyTable& keys() const { return keys_; }
  const std::vector<Family>& families() const { return families_; }

  // The tensors of a case, in the order in which they lie in memory. A forward case has neither upstream gradients nor
  // gradients. The words of a variation leave out more.
  virtual std::vector<TensorSpec> tensors(const Case& c) const = 0;
  virtual Cost cost(const Case& c) const = 0;

  // Runs the reference's forward, for a case that starts with backward.
  virtual void run_reference(const Case& c, const TensorSet& tensors) const = 0;
  // The expected results of one pass. For backward, `given` holds the outputs of forward that it reads, and gradients
  // that it adds to. Outputs that are not given come from the reference.
  virtual Expectation expect(const Case& c, Pass pass, const TensorSet& given) const = 0;

  virtual std::vector<ImplementationFacts> implementations() const = 0;
  // `implementation`: a name of the above; empty: the one that a call which names none runs.
  virtual CasePlan plan(const Case& c, std::string_view implementation) const = 0;
  virtual Call prepare(const Case& c, const TensorSet& tensors, const CallSettings& settings) const = 0;
  // A call of a foreign C function, `path:symbol`. Throws Error(unsupported) if the operation has no such calls.
  virtual Call prepare_foreign(const Case& c, const TensorSet& tensors, const CallSettings& settings) const;

  // These have defaults that follow from the keys.
  virtual Case random_case(std::uint64_t seed, std::uint64_t n, const CaseLimits& limits) const;
  virtual std::vector<std::string> variation_of(const Case& c) const;  // drawn from the case's seed
  // Whether gradients are added to what is there, which is then filled like an input.
  virtual bool accumulates(const Case& c) const { return c.varies("accumulate"); }
  virtual std::vector<Axis> axes() const;  // the last one becomes the columns of tables
  virtual AxisCell cell_of(const Case& c, Pass pass) const;
  // Whether the implementation promises to take all cases of the cell.
  virtual CellSupport support_of(const ImplementationFacts& implementation, const AxisCell& cell) const;
  // All kinds of plans that the implementation has, and those of its plans for a case.
  virtual std::vector<PlanKind> plan_kinds(const ImplementationFacts&) const { return {}; }
  virtual std::vector<PlanKind> plan_kinds(const ImplementationFacts&, const Case&) const { return {}; }
  // Whether no cell promises anything for the case: its scale is one that kernels need not take.
  virtual bool is_beyond_cells(const Case&) const { return false; }
  virtual std::string support_page() const;  // docs/support.md

 private:
  core::KeyTable keys_;
  std::vector<Family> families_;
};

// The operations of this program, in the order of registration. A line without op= means the first.
void register_operation(const Operation& operation);
const std::vector<const Operation*>& operations();
const Operation* find_operation(std::string_view name);  // null if there is none

}  // namespace fovea::verification
