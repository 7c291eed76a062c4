// fovea_cuda_tiles: times of cuda.any with tiles and splits that the library does not choose beside its own choice.
//   fovea_cuda_tiles SWEEP... | pairs SWEEP... | host
// One row for each kernel, problem and tile: microseconds of a node in a graph of dependent nodes for several numbers
// of splits; `auto` is how many splits the model chooses for this tile, `*` the library's choice. Answers are
// compared with the CPU reference (short sequences) or with the library's own.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "attention/problem_line.h"
#include "cuda/attention/any/plan.h"
#include "cuda/attention/any/run.h"
#include "cuda/runtime/check.h"
#include "cuda/runtime/device_info.h"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/placement.h"
#include "cuda/runtime/tensor_refs.h"
#include "fovea/attention.h"
#include "fovea/error.h"
#include "graph_time.h"
#include "tile_tensors.h"
#include "tile_variants.h"
#include "verification/attention/case.h"

namespace fovea::cuda::any {
namespace {

constexpr std::int64_t kReferenceLength = 512;

// Largest difference over the largest value; infinite if a number is missing.
double difference(const std::vector<float>& got, const std::vector<float>& wanted) {
  double worst = 0, largest = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double a = static_cast<double>(got[i]), b = static_cast<double>(wanted[i]);
    worst = std::isnan(a) || std::isnan(b) ? HUGE_VAL : std::max(worst, std::abs(a - b));
    largest = std::max(largest, std::abs(b));
  }
  return worst / largest;
}

struct Workspace {
  void* data = nullptr;
  std::int64_t bytes = 0;
  void* of(std::int64_t wanted) {
    if (wanted <= bytes) return data;
    check(cudaFree(data), "cudaFree");
    check(cudaMalloc(&data, static_cast<std::size_t>(wanted)), "cudaMalloc");
    bytes = wanted;
    return data;
  }
};

struct Planned {
  Split split;
  std::string text;
  std::int64_t workspace = 0;
  Enqueue enqueue;
};

Planned plan(Tensors& t, Workspace& workspace, const PlanOverride& plan_override) {
  Planned result;
  if (t.p.pass == Pass::forward) {
    const ForwardPlan made = plan_forward(t.p, plan_override);
    result = {.split = made.split, .text = made.tiles, .workspace = made.workspace_bytes, .enqueue = {}};
    result.enqueue = [made, &t, &workspace](cudaStream_t stream) {
      enqueue(made, t.forward(), {.workspace = workspace.data, .stream = stream});
    };
  } else {
    const BackwardPlan made = plan_backward(t.p, plan_override, plan_override);
    result = {.split = t.p.wants_dq ? made.dq.split : made.dkdv.split,
              .text = made.tiles,
              .workspace = made.workspace_bytes,
              .enqueue = {}};
    result.enqueue = [made, &t, &workspace](cudaStream_t stream) {
      enqueue(made, t.backward(), {.workspace = workspace.data, .stream = stream});
    };
  }
  return result;
}

AttentionProblem problem_of(const verification::AttentionCase& c, Kernel kernel) {
  AttentionProblem problem = c.problem;
  problem.pass = kernel == Kernel::forward ? Pass::forward : Pass::backward;
  problem.wants_dq = kernel != Kernel::backward_dkdv;
  problem.wants_dk = problem.wants_dv = kernel != Kernel::backward_dq;
  problem.device = {DeviceKind::cuda, 0};
  return problem;
}

// One kernel of one problem: every variant of the head dimension, in several splits.
class KernelTimes {
 public:
  KernelTimes(const verification::AttentionCase& c, Kernel kernel, Workspace& workspace)
      : kernel_(kernel), workspace_(workspace), problem_(problem_of(c, kernel)), tensors_(problem_) {
    AttentionProblem forward_problem = problem_;
    forward_problem.pass = Pass::forward;
    const ForwardPlan first = plan_forward(forward_problem, {});
    enqueue(first, tensors_.forward(), {.workspace = workspace.of(first.workspace_bytes), .stream = nullptr});
    chosen_ = plan(tensors_, workspace, {});
    call(chosen_);
    const bool short_enough = problem_.len_q * problem_.batch * problem_.heads_q <= kReferenceLength;
    if (short_enough) tensors_.run_reference();
    for (Buffer* one : tensors_.results()) wanted_.push_back(short_enough ? one->host_values() : one->fetch());
  }

