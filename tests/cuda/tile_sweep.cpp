// fovea_cuda_sweep: times the tile choices of cuda.any for random problems, so that time models are fitted and judged
// without a GPU.
//   fovea_cuda_sweep SEED FIRST PROBLEMS SECONDS FILE
// Problems FIRST, FIRST + 1, .. of the seed, until their number or the seconds are reached. Seed 0 stands for 20 short
// problems of one head, which random problems seldom are. A JSON line for each kernel of a problem: every choice with
// what a model may know of it, its microseconds if it was timed, and which one the library takes. A line for whole
// backward calls: pairs of choices of the two gradient kernels.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "cuda/attention/any/estimate.h"
#include "cuda/attention/any/plan.h"
#include "cuda/attention/any/run.h"
#include "cuda/runtime/check.h"
#include "cuda/runtime/device_info.h"
#include "cuda/runtime/tensor_refs.h"
#include "fovea/attention.h"
#include "fovea/error.h"
#include "graph_time.h"
#include "tensor_set.h"

namespace fovea::cuda::any {
namespace {

constexpr double kMostFlops = 2e12;
constexpr double kClock = 1.7e3;  // cycles of a microsecond: near enough to choose how often a call is repeated

// A tensor of random numbers that is on the device only.
struct DeviceBuffer {
  MutableTensorView device;

