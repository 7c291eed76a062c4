// All rows as one CSV file: for spreadsheets and scripts.
#include <fmt/format.h>

#include <cmath>

#include "attention/mask.h"
#include "core/names.h"
#include "program/report_tables.h"

namespace fovea::program {
namespace {

std::string optional_text(const std::optional<std::int64_t>& value) { return value ? std::to_string(*value) : ""; }
std::string optional_text(const std::optional<double>& value) { return value ? fmt::format("{:.9g}", *value) : ""; }

std::string time_text(const Row& row) {
  if (!row.time_s) return ",,,,,,";
  const TimeStatistics& t = *row.time_s;
  return fmt::format("{:.9g},{:.9g},{:.9g},{:.9g},{:.9g},{:.9g},{}", t.median, t.min, t.mean, t.std, t.q1, t.q3, t.n);
}

// Of the tensor that is worst.
std::string ratio_text(const Row& row) {
  std::optional<double> worst;
  for (const auto& [tensor, error] : row.error) worst = std::fmax(worst.value_or(0), error.ratio_to_plain);
  return optional_text(worst);
}

std::string launches_text(const Row& row) {
  if (!row.launches) return ",,";
  const LaunchShare& share = *row.launches;
  return fmt::format("{:.9g},{:.9g},{}", share.median_s, share.beyond_s, optional_text(share.pooled_beyond_s));
}

}  // namespace

std::string rows_csv(const Study& study) {
  std::string text =
      "pass,impl,batch,heads_q,heads_kv,len_q,len_k,dim_qk,dim_v,dtype,mask,device,status,reason,flags,median_s,min_s,"
      "mean_s,std_s,q1_s,q3_s,samples,flops,bytes,tflops,ceiling_share,workspace_bytes,saved_bytes,"
      "memory_before_backward_bytes,worst_ratio_to_plain,threads,machine,commit,dirty,timer,"
      "launches_s,beyond_launches_s,pooled_beyond_launches_s,problem\n";
  for (const Measured* const measured : study.all()) {
    const Measured& one = *measured;
    const AttentionProblem& p = one.problem.problem;
    const Row& row = one.row;
    std::string flags;
    for (const std::string& flag : row.flags) flags += (flags.empty() ? "" : " ") + flag;
    text += fmt::format("{},{}", verification::name_of(one.problem.pass), escape_csv(row.impl));
    for (const auto size : {p.batch, p.heads_q, p.heads_kv, p.len_q, p.len_k, p.dim_qk, p.dim_v}) {
      text += fmt::format(",{}", size);
    }
    text += fmt::format(",{},{},{},{},{},{},{}", core::name_of(p.dtype), core::text_of(p.mask),
                        core::name_of(p.device.kind), row.status, escape_csv(row.reason), escape_csv(flags),
                        time_text(row));
    text +=
        fmt::format(",{:.9g},{:.9g},{},{},{},{},{},{}", row.flops, row.bytes, optional_text(row.tflops),
                    optional_text(row.ceiling_share), optional_text(row.workspace_bytes),
                    optional_text(row.saved_bytes), optional_text(row.memory_before_backward_bytes), ratio_text(row));
    text += fmt::format(",{},{},{},{},{},{},{}\n", row.threads, escape_csv(row.machine), escape_csv(row.source.commit),
                        row.source.dirty, escape_csv(row.timer), launches_text(row), escape_csv(row.problem));
  }
  return text;
}

}  // namespace fovea::program
