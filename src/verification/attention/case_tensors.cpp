// Fills the named members from the operation's list of tensors.
#include "verification/attention/case_tensors.h"

#include <algorithm>
#include <iterator>

namespace fovea::verification {

ForwardTensors CaseTensors::forward() const {
  ForwardTensors t{.q = q.view(), .k = k.view(), .v = v.view(), .out = out.view(), .lse = lse.view()};
  if (saved.view()) t.saved = {saved.view().data, saved.view().buffer_bytes};
  return t;
}

BackwardTensors CaseTensors::backward() const {
  BackwardTensors t{.q = q.view(), .k = k.view(), .v = v.view(), .out = out.view(), .lse = lse.view()};
  t.dout = dout.view();
  t.delta = delta.view();
  t.dq = dq.view();
  t.dk = dk.view();
  t.dv = dv.view();
  if (saved.view()) t.saved = {saved.view().data, saved.view().buffer_bytes};
  return t;
}

bool CaseTensors::padding_intact() const {
  return out.padding_intact() && lse.padding_intact() && dq.padding_intact() && dk.padding_intact() &&
         dv.padding_intact();
}

CaseTensors make_tensors(const AttentionCase& typed, DType result) {
  Case c = case_of(typed);
  if (result != typed.problem.dtype) c.variation = {"fp32_results"};
  CaseTensors t;
  const std::pair<std::string_view, HostTensor*> tensors[] = {{"q", &t.q},       {"k", &t.k},     {"v", &t.v},
                                                              {"dout", &t.dout}, {"out", &t.out}, {"lse", &t.lse},
                                                              {"dq", &t.dq},     {"dk", &t.dk},   {"dv", &t.dv}};
  for (const TensorSpec& spec : c.operation->tensors(c)) {
    const auto* const named = std::find_if(std::begin(tensors), std::end(tensors),
                                           [&spec](const auto& one) { return one.first == spec.name; });
    *named->second = HostTensor(spec, c.place(), c.seed());
    if (is_read(spec.role)) fill(c, spec, named->second->view());
  }
  return t;
}

AttentionOptions options_of(const AttentionCase& c) { return {.mask = c.problem.mask, .scale = c.problem.scale}; }

}  // namespace fovea::verification