  // How many answers were wrong.
  int print() {
    print_choice();
    const std::vector<KernelInstance> all =
        variants(kernel_, problem_.dtype == DType::fp32 ? ElementKind::fp32 : ElementKind::bf16);
    int dim = 1 << 20;
    for (const KernelInstance& one : all)
      if (one.tile.dim >= std::max(problem_.dim_qk, problem_.dim_v)) dim = std::min(dim, one.tile.dim);
    for (const KernelInstance& one : all)
      if (one.tile.dim == dim && one.shared_bytes <= usable_shared_memory(0)) print_variant(one);
    return failed_;
  }

 private:
  void print_choice() {
    // The fraction of the pass's flops that this kernel computes.
    const double fraction = kernel_ == Kernel::forward ? 1.0 : kernel_ == Kernel::backward_dkdv ? 0.8 : 0.6;
    const char* name = kernel_ == Kernel::forward ? "fwd" : kernel_ == Kernel::backward_dkdv ? "dkdv" : "dq";
    const double worst = error(), us = time(chosen_);
    std::printf("%-4s %s b%lld h%lld lq%-6lld d%-4lld %-6.6s * %9.2f us %6.1f TF/s err %.1e  %s\n", name,
                problem_.dtype == DType::fp32 ? "fp32" : "bf16", static_cast<long long>(problem_.batch),
                static_cast<long long>(problem_.heads_q), static_cast<long long>(problem_.len_q),
                static_cast<long long>(problem_.dim_qk), problem_.mask == Mask::none ? "none" : "causal", us,
                flops(problem_) * fraction / us * 1e-6, worst, chosen_.text.c_str());
  }

  void print_variant(const KernelInstance& one) {
    const TileShape& s = one.tile;
    std::printf("   %dx%d w%d rt%d st%d sh%d %d B:", s.rows(), s.streamed_rows(), s.warps, s.row_tiles, s.stages,
                s.split_warps, one.shared_bytes);
    const int chosen_splits = plan(tensors_, workspace_, {.kernel = &one, .splits = 0}).split.splits;
    std::vector<int> tried;
    double worst = 0;
    for (const int splits : {chosen_splits, 1, 2, 3, 4, 6, 8, 11, 16, 22, 32, 44}) {
      if ((s.split_warps > 1 || problem_.batch * problem_.heads_q > 16) && splits > 1 && splits != chosen_splits)
        continue;
      const Planned planned = plan(tensors_, workspace_, {.kernel = &one, .splits = splits});
      if (std::find(tried.begin(), tried.end(), planned.split.splits) != tried.end()) continue;
      if (splits < chosen_splits / 5 && splits != chosen_splits) continue;
      tried.push_back(planned.split.splits);
      call(planned);
      worst = std::max(worst, error());
      std::printf(" %s%d=%.2f", tried.size() == 1 ? "auto " : "", planned.split.splits, time(planned));
    }
    for (const int cluster : {2, 4, 8}) {
      if (s.split_warps > 1 || one.separate_dk_dv ||
          resident_clusters(one.function, s.threads(), one.shared_bytes, cluster, 0) == 0)
        continue;
      const Planned planned = plan(tensors_, workspace_, {.kernel = &one, .splits = cluster, .in_cluster = true});
      call(planned);
      worst = std::max(worst, error());
      std::printf(" c%d=%.2f", cluster, time(planned));
    }
    std::printf("  err %.1e\n", worst);
    std::fflush(stdout);
  }