  DeviceBuffer(const Sizes& sizes, DType dtype, unsigned seed) {
    const auto bytes = static_cast<std::size_t>(sizes[0] * sizes[1] * sizes[2] * sizes[3] * size_of(dtype));
    const std::vector<char>& numbers = random_numbers(dtype);
    void* data = nullptr;
    check(cudaMalloc(&data, std::max<std::size_t>(bytes, 16)), "cudaMalloc");
    const std::size_t shift = seed * 4096;  // tensors differ
    for (std::size_t at = 0; at < bytes; at += numbers.size() - shift)
      check(cudaMemcpy(static_cast<char*>(data) + at, numbers.data() + shift,
                       std::min(bytes - at, numbers.size() - shift), cudaMemcpyHostToDevice),
            "cudaMemcpy");
    device = contiguous(data, dtype, sizes, {DeviceKind::cuda, 0});
  }
  ~DeviceBuffer() { cudaFree(device.data); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

 private:
  // Of about a megabyte, between -2 and 2: random signs and fractions, exponents of 0 or less.
  static const std::vector<char>& random_numbers(DType dtype) {
    static std::vector<char> all[3];
    std::vector<char>& numbers = all[static_cast<int>(dtype)];
    std::mt19937 random(5);
    while (numbers.size() < (1 << 20) + 65536) {
      const std::uint32_t bits = random();
      std::uint32_t word = 0;
      if (dtype == DType::fp32) word = (bits & 0x807fffff) | 0x3f000000;
      if (dtype == DType::bf16) word = (bits & 0x807f807f) | 0x3f003f00;
      if (dtype == DType::fp16) word = (bits & 0x83ff83ff) | 0x38003800;
      for (int byte = 0; byte < 4; ++byte) numbers.push_back(static_cast<char>(word >> (8 * byte)));
    }
    return numbers;
  }
};

using Tensors = TensorSet<DeviceBuffer>;

// One head in bf16 under a causal mask.
AttentionProblem short_problem(unsigned index) {
  constexpr std::int64_t kDims[] = {16, 32, 64, 128};
  AttentionProblem p;
  p.len_q = p.len_k = std::int64_t{128} << index / std::size(kDims);
  p.dim_qk = p.dim_v = kDims[index % std::size(kDims)];
  p.dtype = p.result_dtype = DType::bf16;
  p.mask = Mask::causal_bottom_right;
  p.scale = 1 / std::sqrt(static_cast<double>(p.dim_qk));
  p.device = {DeviceKind::cuda, 0};
  p.pass = Pass::backward;
  return p;
}

// Problem `index` of the seed: forward and backward of at most kMostFlops each.
AttentionProblem drawn(unsigned seed, unsigned index) {
  if (seed == 0) return short_problem(index % 20);
  for (unsigned attempt = 0;; ++attempt) {
    std::seed_seq words{seed, index, attempt};
    std::mt19937 random(words);
    const auto below = [&random](unsigned count) { return random() % count; };
    const auto between = [&random](double least, double most) {  // evenly in the logarithm
      return static_cast<std::int64_t>(std::lround(least * std::pow(most / least, random() / 4294967296.0)));
    };
    AttentionProblem p;
    p.heads_q = between(1, 512);
    const std::int64_t groups[] = {1, 1, 1, 2, 4, 8}, dims[] = {32, 64, 64, 64, 80, 96, 128, 128, 128, 192, 256};
    const std::int64_t group = groups[below(6)];
    if (p.heads_q % group != 0) p.heads_q = divide_up(p.heads_q, group) * group;
    p.heads_kv = p.heads_q / group;
    p.len_q = between(128, 16384);
    if (below(2) == 0) p.len_q = std::max<std::int64_t>(p.len_q / 128 * 128, 128);
    p.len_k = below(8) == 0 ? between(128, 16384) : p.len_q;
    p.dim_qk = p.dim_v = dims[below(11)];
    p.dtype = p.result_dtype = std::vector{DType::bf16, DType::bf16, DType::fp16, DType::fp32}[below(4)];
    p.mask = below(2) == 0 ? Mask::none : Mask::causal_bottom_right;
    p.scale = 1 / std::sqrt(static_cast<double>(p.dim_qk));
    p.device = {DeviceKind::cuda, 0};
    p.pass = Pass::backward;
    if (flops(p) <= kMostFlops && visible_pairs(p) > 0) return p;
  }
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

// A kernel's choice, the cycles that the library's model gives it, and its time; 0: not timed.
struct Timed {
  TileChoice choice;
  double cycles = 0, us = 0;
  bool is_chosen = false;
};

PlanOverride override_of(const TileChoice& one) {
  return {.kernel = one.kernel, .splits = one.splitting.split.splits, .in_cluster = one.splitting.split.in_cluster};
}

bool is_the_same(const TileChoice& one, const KernelInstance* kernel, const Split& split) {
  return one.kernel == kernel && one.splitting.split.splits == split.splits &&
         one.splitting.split.in_cluster == split.in_cluster;
}

// Numbers of splits that are timed; the others lie between neighbours that hardly differ.
bool is_worth_timing(const Split& split) {
  if (split.in_cluster) return true;
  const int all[] = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 32, 44, 64};
  return std::find(std::begin(all), std::end(all), split.splits) != std::end(all);
}

class Sweep {
 public:
  Sweep(std::FILE* file, const AttentionProblem& problem, Workspace& workspace)
      : file_(file), workspace_(workspace), problem_(problem), tensors_(problem) {}

  void run() {
    AttentionProblem p = problem_;
    p.pass = Pass::forward;
    time_kernel(Kernel::forward, p);
    p.pass = Pass::backward;
    p.wants_dq = false;
    const std::vector<Timed> keys = time_kernel(Kernel::backward_dkdv, p);
    p.wants_dq = true, p.wants_dk = p.wants_dv = false;
    const std::vector<Timed> queries = time_kernel(Kernel::backward_dq, p);
    time_pairs(keys, queries);
  }

 private:
  double time_forward(const ForwardPlan& plan, int nodes) {
    workspace_.of(plan.workspace_bytes);
    const ForwardTensors t = tensors_.forward();
    return node_us([&](cudaStream_t s) { enqueue(plan, t, {.workspace = workspace_.data, .stream = s}); }, nodes);
  }

  double time_backward(const BackwardPlan& plan, int nodes) {
    workspace_.of(plan.workspace_bytes);
    tensors_.p = plan.problem;
    const BackwardTensors t = tensors_.backward();
    return node_us([&](cudaStream_t s) { enqueue(plan, t, {.workspace = workspace_.data, .stream = s}); }, nodes);
  }

