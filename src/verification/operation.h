// What an operation is to everything that checks and measures: its keys, its tensors, what it costs, what its answers
// should be, who computes it, and a call. Problem lines, inputs, placements, workers, timers, records, verification and
// its shrinking are written once against this.
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
  input,      // read by forward and backward; an upstream gradient, which backward alone reads, is one too
  parameter,  // an input that is learned
  output,     // written by forward; backward may read it
  gradient,   // written by backward, or added to; callers may leave it out
  saved,      // written by forward for backward alone
};
constexpr bool is_read(Role role) { return role <= Role::parameter; }  // and filled from the case's seed

struct TensorSpec {
  std::string name;
  Role role = Role::input;
  DType dtype = DType::fp32;
  Sizes sizes{};
  Sizes strides{};        // dense, in the case's order of dimensions
  bool optional = false;  // an output that callers may leave out, and kernels of others need not write
};

struct Cost {  // of all passes of a case
  double flops = 0, bytes = 0;
  double scratch_bytes = 0;  // that an implementation which materialises everything may allocate
};

struct ImplementationFacts {
  std::string name;
  DeviceKind device = DeviceKind::cpu;
  bool automatic = true;     // chosen without being named
  bool reproducible = true;  // the same bits from run to run and for any number of threads
  std::string unavailable;   // why this machine cannot run it; empty if it can
};

// What an implementation would do with a case.
struct CasePlan {
  struct Step {
    std::string name;
    bool accepts = false;
    std::string reason;
    double seconds = 0;  // predicted; 0: not known
  };
  std::vector<Step> walk;      // every implementation's verdict, in the order in which they are asked
  std::string implementation;  // the one that runs; empty if none does
  std::string tiles;           // how it cuts the problem
  std::int64_t workspace_bytes = 0;
  std::int64_t saved_bytes = 0;  // between forward and backward, beside the outputs
  double seconds = 0;            // predicted, of the pass or passes; 0: not known
  std::string refusal() const;   // why none runs; empty if one does
};

struct CallSettings {
  std::string implementation;
  int threads = 1;
  void* stream = nullptr;  // of a GPU
  Buffer workspace = {};   // null: the library's own pool
  Buffer saved = {};       // of the plan's saved_bytes; null: forward keeps nothing
};

// A call on given tensors, ready to run and to time. Empty functions are passes that the case does not have.
struct Call {
  std::function<void()> forward, backward;
};

// A class of cases that coverage and the support matrix count: fp32 backward causal blhd d<=64.
struct Axis {
  std::string name;
  std::vector<std::string> classes;
};
using AxisCell = std::vector<std::size_t>;  // an index per axis

enum class Support { yes, partly, no };
struct CellSupport {
  Support support = Support::no;
  std::string reason;  // the first refusal met
};

struct CaseLimits {
  bool forward = true, backward = true;
  DeviceKind device = DeviceKind::cpu;
};

class Operation {
 public:
  // `keys`: those of the canonical line before data, place and seed. They include pass, dtype and device.
  explicit Operation(const core::KeyTable& keys, std::vector<Family> families = common_families());
  virtual ~Operation() = default;
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  std::string_view name() const { return keys_.operation; }
  const core::KeyTable& keys() const { return keys_; }
  const std::vector<Family>& families() const { return families_; }

  // In the order in which they lie in memory. A case of pass fwd has neither upstream gradients nor gradients; a varied
  // one lacks what its words leave out.
  virtual std::vector<TensorSpec> tensors(const Case& c) const = 0;
  virtual Cost cost(const Case& c) const = 0;

  // Writes what forward leaves for backward, by the reference.
  virtual void refer(const Case& c, const TensorSet& tensors) const = 0;
  // What one pass's results must be close to. Backward: `given` holds the outputs of forward that it reads (without
  // them they are the reference's), and gradients that it adds to.
  virtual Expectation expect(const Case& c, Pass pass, const TensorSet& given) const = 0;

  virtual std::vector<ImplementationFacts> implementations() const = 0;
  // `implementation` may be empty or `flash`, for the one that the library chooses.
  virtual CasePlan plan(const Case& c, std::string_view implementation) const = 0;
  virtual Call prepare(const Case& c, const TensorSet& tensors, const CallSettings& settings) const = 0;
  // A call of somebody's C function, `path:symbol`. Throws Error(unsupported) where the operation has no such calls.
  virtual Call prepare_foreign(const Case& c, const TensorSet& tensors, const CallSettings& settings) const;

  // The rest follows from the keys unless an operation knows better.
  virtual Case random_case(std::uint64_t seed, std::uint64_t n, const CaseLimits& limits) const;
  virtual std::vector<std::string> variation_of(const Case& c) const;  // drawn from the case's seed
  virtual std::vector<Axis> axes() const;                              // the last makes the columns of tables
  virtual AxisCell cell_of(const Case& c, Pass pass) const;
  // Whether the implementation promises to take all cases of the cell.
  virtual CellSupport support_of(const ImplementationFacts& implementation, const AxisCell& cell) const;
  virtual std::string support_page() const;  // docs/support.md

 private:
  core::KeyTable keys_;
  std::vector<Family> families_;
};

// Operations of this program, in the order registered; the first is meant where a line says no op=.
void register_operation(const Operation& operation);
const std::vector<const Operation*>& operations();
const Operation* find_operation(std::string_view name);  // null if there is none

}  // namespace fovea::verification
