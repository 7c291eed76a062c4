// Reads the published tables into figures: each column of each file becomes a problem, a name and a number.
#include "program/report_published.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <stdexcept>

#include "attention/mask.h"
#include "core/names.h"
#include "program/report_embedded.h"

namespace fovea::program {
namespace {

struct ImplementationColumn {
  std::string name;            // in the report
  std::string implementation;  // here
  std::string prefix;          // of its column heads in the file
};

constexpr std::string_view kPassWords[] = {"forward", "backward", "e2e"};

std::int64_t count(const std::string& text) { return std::strtoll(text.c_str(), nullptr, 10); }

verification::AttentionCase causal_case(std::int64_t length, std::int64_t dim, const std::string& dtype,
                                        verification::CasePass pass) {
  verification::AttentionCase c;
  c.pass = pass;
  AttentionProblem& p = c.problem;
  p.pass = pass == verification::CasePass::bwd ? Pass::backward : Pass::forward;
  p.len_q = p.len_k = length;
  p.dim_qk = p.dim_v = dim;
  p.dtype = p.result_dtype = dtype == "bfloat16" ? DType::bf16 : dtype == "float16" ? DType::fp16 : DType::fp32;
  p.mask = Mask::causal;
  p.scale = 1 / std::sqrt(static_cast<double>(dim));
  return c;
}

// Milliseconds as printed, or the word that stands there.
void set_time(PublishedFigure& figure, const std::string& text) {
  char* end = nullptr;
  const double milliseconds = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || *end != '\0') {
    figure.word = text;
  } else {
    figure.mean_s = milliseconds / 1e3;
  }
}

double seconds_or_none(const std::string& text) {
  char* end = nullptr;
  const double milliseconds = std::strtod(text.c_str(), &end);
  return end == text.c_str() ? -1 : milliseconds / 1e3;
}

// A: one line per implementation, three passes with mean and standard deviation.
std::vector<PublishedFigure> figures_a() {
  const CsvText csv = parse_csv(kPublishedA);
  std::vector<PublishedFigure> figures;
  for (std::size_t row = 0; row < csv.rows.size(); ++row) {
    for (std::size_t pass = 0; pass < 3; ++pass) {
      PublishedFigure figure;
      figure.problem = causal_case(count(csv.at(row, "seq_len")), count(csv.at(row, "head_dim")), csv.at(row, "dtype"),
                                   verification::kCasePasses[pass]);
      figure.column = csv.at(row, "impl");
      figure.implementation = figure.column == "torch" ? "naive" : "flash";
      const std::string head = std::string(kPassWords[pass]) + "_ms_";
      set_time(figure, csv.at(row, head + "mean"));
      figure.std_s = seconds_or_none(csv.at(row, head + "std"));
      figures.push_back(std::move(figure));
    }
  }
  return figures;
}

// B and D3: one line per configuration, a column per implementation and pass.
std::vector<PublishedFigure> figures_of_columns(std::string_view text) {
  const CsvText csv = parse_csv(text);
  const ImplementationColumn columns[] = {{"torch", "naive", "torch_"}, {"triton", "flash", "flash_"}};
  std::vector<PublishedFigure> figures;
  for (std::size_t row = 0; row < csv.rows.size(); ++row) {
    for (const ImplementationColumn& column : columns) {
      for (std::size_t pass = 0; pass < 3; ++pass) {
        PublishedFigure figure;
        figure.problem = causal_case(count(csv.at(row, "seq_len")), count(csv.at(row, "head_dim")),
                                     csv.at(row, "dtype"), verification::kCasePasses[pass]);
        figure.column = column.name;
        figure.implementation = column.implementation;
        set_time(figure, csv.at(row, column.prefix + std::string(kPassWords[pass]) + "_ms"));
        figures.push_back(std::move(figure));
      }
    }
  }
  return figures;
}

// D2: the eager form alone, with the memory in use between forward and backward.
std::vector<PublishedFigure> figures_d2() {
  const CsvText csv = parse_csv(kPublishedD2);
  std::vector<PublishedFigure> figures;
  for (std::size_t row = 0; row < csv.rows.size(); ++row) {
    for (std::size_t pass = 0; pass < 2; ++pass) {
      PublishedFigure figure;
      figure.problem = causal_case(count(csv.at(row, "seq_len")), count(csv.at(row, "head_dim")), "float32",
                                   verification::kCasePasses[pass]);
      figure.problem.problem.batch = 8;
      figure.problem.problem.mask = Mask::none;
      figure.column = "torch";
      figure.implementation = "naive";
      set_time(figure, csv.at(row, std::string(kPassWords[pass]) + "_ms"));
      if (figure.word.empty()) {
        figure.memory_before_backward_bytes = std::stod(csv.at(row, "memory_before_backward_mb")) * 1e6;
      }
      figures.push_back(std::move(figure));
    }
  }
  return figures;
}

std::string implementation_of_kernel(const std::string& kernel) {
  if (kernel == "scaled_dot_prod_attention") return "naive";
  if (kernel == "vectorized_torch") return "vectorized";
  return kernel == "vectorized_torch_compiled" ? "fused" : "flash";
}

// E: one line per kernel and configuration, forward only. The tier labels of the file are wrong; the sizes are right.
std::vector<PublishedFigure> figures_e() {
  const CsvText csv = parse_csv(kPublishedE);
  std::vector<PublishedFigure> figures;
  for (std::size_t row = 0; row < csv.rows.size(); ++row) {
    PublishedFigure figure;
    figure.problem = causal_case(count(csv.at(row, "q_len")), count(csv.at(row, "head_dim")), "float16",
                                 verification::CasePass::fwd);
    figure.problem.problem.len_k = count(csv.at(row, "k_len"));
    figure.problem.problem.batch = count(csv.at(row, "batch"));
    figure.problem.problem.heads_q = figure.problem.problem.heads_kv = count(csv.at(row, "heads"));
    figure.column = csv.at(row, "kernel");
    figure.implementation = implementation_of_kernel(figure.column);
    set_time(figure, csv.at(row, "mean_ms"));
    figure.std_s = seconds_or_none(csv.at(row, "std_ms"));
    figure.min_s = seconds_or_none(csv.at(row, "min_ms"));
    figures.push_back(std::move(figure));
  }
  return figures;
}

std::vector<std::string> split(std::string_view line, char separator) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t end = line.find(separator);
    parts.emplace_back(line.substr(0, end));
    if (end == std::string_view::npos) return parts;
    line.remove_prefix(end + 1);
  }
}

