// What is wrong or unsaid in the published tables. Counts and ratios are computed from the tables; what a table cannot
// show (how it was measured) is said in words.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/names.h"
#include "program/report_pages.h"

namespace fovea::program {
namespace {

using verification::CasePass;

struct Passes {
  const PublishedFigure* fwd = nullptr;
  const PublishedFigure* bwd = nullptr;
  const PublishedFigure* e2e = nullptr;
  bool complete() const {
    const auto has = [](const PublishedFigure* f) { return f != nullptr && f->word.empty(); };
    return has(fwd) && has(bwd) && has(e2e);
  }
  double sum_ratio() const { return e2e->mean_s / (fwd->mean_s + bwd->mean_s); }
};

// Forward, backward and both of every configuration and implementation that has a forward figure.
std::vector<Passes> passes_of(const PublishedReport& report) {
  std::vector<Passes> all;
  for (const PublishedFigure& figure : report.figures) {
    if (figure.problem.pass != CasePass::fwd) continue;
    const auto other = [&](CasePass pass) {
      return published_figure(report, with_pass(figure.problem, pass), figure.implementation);
    };
    all.push_back({&figure, other(CasePass::bwd), other(CasePass::e2e)});
  }
  return all;
}

struct Range {
  double least = INFINITY, most = 0;
  void take(double value) {
    least = std::min(least, value);
    most = std::max(most, value);
  }
};

// Printed naive time over printed flash time.
std::optional<double> published_speed_up(const PublishedReport& report, const verification::AttentionCase& problem) {
  const auto* naive = published_figure(report, problem, "naive");
  const auto* flash = published_figure(report, problem, "flash");
  if (naive == nullptr || flash == nullptr || !naive->word.empty() || !flash->word.empty()) return std::nullopt;
  return naive->mean_s / flash->mean_s;
}

std::vector<std::string> findings_a(const PublishedReport& report) {
  Range forward, backward;
  std::size_t above = 0, rows = 0;
  double ratios = 0;
  for (const Passes& p : passes_of(report)) {
    if (p.fwd->implementation == "naive") forward.take(p.fwd->mean_s);
    if (const auto up = published_speed_up(report, p.bwd->problem)) backward.take(*up);
    ++rows;
    above += p.sum_ratio() > 1;
    ratios += p.sum_ratio();
  }
  const auto up_at = [&](std::int64_t length, std::int64_t dim) {
    for (const PublishedFigure& f : report.figures) {
      const AttentionProblem& p = f.problem.problem;
      if (f.problem.pass == CasePass::fwd && p.len_q == length && p.dim_qk == dim && p.dtype == DType::bf16) {
        return published_speed_up(report, f.problem).value_or(0);
      }
    }
    return 0.0;
  };
  return {
      fmt::format(
          "The eager forward takes {} to {} ms over a range of work of 128 to 1: what was timed is the launch of "
          "kernels, not attention.",
          format_milliseconds(forward.least), format_milliseconds(forward.most)),
      fmt::format("Its text says that the gap widens with length and head dimension. Its table (bf16, forward) says {} "
                  "at length 512, d=16 and {} at d=128; at length 128, {} and {}.",
                  format_ratio(up_at(512, 16)), format_ratio(up_at(512, 128)), format_ratio(up_at(128, 16)),
                  format_ratio(up_at(128, 128))),
      fmt::format("Only the forward is a kernel of its own; the backward recomputes through a compiler, and its "
                  "speed-ups are {} to {}.",
                  format_ratio(backward.least), format_ratio(backward.most)),
      fmt::format("Forward and backward together take longer than the sum of both alone in {} of {} rows, {} on "
                  "average: host overhead.",
                  above, rows, format_ratio(ratios / static_cast<double>(rows))),
  };
}

std::vector<std::string> findings_b(const PublishedReport& report) {
  std::size_t words = 0, below_backward = 0, below_sum = 0;
  std::int64_t shortest = 0;
  for (const Passes& p : passes_of(report)) {
    if (!p.fwd->word.empty()) {
      ++words;
      const std::int64_t length = p.fwd->problem.problem.len_q;
      shortest = shortest == 0 ? length : std::min(shortest, length);
    }
    if (!p.complete()) continue;
    if (p.e2e->mean_s < p.bwd->mean_s) {
      ++below_backward;
    } else {
      below_sum += p.sum_ratio() < 0.85;
    }
  }
  return {
      fmt::format("The {} configurations of bf16 at d=128 print OOM, from length {} on. No device memory can run out "
                  "there: the kernel asked for more shared memory than a block may have.",
                  words, shortest),
      fmt::format("In {} row{} forward and backward together take less than the backward alone, in {} more less than "
                  "0.85 of the sum: the clock of a laptop moved between the measurements.",
                  below_backward, below_backward == 1 ? "" : "s", below_sum),
  };
}

std::vector<std::string> findings_d2(const PublishedReport& report) {
  double largest = 0;
  std::size_t rows = 0;
  for (const PublishedFigure& f : report.figures) {
    if (f.problem.pass != CasePass::fwd || f.memory_before_backward_bytes < 0) continue;
    const auto n = static_cast<double>(f.problem.problem.len_q);
    const auto d = static_cast<double>(f.problem.problem.dim_qk);
    const double model = 8 * n * n * 4 + 4 * 8 * n * d * 4 + 17.5e6;
    largest = std::max(largest, std::fabs(model - f.memory_before_backward_bytes));
    ++rows;
  }
  return {
      "The column of the backward holds forward and backward together.",
      "Keys and values asked for no gradient, so only that of the queries was computed. Here all three are.",
      fmt::format("Its memory before backward is explained by one saved score matrix, 8 n\u00b2 \u00b7 4 bytes, four "
                  "tensors of 8 n d \u00b7 4 bytes, and 17.5 MB that the framework holds: within {:.1f} MB in all {} "
                  "rows. The forward needed several score matrices at once, hence OOM at 16k.",
                  std::ceil(largest / 1e5) / 10, rows),
  };
}

// FLOP/s of a printed forward, were every block computed.
double full_rate(const PublishedFigure& f) {
  const AttentionProblem& p = f.problem.problem;
  return 4.0 * static_cast<double>(p.batch * p.heads_q) * static_cast<double>(p.len_q * p.len_k) *
         static_cast<double>(p.dim_qk) / f.mean_s;
}

std::vector<std::string> findings_d3(const PublishedReport& report) {
  Range up_to_4k, beyond, rate;
  std::size_t out_of_memory = 0;
  for (const Passes& p : passes_of(report)) {
    out_of_memory += p.bwd != nullptr && !p.bwd->word.empty();
    if (p.fwd->implementation == "flash" && p.fwd->word.empty()) rate.take(full_rate(*p.fwd));
    if (!p.complete() || p.fwd->implementation != "flash") continue;
    (p.fwd->problem.problem.len_q <= 4096 ? up_to_4k : beyond).take(p.sum_ratio());
  }
  return {
      fmt::format("Up to length 4k forward and backward together take {} to {} times the sum of both alone: the host, "
                  "not the device, was timed. Beyond, {} to {}.",
                  format_figure(up_to_4k.least), format_figure(up_to_4k.most), format_figure(beyond.least),
                  format_figure(beyond.most)),
      fmt::format(
          "Its forward kernel computes the blocks that the mask hides: up to {:.0f} TFLOP/s with them, half "
          "without. Its backward is a compiled recomputation of the whole score matrix, so that it gains little.",
          rate.most / 1e12),
      fmt::format("{} configurations of the eager form have no backward: OOM.", out_of_memory),
  };
}

std::vector<std::string> findings_e(const PublishedReport& report) {
  std::size_t losses = 0, compared = 0, words = 0;
  Range rate;
  for (const PublishedFigure& f : report.figures) {
    words += !f.word.empty();
    if (f.implementation != "flash" || !f.word.empty()) continue;
    rate.take(full_rate(f));
    const auto* fused = published_figure(report, f.problem, "fused");
    if (fused == nullptr || !fused->word.empty()) continue;
    ++compared;
    losses += fused->mean_s < f.mean_s;
  }
  return {
      fmt::format(
          "Its Triton kernel is slower than the compiled eager form in {} of {} configurations; its text quotes "
          "only wins.",
          losses, compared),
      fmt::format("{} cells ran out of memory and were stored as 0 ms, so that they look infinitely fast. They say OOM "
                  "here.",
                  words),
      "Labels of the configurations are wrong and occur several times, so that its heat map shows only the first of "
      "each. Labels here come from the sizes.",
      fmt::format("Its kernel computes masked blocks, widens the second product to fp32 and keeps the log-sum-exp in "
                  "fp16: {:.0f} to {:.0f} TFLOP/s with the masked blocks, half without. It ran forward only.",
                  rate.least / 1e12, rate.most / 1e12),
  };
}

}  // namespace

double eager_bytes(const AttentionProblem& p) {
  const auto rows = static_cast<double>(p.batch * p.heads_q * p.len_q);
  return rows * 4 * static_cast<double>(2 * p.dim_qk + 2 * p.dim_v + p.len_k + 1);
}

std::string memory_against_formula(const std::vector<Match>& matches) {
  double here = 0, published = -INFINITY;
  std::set<std::string> counted;
  for (const Match& match : matches) {
    const double formula = eager_bytes(match.published->problem.problem);
    const bool saves = match.here->problem.pass != CasePass::fwd;  // a forward alone keeps nothing
    if (saves && match.here->timed() && match.here->row.memory_before_backward_bytes) {
      const auto bytes = static_cast<double>(*match.here->row.memory_before_backward_bytes);
      here = std::max(here, std::fabs(bytes / formula - 1));
      counted.insert(match.published->measurement);
    }
    if (match.published->memory_before_backward_bytes > 0)
      published = std::max(published, match.published->memory_before_backward_bytes - formula);
  }
  const std::string formula =
      "Memory before backward of naive is batch \u00b7 (4 n d + n\u00b2 + n) \u00b7 4 bytes: q, k, v, out, the "
      "probabilities and the log-sum-exp (1 MB = 10^6 bytes). ";
  const std::string ours = fmt::format("What was counted here deviates from it by at most {:.2g} % in {} cell{}. ",
                                       here * 100, counted.size(), counted.size() == 1 ? "" : "s");
  return formula + (counted.empty() ? "" : ours) +
         fmt::format("The published column is up to {:.0f} MB above it.", published / 1e6);
}

std::vector<std::string> findings_of(const PublishedReport& report) {
  if (report.letter == "A") return findings_a(report);
  if (report.letter == "B") return findings_b(report);
  if (report.letter == "D2") return findings_d2(report);
  return report.letter == "D3" ? findings_d3(report) : findings_e(report);
}

const PublishedFigure* published_figure(const PublishedReport& report, const verification::AttentionCase& problem,
                                        std::string_view implementation) {
  const std::string measurement = measurement_of(problem);
  for (const PublishedFigure& figure : report.figures) {
    if (figure.implementation == implementation && figure.measurement == measurement) return &figure;
  }
  return nullptr;
}

verification::AttentionCase with_pass(verification::AttentionCase problem, verification::CasePass pass) {
  problem.pass = pass;
  problem.problem.pass = pass == CasePass::bwd ? Pass::backward : Pass::forward;
  return problem;
}

}  // namespace fovea::program
