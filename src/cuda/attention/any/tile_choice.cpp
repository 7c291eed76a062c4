// The tiles that fit a problem and a device, and the splits worth considering for each.
#include "cuda/attention/any/tile_choice.h"

#include <algorithm>

#include "cuda/runtime/device_info.h"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/tensor_refs.h"

namespace fovea::cuda::any {
namespace {

// The fraction of query-key pairs that are visible.
double density(const AttentionProblem& p) {
  const double all = static_cast<double>(p.len_q) * static_cast<double>(p.len_k);
  return all > 0 ? static_cast<double>(visible_pairs(p)) / all : 0.0;
}

// The fraction of stationary rows that see any row of the streamed operand.
double seeing_rows(const AttentionProblem& p, bool rows_are_keys) {
  const KeyWindow window = key_window(p);
  const std::int64_t rows = rows_are_keys ? p.len_k : p.len_q;
  const std::int64_t first = rows_are_keys ? window.begin : 1 - window.end;
  const std::int64_t end = rows_are_keys ? p.len_q - 1 + window.end : p.len_k - window.begin;
  const std::int64_t seeing = std::min(rows, end) - std::max<std::int64_t>(0, first);
  return rows > 0 ? std::max(0.0, static_cast<double>(seeing) / static_cast<double>(rows)) : 0.0;
}

Workload workload_of(Kernel kernel, const KernelInstance& instance, const AttentionProblem& p) {
  const TileShape& tile = instance.tile;
  const bool rows_are_keys = kernel == Kernel::backward_dkdv;
  const std::int64_t stationary = rows_are_keys ? p.len_k : p.len_q, streamed = rows_are_keys ? p.len_q : p.len_k;
  const std::int64_t heads = rows_are_keys ? p.heads_kv : p.heads_q;
  const std::int64_t group = rows_are_keys && p.heads_kv > 0 ? p.heads_q / p.heads_kv : 1;
  const std::int64_t roles = instance.separate_dk_dv ? 2 : 1;
  Workload workload{.kernel = kernel};
  workload.tiles = divide_up(stationary, tile.rows()) * p.batch * heads * roles;
  workload.busy_tiles = std::max(1.0, static_cast<double>(workload.tiles) * seeing_rows(p, rows_are_keys));
  // The rows of a tile see `reach` neighbouring rows of the streamed operand.
  const KeyWindow window = key_window(p);
  const std::int64_t span = std::max<std::int64_t>(window.end - window.begin, 1), reach = span + tile.rows() - 1;
  const std::int64_t whole = divide_up(streamed, tile.streamed_rows());
  workload.longest = std::min(whole, (reach + tile.streamed_rows() - 2) / tile.streamed_rows() + 1) * group;
  workload.work = density(p) * static_cast<double>(workload.tiles * whole * group);
  // Tiles at the edge of a mask also compute masked pairs.
  if (p.mask.left != Mask::kUnlimited)
    workload.work *= static_cast<double>(reach + tile.streamed_rows()) / static_cast<double>(span);
  else if (p.mask.right != Mask::kUnlimited)
    workload.work += workload.busy_tiles * static_cast<double>(group) * (tile.rows() + tile.streamed_rows()) /
                     (2.0 * tile.streamed_rows());
  workload.work = std::min(workload.work, workload.busy_tiles * static_cast<double>(workload.longest));
  // Where separate thread blocks compute dK and dV, they make 3 and 2 products.
  workload.products = kernel == Kernel::forward ? 2 : kernel == Kernel::backward_dq ? 3 : roles > 1 ? 2.5 : 4;
  workload.result_floats = static_cast<double>(rows_are_keys               ? p.dim_qk + p.dim_v
                                               : kernel == Kernel::forward ? p.dim_v
                                                                           : p.dim_qk) /
                           static_cast<double>(roles);
  workload.results = rows_are_keys ? 2 : 1;
  return workload;
}

// Calls `with(instance)` for the instances that fit shared memory and have the fewest columns that hold the problem's
// heads. The list ends with the first tile that makes the later ones needless, which serve chips with less shared
// memory. Such a tile has neither split_warps nor wgmma. In forward it has two 16-row MMA tiles per warp; in backward
// several of its thread blocks fit an SM.
template <class With>
void for_each_candidate(Kernel kernel, const AttentionProblem& p, With with) {
  const std::int64_t dim = std::max(p.dim_qk, p.dim_v);
  const int limit = usable_shared_memory(p.device.index);
  int chosen_dim = 0;
  for (const KernelInstance& one : instances(kernel, kind_of(p.dtype))) {
    if (!fits(one, dim, limit) || (chosen_dim > 0 && one.tile.dim > chosen_dim)) continue;
    with(one);
    chosen_dim = one.tile.dim;
    if (one.tile.split_warps > 1 || one.tile.warpgroup) continue;
    if (kernel == Kernel::forward ? one.tile.row_tiles > 1 : one.tile.ctas_per_sm > 1) return;
  }
}

// The least shared memory with which at most `ctas_per_sm` thread blocks fit an SM. With less, the chip places the
// thread blocks of a cluster on few SMs and leaves others idle.
int spread_bytes(const KernelInstance& kernel, std::int64_t ctas_per_sm, int device) {
  constexpr int kReserved = 1024;  // per thread block
  const auto one_more = static_cast<int>(device_info(device).shared_per_sm / (ctas_per_sm + 1)) - kReserved;
  return std::clamp(one_more / 128 * 128 + 128, kernel.shared_bytes,
                    std::max(kernel.shared_bytes, usable_shared_memory(device)));
}

Split split_into(std::int64_t splits, const TileShape& tile, const Workload& workload) {
  const std::int64_t longest = std::max<std::int64_t>(workload.longest, 1), tiles = divide_up(longest, splits);
  const std::int64_t used = divide_up(longest, tiles);
  return {.splits_divmod = fast_divmod(used),
          .splits = static_cast<int>(used),
          .tiles_per_split = static_cast<int>(tiles),
          .rows = static_cast<std::int16_t>(tile.rows()),
          .streamed_rows = static_cast<std::int16_t>(tile.streamed_rows())};
}

Split cluster_of(int ctas, const TileShape& tile) {
  return {.splits_divmod = fast_divmod(ctas),
          .splits = ctas,
          .rows = static_cast<std::int16_t>(tile.rows()),
          .streamed_rows = static_cast<std::int16_t>(tile.streamed_rows()),
          .in_cluster = true};
}

// Clusters with as few thread blocks per SM as possible while all fit; capacity 0 if the chip has no such clusters.
Splitting cluster_splitting(const KernelInstance& kernel, const Workload& workload, int cluster, int device) {
  const TileShape& tile = kernel.tile;
  const std::int64_t sms = device_info(device).sm_count, all = workload.tiles * cluster;
  const int resident = resident_ctas(kernel.function, tile.threads(), kernel.shared_bytes, device);
  for (auto ctas_per_sm = std::clamp<std::int64_t>(divide_up(all, sms), 1, std::max(resident, 1));; ++ctas_per_sm) {
    const int bytes = spread_bytes(kernel, ctas_per_sm, device);
    const int capacity = cluster * resident_clusters(kernel.function, tile.threads(), bytes, cluster, device);
    if (capacity < all && ctas_per_sm < resident) continue;
    return {.split = cluster_of(cluster, tile),
            .shared_bytes = bytes,
            .max_ctas_per_sm = static_cast<double>(resident),
            .ctas_per_sm = static_cast<double>(ctas_per_sm),
            .capacity = static_cast<double>(capacity)};
  }
}

// A sum in order errs the more the longer it is. In fp32 a split adds the queries of one head, or a few of short heads;
// other types round their results by more than that.
std::int64_t least_splits(const Workload& workload, const AttentionProblem& p) {
  constexpr std::int64_t kOrderedSum = 2048;
  if (workload.kernel != Kernel::backward_dkdv || p.dtype != DType::fp32 || workload.longest == 0) return 1;
  const std::int64_t heads = std::max<std::int64_t>(p.heads_q / std::max<std::int64_t>(p.heads_kv, 1), 1),
                     in_order = divide_up(kOrderedSum, p.len_q);
  return std::min<std::int64_t>({divide_up(heads, in_order), kMaxSplits, workload.longest});
}

// Every splitting worth considering, or the one of the override.
std::vector<Splitting> splittings_of(const KernelInstance& kernel, const Workload& workload, const AttentionProblem& p,
                                     const PlanOverride& plan_override) {
  const int device = p.device.index;
  const CurrentDevice current(device);
  const TileShape& tile = kernel.tile;
  const std::int64_t sms = device_info(device).sm_count;
  const int resident = resident_ctas(kernel.function, tile.threads(), kernel.shared_bytes, device);
  std::vector<Splitting> all;
  const auto add_splits = [&](std::int64_t splits) {
    all.push_back({.split = split_into(splits, tile, workload),
                   .shared_bytes = kernel.shared_bytes,
                   .max_ctas_per_sm = static_cast<double>(resident),
                   .ctas_per_sm = static_cast<double>(resident),
                   .capacity = static_cast<double>(sms * resident)});
  };
  const auto add_cluster = [&](int cluster) {
    if (const Splitting one = cluster_splitting(kernel, workload, cluster, device); one.capacity > 0)
      all.push_back(one);
  };
  if (plan_override.splits > 0) {
    plan_override.in_cluster ? add_cluster(plan_override.splits) : add_splits(plan_override.splits);
    return all;
  }
  const std::int64_t least = least_splits(workload, p);
  add_splits(least);
  // Split warps divide the keys already, and a grid that fills the chip four times needs no splits.
  if (tile.split_warps > 1 || workload.tiles >= 4 * sms * resident) return all;
  // A number of splits that would leave some without tiles equals a smaller number.
  for (std::int64_t splits = least + 1; splits <= std::min<std::int64_t>(kMaxSplits, workload.longest); ++splits) {
    if (divide_up(workload.longest, divide_up(workload.longest, splits)) == splits) add_splits(splits);
  }
  if (kernel.separate_dk_dv) return all;  // no clusters: neighbouring thread blocks compute different gradients
  for (int cluster = 2; cluster <= kMaxCluster; cluster *= 2) {
    if (cluster >= least && cluster <= workload.longest) add_cluster(cluster);
  }
  return all;
}

}  // namespace

bool has_equal_tiles(const Workload& workload) {
  return workload.work >= 0.99 * static_cast<double>(workload.tiles * workload.longest);
}

bool fits(const KernelInstance& one, std::int64_t dim, int shared_limit) {
  return one.tile.dim >= dim && one.shared_bytes <= shared_limit;
}

std::vector<TileChoice> tile_choices(Kernel kernel, const AttentionProblem& p, const PlanOverride& plan_override) {
  std::vector<TileChoice> all;
  const auto add = [&](const KernelInstance& one) {
    const Workload workload = workload_of(kernel, one, p);
    for (const Splitting& splitting : splittings_of(one, workload, p, plan_override))
      all.push_back({.kernel = &one, .workload = workload, .splitting = splitting});
  };
  if (plan_override.kernel != nullptr) {
    add(*plan_override.kernel);
  } else {
    for_each_candidate(kernel, p, add);
  }
  return all;
}

}  // namespace fovea::cuda::any