std::vector<PublishedReport> with_measurements(std::vector<PublishedReport> reports) {
  for (PublishedReport& report : reports) {
    for (PublishedFigure& figure : report.figures) figure.measurement = measurement_of(figure.problem);
  }
  return reports;
}

}  // namespace

const std::vector<PublishedReport>& published_reports() {
  static const std::vector<PublishedReport> reports = with_measurements({
      {"A", "report-a", "FlashAttention-2 forward on short sequences", "an NVIDIA GPU that the report does not name",
       figures_a()},
      {"B", "report-b", "FlashAttention-2 forward and backward", "an NVIDIA RTX 4060 Laptop, 8 GB",
       figures_of_columns(kPublishedB)},
      {"D2", "report-d2", "eager attention: time and memory before backward",
       "one GPU that the report does not name (the figures fit an NVIDIA RTX 4090, 24 GB)", figures_d2()},
      {"D3", "report-d3", "FlashAttention on long sequences",
       "one GPU that the report does not name (the figures fit an NVIDIA RTX 4090, 24 GB)",
       figures_of_columns(kPublishedD3)},
      {"E", "report-e", "forward sweep of four kernels", "one NVIDIA RTX 3090, 24 GB", figures_e()},
  });
  return reports;
}

const std::string& CsvText::at(std::size_t row, std::string_view column) const {
  const auto found = std::find(head.begin(), head.end(), column);
  if (found == head.end()) throw std::out_of_range("no column " + std::string(column));
  return rows.at(row).at(static_cast<std::size_t>(found - head.begin()));
}

CsvText parse_csv(std::string_view text) {
  CsvText csv;
  for (const std::string& line : split(text, '\n')) {
    if (line.empty()) continue;
    if (csv.head.empty()) {
      csv.head = split(line, ',');
    } else {
      csv.rows.push_back(split(line, ','));
      if (csv.rows.back().size() != csv.head.size()) throw std::runtime_error("ragged line: " + line);
    }
  }
  return csv;
}

std::string measurement_of(const verification::AttentionCase& c) {
  const AttentionProblem& p = c.problem;
  std::string text(verification::name_of(c.pass));
  for (const std::int64_t size : {p.batch, p.heads_q, p.heads_kv, p.len_q, p.len_k, p.dim_qk, p.dim_v}) {
    text += " " + std::to_string(size);
  }
  return text + " " + std::string(core::name_of(p.dtype)) + " " + core::text_of(p.mask);
}

}  // namespace fovea::program