  static int nodes_for(double cycles) { return static_cast<int>(std::clamp(1500 * kClock / cycles, 1.0, 40.0)); }

  std::vector<Timed> time_kernel(Kernel kernel, const AttentionProblem& p) {
    std::vector<Timed> all;
    for (const TileChoice& one : tile_choices(kernel, p, {}))
      all.push_back({.choice = one, .cycles = cycles_of(one, kind_of(p.dtype), 0)});
    mark_chosen(kernel, p, all);
    double least = HUGE_VAL;
    for (const Timed& one : all) least = std::min(least, one.cycles);
    for (Timed& one : all) {
      // Choices that the model predicts four times slower than the best are not timed.
      if (!one.is_chosen && (!is_worth_timing(one.choice.splitting.split) || one.cycles > 4 * least)) continue;
      const PlanOverride only = override_of(one.choice);
      one.us = kernel == Kernel::forward ? time_forward(plan_forward(p, only), nodes_for(one.cycles))
                                         : time_backward(plan_backward(p, only, only), nodes_for(one.cycles));
    }
    print(kernel, p, all);
    return all;
  }

  static void mark_chosen(Kernel kernel, const AttentionProblem& p, std::vector<Timed>& all) {
    const auto mark = [&all](const KernelInstance* instance, const Split& split) {
      for (Timed& one : all) one.is_chosen = is_the_same(one.choice, instance, split);
    };
    if (kernel == Kernel::forward) {
      const ForwardPlan plan = plan_forward(p, {});
      return mark(plan.kernel, plan.split);
    }
    const BackwardPlan plan = plan_backward(p, {}, {});
    const GradientPlan& gradient = kernel == Kernel::backward_dkdv ? plan.dkdv : plan.dq;
    mark(gradient.kernel, gradient.split);
  }

  // Choices of a kernel by their time alone, the fastest first.
  static std::vector<std::size_t> fastest(const std::vector<Timed>& all, std::size_t count) {
    std::vector<std::size_t> order;
    for (std::size_t n = 0; n < all.size(); ++n) {
      if (all[n].us > 0) order.push_back(n);
    }
    std::sort(order.begin(), order.end(), [&all](auto a, auto b) { return all[a].us < all[b].us; });
    order.resize(std::min(order.size(), count));
    return order;
  }

  void time_pairs(const std::vector<Timed>& keys, const std::vector<Timed>& queries) {
    const BackwardPlan chosen = plan_backward(problem_, {}, {});
    const std::size_t most = problem_.dtype == DType::fp32 ? 8 : 5;
    std::vector<std::size_t> of_keys = fastest(keys, most), of_queries = fastest(queries, most);
    const auto add_chosen = [](const std::vector<Timed>& all, const GradientPlan& plan, std::vector<std::size_t>& to) {
      for (std::size_t n = 0; n < all.size(); ++n) {
        if (is_the_same(all[n].choice, plan.kernel, plan.split) && std::find(to.begin(), to.end(), n) == to.end())
          to.push_back(n);
      }
    };
    add_chosen(keys, chosen.dkdv, of_keys);
    add_chosen(queries, chosen.dq, of_queries);
    print_head("backward", problem_);
    std::fprintf(file_, "\"pairs\":[");
    const char* comma = "";
    for (const std::size_t k : of_keys) {
      for (const std::size_t q : of_queries) {
        const bool is_chosen = is_the_same(keys[k].choice, chosen.dkdv.kernel, chosen.dkdv.split) &&
                               is_the_same(queries[q].choice, chosen.dq.kernel, chosen.dq.split);
        const double us =
            time_backward(plan_backward(problem_, override_of(keys[k].choice), override_of(queries[q].choice)),
                          nodes_for(keys[k].cycles + queries[q].cycles));
        std::fprintf(file_, "%s[%zu,%zu,%.3f,%d]", comma, k, q, us, is_chosen ? 1 : 0);
        comma = ",";
      }
    }
    std::fprintf(file_, "]}\n");
    std::fflush(file_);
  }

