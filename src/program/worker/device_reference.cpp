// Converts rows and values to verification's types.
#include "program/worker/device_reference.h"

#include <utility>
#include <vector>

#include "cuda/reference/chosen_rows.h"
#include "fovea/error.h"

namespace fovea::program {
namespace {

using verification::BackwardValues;
using verification::ForwardValues;
using verification::RowIndex;
using verification::Sample;

std::vector<cuda::reference::Row> rows_of(const std::vector<RowIndex>& indices) {
  std::vector<cuda::reference::Row> rows;
  rows.reserve(indices.size());
  for (const auto& [batch, head, index] : indices) rows.push_back({batch, head, index});
  return rows;
}

ForwardValues forward(const AttentionProblem& p, const ForwardTensors& tensors, const Sample& sample) {
  auto [out, lse] = cuda::reference::forward_rows(p, tensors, rows_of(sample.queries));
  return {{sample.queries, p.dim_v, std::move(out)}, {sample.queries, 1, std::move(lse)}};
}

BackwardValues backward(const AttentionProblem& p, const BackwardTensors& tensors, const Sample& sample) {
  auto [dq, dk, dv] = cuda::reference::backward_rows(p, tensors, rows_of(sample.queries), rows_of(sample.keys));
  BackwardValues values;
  if (p.wants_dq) values.dq = {sample.queries, p.dim_qk, std::move(dq)};
  if (p.wants_dk) values.dk = {sample.keys, p.dim_qk, std::move(dk)};
  if (p.wants_dv) values.dv = {sample.keys, p.dim_v, std::move(dv)};
  return values;
}

template <class Tensors, class OnDevice>
auto where_there_is_room(OnDevice on_device) {
  return [on_device](const AttentionProblem& p, const Tensors& tensors, const Sample& sample) {
    try {
      return on_device(p, tensors, sample);
    } catch (const Error& error) {
      if (error.status() != Status::out_of_memory) throw;
      return verification::evaluate_reference(p, tensors, sample);
    }
  };
}

}  // namespace

verification::ReferenceEvaluator reference_evaluator(DeviceKind device) {
  if (device == DeviceKind::cpu) return {};
  return {where_there_is_room<ForwardTensors>(forward), where_there_is_room<BackwardTensors>(backward)};
}

}  // namespace fovea::program
