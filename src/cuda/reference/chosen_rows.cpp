// Uploads tensors, runs the kernels, downloads their results.
#include "cuda/reference/chosen_rows.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "cuda/measure/device_memory.h"

namespace fovea::cuda::reference {
namespace {

constexpr int kMostCtas = 1024;
constexpr std::int64_t kMostScratch = std::int64_t{1} << 30;  // bytes

// Device memory of one evaluation.
class DeviceArrays {
 public:
  // The tensor on the device with the host's strides.
  TensorView upload(TensorView host) {
    if (!host) return host;
    std::int64_t last = 0;
    bool empty = false;
    for (std::size_t i = 0; i < 4; ++i) {
      empty = empty || host.sizes[i] == 0;
      if (host.sizes[i] > 1) last += (host.sizes[i] - 1) * host.strides[i];
    }
    std::byte* const data = take(empty ? 1 : (last + 1) * size_of(host.dtype));
    if (!empty) memory_.back().upload(host.data);
    host.data = data;
    return host;
  }
  const Row* upload(const std::vector<Row>& rows) {
    auto* const data = reinterpret_cast<Row*>(take(static_cast<std::int64_t>(rows.size() * sizeof(Row))));
    memory_.back().upload(rows.data());
    return data;
  }
  double* doubles(std::int64_t count) {
    return reinterpret_cast<double*>(take(count * static_cast<std::int64_t>(sizeof(double))));
  }
  // The contents of the array taken last.
  std::vector<double> download(std::size_t count) const {
    std::vector<double> values(count);
    memory_.back().download(values.data());
    return values;
  }

 private:
  std::byte* take(std::int64_t bytes) { return memory_.emplace_back(bytes).data(); }
  std::deque<DeviceMemory> memory_;
};

DeviceProblem device_problem_of(const AttentionProblem& p) {
  DeviceProblem result{};
  result.batch = p.batch, result.heads_q = p.heads_q, result.heads_kv = p.heads_kv;
  result.len_q = p.len_q, result.len_k = p.len_k, result.dim_qk = p.dim_qk, result.dim_v = p.dim_v;
  result.scale = p.scale;
  result.mask = p.mask;
  return result;
}

// As many thread blocks as scratch allows.
int ctas_of(const DeviceProblem& p) {
  const std::int64_t bytes = scratch_doubles(p) * static_cast<std::int64_t>(sizeof(double));
  return static_cast<int>(std::clamp<std::int64_t>(kMostScratch / std::max<std::int64_t>(bytes, 1), 1, kMostCtas));
}

// The query heads of the rows, and those that read the keys; each once.
std::vector<Row> heads_of(const AttentionProblem& p, const std::vector<Row>& rows, const std::vector<Row>& keys) {
  std::vector<std::pair<std::int64_t, std::int64_t>> heads;
  for (const Row& row : rows) heads.emplace_back(row.batch, row.head);
  const std::int64_t group = p.heads_q / p.heads_kv;
  for (const Row& key : keys) {
    for (std::int64_t h = key.head * group; h < (key.head + 1) * group; ++h) heads.emplace_back(key.batch, h);
  }
  std::sort(heads.begin(), heads.end());
  heads.erase(std::unique(heads.begin(), heads.end()), heads.end());
  std::vector<Row> result;
  for (const auto& [batch, head] : heads) result.push_back({batch, head, 0});
  return result;
}

}  // namespace

ForwardRows forward_rows(const AttentionProblem& problem, const ForwardTensors& t, const std::vector<Row>& rows) {
  if (rows.empty()) return {};
  DeviceArrays arrays;
  DeviceProblem p = device_problem_of(problem);
  p.q = arrays.upload(t.q), p.k = arrays.upload(t.k), p.v = arrays.upload(t.v);
  const int ctas = ctas_of(p);
  const Row* const chosen = arrays.upload(rows);
  double* const scratch = arrays.doubles(ctas * scratch_doubles(p));
  const auto count = static_cast<std::int64_t>(rows.size());
  double* const values = arrays.doubles(count * (p.dim_v + 1));  // out, then lse
  double* const lse = values + count * p.dim_v;
  write_forward_rows(p, chosen, count, values, lse, scratch, ctas);
  std::vector<double> all = arrays.download(rows.size() * static_cast<std::size_t>(p.dim_v + 1));
  const auto first_lse = all.begin() + count * p.dim_v;
  return {{all.begin(), first_lse}, {first_lse, all.end()}};
}

BackwardRows backward_rows(const AttentionProblem& problem, const BackwardTensors& t, const std::vector<Row>& rows,
                           const std::vector<Row>& keys) {
  if (rows.empty() && keys.empty()) return {};
  if (problem.len_q == 0 || problem.heads_q == 0) {
    const auto zeros = [&keys](std::int64_t dim) {
      return std::vector<double>(keys.size() * static_cast<std::size_t>(dim));
    };
    return {{}, zeros(problem.dim_qk), zeros(problem.dim_v)};
  }
  DeviceArrays arrays;
  DeviceProblem p = device_problem_of(problem);
  p.q = arrays.upload(t.q), p.k = arrays.upload(t.k), p.v = arrays.upload(t.v), p.dout = arrays.upload(t.dout);
  p.lse = arrays.upload(t.lse), p.delta = arrays.upload(t.delta);
  if (!t.delta) p.out = arrays.upload(t.out);
  p.row_lse = arrays.doubles(p.batch * p.heads_q * p.len_q);
  p.row_delta = arrays.doubles(p.batch * p.heads_q * p.len_q);
  const int ctas = ctas_of(p);
  double* const scratch = arrays.doubles(ctas * scratch_doubles(p));
  const std::vector<Row> heads = heads_of(problem, rows, keys);
  write_lse_delta(p, arrays.upload(heads), static_cast<std::int64_t>(heads.size()), scratch, ctas);
  BackwardRows result;
  if (!rows.empty()) {
    const auto count = static_cast<std::int64_t>(rows.size());
    const Row* const chosen = arrays.upload(rows);
    write_query_gradients(p, chosen, count, arrays.doubles(count * p.dim_qk), scratch, ctas);
    result.dq = arrays.download(rows.size() * static_cast<std::size_t>(p.dim_qk));
  }
  if (!keys.empty()) {
    const auto count = static_cast<std::int64_t>(keys.size());
    const Row* const chosen = arrays.upload(keys);
    double* const dk = arrays.doubles(count * (p.dim_qk + p.dim_v));  // then dv
    write_key_gradients(p, chosen, count, dk, dk + count * p.dim_qk, scratch, ctas);
    const auto all = arrays.download(keys.size() * static_cast<std::size_t>(p.dim_qk + p.dim_v));
    const auto first_dv = all.begin() + count * p.dim_qk;
    result.dk.assign(all.begin(), first_dv);
    result.dv.assign(first_dv, all.end());
  }
  return result;
}

}  // namespace fovea::cuda::reference