  void print_head(const char* kernel, const AttentionProblem& p) {
    std::fprintf(file_,
                 "{\"kernel\":\"%s\",\"dtype\":%d,\"heads_q\":%lld,\"heads_kv\":%lld,\"len_q\":%lld,\"len_k\":%lld,"
                 "\"dim\":%lld,\"causal\":%d,\"flops\":%.6g,\"sms\":%d,",
                 kernel, static_cast<int>(p.dtype), static_cast<long long>(p.heads_q),
                 static_cast<long long>(p.heads_kv), static_cast<long long>(p.len_q), static_cast<long long>(p.len_k),
                 static_cast<long long>(p.dim_qk), p.mask == Mask::none ? 0 : 1, flops(p), device_info(0).sm_count);
  }

  void print(Kernel kernel, const AttentionProblem& p, const std::vector<Timed>& all) {
    constexpr const char* kNames[] = {"forward", "backward_dkdv", "backward_dq"};
    print_head(kNames[static_cast<int>(kernel)], p);
    std::fprintf(file_, "\"choices\":[");
    const char* comma = "";
    for (const Timed& one : all) {
      const TileShape& t = one.choice.kernel->tile;
      const Workload& workload = one.choice.workload;
      const Splitting& s = one.choice.splitting;
      std::fprintf(
          file_,
          "%s{\"tile\":[%d,%d,%d,%d,%d,%d,%d,%d,%d],\"roles\":%d,\"tiles\":%lld,\"longest\":%lld,\"work\":%.6g,"
          "\"products\":%g,\"floats\":%g,\"results\":%g,\"splits\":%d,\"per_split\":%d,\"cluster\":%d,"
          "\"shared\":%d,\"resident\":%g,\"most\":%g,\"capacity\":%g,\"cycles\":%.1f,\"us\":%.3f,\"chosen\":%d}",
          comma, t.dim, t.row_tiles, t.warps, t.stream, t.stages, t.ctas_per_sm, t.split_warps, t.lane_rows,
          t.warpgroup ? 1 : 0, one.choice.kernel->separate_dk_dv ? 1 : 0, static_cast<long long>(workload.tiles),
          static_cast<long long>(workload.longest), workload.work, workload.products, workload.result_floats,
          workload.results, s.split.splits, s.split.tiles_per_split, s.split.in_cluster ? 1 : 0, s.shared_bytes,
          s.max_ctas_per_sm, s.ctas_per_sm, s.capacity, one.cycles, one.us, one.is_chosen ? 1 : 0);
      comma = ",";
    }
    std::fprintf(file_, "]}\n");
  }

  std::FILE* file_;
  Workspace& workspace_;
  AttentionProblem problem_;
  Tensors tensors_;
};

int run(int argc, char** argv) {
  if (argc != 6) {
    std::printf("fovea_cuda_sweep SEED FIRST PROBLEMS SECONDS FILE\n");
    return 2;
  }
  const auto number = [argv](int n) { return static_cast<unsigned>(std::stoul(argv[n])); };
  const unsigned seed = number(1), first = number(2), problems = number(3);
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(number(4));
  std::FILE* file = std::fopen(argv[5], "w");
  if (file == nullptr) return 1;
  Workspace workspace;
  unsigned done = 0;
  for (; done < problems && std::chrono::steady_clock::now() < until; ++done) {
    Sweep(file, drawn(seed, first + done), workspace).run();
    std::fflush(file);
  }
  std::fclose(file);
  std::printf("sweep: %u problems of seed %u from %u on\n", done, seed, first);
  return 0;
}

}  // namespace
}  // namespace fovea::cuda::any

int main(int argc, char** argv) {
  if (const std::string obstacle = fovea::cuda::unavailable(); !obstacle.empty()) {
    std::printf("%s\n", obstacle.c_str());
    return 4;
  }
  try {
    return fovea::cuda::any::run(argc, argv);
  } catch (const fovea::Error& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
}