  void call(const Planned& planned) {
    workspace_.of(planned.workspace);
    for (Buffer* one : tensors_.results()) one->clear();
    planned.enqueue(nullptr);
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

  double error() {
    double worst = 0;
    const std::vector<Buffer*> results = tensors_.results();
    for (std::size_t i = 0; i < results.size(); ++i)
      worst = std::max(worst, difference(results[i]->fetch(), wanted_[i]));
    failed_ += worst <= (problem_.dtype == DType::fp32 ? 2e-5 : 2e-2) ? 0 : 1;
    return worst;
  }

  static double time(const Planned& planned) {
    const double once = node_us(planned.enqueue, 2);
    return once > 500 ? once : node_us(planned.enqueue, once > 100 ? 10 : 100);
  }

  Kernel kernel_;
  Workspace& workspace_;
  AttentionProblem problem_;
  Tensors tensors_;
  Planned chosen_;
  std::vector<std::vector<float>> wanted_;
  int failed_ = 0;
};

// All kernels of a backward call, with the library's tile choices; some of them run concurrently.
void time_backward(const verification::AttentionCase& c, Workspace& workspace) {
  AttentionProblem problem = problem_of(c, Kernel::backward_dkdv);
  problem.wants_dq = true;
  Tensors t(problem);
  const Planned planned = plan(t, workspace, {});
  workspace.of(planned.workspace);
  const double once = node_us(planned.enqueue, 2), us = once > 500 ? once : node_us(planned.enqueue, 50);
  std::printf("bwd  %s * %9.2f us %6.1f TF/s  %s\n", core::line_of(problem).c_str(), us, flops(problem) / us * 1e-6,
              planned.text.c_str());
}

// A tile with a number of splits, and its name.
struct Option {
  std::string name;
  PlanOverride plan_override;
};

// The library's tiles for the problem, each with several numbers of splits of at most 24 tiles.
std::vector<Option> options_of(Kernel kernel, const AttentionProblem& problem) {
  std::vector<Option> all;
  for (const KernelInstance& one : instances(kernel, kind_of(problem.dtype))) {
    const TileShape& tile = one.tile;
    const std::int64_t dim = std::max(problem.dim_qk, problem.dim_v),
                       tiles = divide_up(problem.len_q, tile.streamed_rows());
    if (tile.dim < dim || (tile.dim > 32 && tile.dim / 2 >= dim) || tile.ctas_per_sm > 2) continue;
    const std::string name = std::to_string(tile.rows()) + "x" + std::to_string(tile.streamed_rows()) + ":";
    std::int64_t last = 0;
    for (const int splits : {1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 13, 15, 16, 19, 22, 32}) {
      const std::int64_t length = divide_up(tiles, splits);
      if (splits > tiles || length > 24 || length == last) continue;
      last = length;
      all.push_back({name + std::to_string(splits), {.kernel = &one, .splits = splits}});
    }
    for (const int cluster : {4, 8}) {
      if (cluster <= tiles && resident_clusters(one.function, tile.threads(), one.shared_bytes, cluster, 0) > 0)
        all.push_back({name + "c" + std::to_string(cluster), {.kernel = &one, .splits = cluster, .in_cluster = true}});
    }
  }
  return all;
}

// Microseconds of a whole backward call for pairs of tile choices of its gradient kernels, which run concurrently.
void time_pairs(const verification::AttentionCase& c, Workspace& workspace) {
  AttentionProblem problem = problem_of(c, Kernel::backward_dkdv);
  problem.wants_dq = true;
  Tensors t(problem);
  time_backward(c, workspace);  // the limits of shared memory are raised by the first plan
  const std::vector<Option> all = options_of(Kernel::backward_dq, problem);
  for (const Option& dkdv : options_of(Kernel::backward_dkdv, problem)) {
    std::printf("  %s |", dkdv.name.c_str());
    for (const Option& dq : all) {
      if (dkdv.plan_override.kernel->tile.rows() != dq.plan_override.kernel->tile.rows()) continue;
      const BackwardPlan made = plan_backward(t.p, dkdv.plan_override, dq.plan_override);
      workspace.of(made.workspace_bytes);
      const auto once = [&](cudaStream_t stream) {
        enqueue(made, t.backward(), {.workspace = workspace.data, .stream = stream});
      };
      const int nodes = problem.len_q > 4096 ? 2 : problem.len_q > 1024 ? 8 : 20;
      std::printf(" %s=%.1f", dq.name.c_str(), node_us(once, nodes));
    }
    std::printf("\n");
    std::fflush(stdout);
  }
}

// Microseconds of the host for a call of the public API with the caller's workspace, and for its launches alone.
int time_host() {
  for (const char* line : {"op=attention pass=fwd b=1 hq=1 hkv=1 lq=512 d=64 dtype=bf16 mask=causal",
                           "op=attention pass=fwd b=1 hq=1 hkv=1 lq=8192 d=64 dtype=bf16 mask=causal",
                           "op=attention pass=bwd b=1 hq=1 hkv=1 lq=512 d=64 dtype=bf16 mask=causal",
                           "op=attention pass=bwd b=1 hq=1 hkv=1 lq=8192 d=64 dtype=bf16 mask=causal"}) {
    verification::AttentionCase c = verification::attention_case(line);
    c.problem.pass = c.pass == verification::CasePass::fwd ? Pass::forward : Pass::backward;
    Tensors t(c.problem);
    Workspace workspace;
    const std::int64_t bytes = std::max<std::int64_t>(workspace_bytes(t.p, "cuda.any"), 256);
    t.options.implementation = "cuda.any";
    t.options.workspace = {workspace.of(bytes), bytes};
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    t.options.stream = stream;
    const Planned planned = plan(t, workspace, {});
    const auto timed = [&](const std::function<void()>& call) {
      constexpr int kCalls = 60;
      double best = HUGE_VAL;
      for (int round = 0; round < 20; ++round) {
        check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < kCalls; ++i) call();
        const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - begin;
        best = std::min(best, spent.count() / kCalls);
      }
      return best;
    };
    const auto call_with = [&](const AttentionOptions& options) {
      t.p.pass == Pass::forward ? attention_forward(t.forward(), options) : attention_backward(t.backward(), options);
    };
    AttentionOptions pooled_options = t.options;
    pooled_options.workspace = {};
    const double call = timed([&] { call_with(t.options); }), pooled = timed([&] { call_with(pooled_options); });
    const double launches = timed([&] { planned.enqueue(stream); });
    const double description = timed(
        [&] { t.p.pass == Pass::forward ? describe(t.forward(), t.options) : describe(t.backward(), t.options); });
    const double choice = timed([&] { workspace_bytes(t.p, t.options.implementation); });
    const core::RunContext context{.workspace = t.options.workspace.data, .stream = stream};
    const attention::Plan plan_of_problem(t.p);
    const double placement = timed([&] {
      t.p.pass == Pass::forward ? check_placements(plan_of_problem, t.forward(), context)
                                : check_placements(plan_of_problem, t.backward(), context);
    });
    std::printf(
        "host %s: call %.2f us (%.2f us with a workspace of the pool), its launches %.2f us, beyond them %.2f us; of "
        "that checking tensors %.2f us, checking and planning a problem %.2f us, asking the driver where they lie "
        "%.2f us\n",
        line, call, pooled, launches, call - launches, description, choice, placement);
  }
  return 0;
}

}  // namespace

int run(const std::vector<std::string>& words) {
  if (words.size() == 1 && words[0] == "host") return time_host();
  int failed = 0;
  Workspace workspace;
  if (words.size() > 1 && words[0] == "pairs") {
    for (std::size_t i = 1; i < words.size(); ++i)
      for (const verification::AttentionCase& c : verification::attention_sweep(words[i])) time_pairs(c, workspace);
    return 0;
  }
  for (const std::string& word : words) {
    for (const verification::AttentionCase& c : verification::attention_sweep(word)) {
      if (c.pass == verification::CasePass::fwd) {
        failed += KernelTimes(c, Kernel::forward, workspace).print();
      } else {
        time_backward(c, workspace);
        failed += KernelTimes(c, Kernel::backward_dkdv, workspace).print();
        failed += KernelTimes(c, Kernel::backward_dq, workspace).print();
      }
    }
  }
  std::printf("tiles: %d failed\n", failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace fovea::cuda::any

int main(int argc, char** argv) {
  if (const std::string obstacle = fovea::cuda::unavailable(); !obstacle.empty()) {
    std::printf("%s\n", obstacle.c_str());
    return 4;
  }
  try {
    return fovea::cuda::any::run({argv + 1, argv + argc});
  } catch (const fovea::Error& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
