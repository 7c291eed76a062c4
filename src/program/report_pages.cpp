// Pages that set figures measured here beside those of the published reports, in each report's own columns.
#include "program/report_pages.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>

#include "core/names.h"
#include "program/report_tables.h"

namespace fovea::program {
namespace {

using verification::CasePass;
constexpr const char* kRoles[] = {"naive", "vectorized", "fused", "flash"};

// What one side, here or published, has for a problem and a role.
struct Side {
  std::string word;  // stands instead of the time; "-" where there is nothing
  double mean_s = 0, std_s = -1, min_s = -1, memory_bytes = -1;
  bool ranked = false;
  std::string marks, note;
  const Measured* here = nullptr;  // null if published
  bool has() const { return word.empty(); }
};

Side side_of(const PublishedFigure* figure) {
  if (figure == nullptr) return {"-"};
  return {figure->word, figure->mean_s, figure->std_s, figure->min_s, figure->memory_before_backward_bytes, true,
          "",           "published"};
}

Side side_of(const Measured* one) {
  if (one == nullptr) return {"-"};
  if (!one->timed()) return {status_word(one->row.status), 0, -1, -1, -1, false, "", one->row.reason};
  const TimeStatistics& t = *one->row.time_s;
  const auto memory = static_cast<double>(one->row.memory_before_backward_bytes.value_or(-1));
  return {"", t.mean, t.std, t.min, memory, one->ranked(), flag_marks(one->row), one->row.impl + ", measured here",
          one};
}

// May the ratio of two times enter a claim?
bool comparable(const Side& a, const Side& b) {
  if (!a.has() || !b.has() || !a.ranked || !b.ranked) return false;
  return a.here == nullptr || b.here == nullptr || told_apart(a.here->row, b.here->row);
}

// Rows measured here, by measurement and role. Where several implementations of this library ran, the fastest.
using Here = std::map<std::pair<std::string, std::string>, const Measured*>;

struct Book {
  const PublishedReport* report;
  Here here;
  std::vector<verification::AttentionCase>
      configurations;  // forward problems of the report of which some pass was measured here
  std::string conditions;

  Side ours(const verification::AttentionCase& problem, CasePass pass, const std::string& role) const {
    const auto found = here.find({measurement_of(with_pass(problem, pass)), role});
    return side_of(found == here.end() ? nullptr : found->second);
  }
  Side theirs(const verification::AttentionCase& problem, CasePass pass, std::string_view role) const {
    return side_of(published_figure(*report, with_pass(problem, pass), role));
  }
};

Cell text(std::string words) { return {std::move(words)}; }
Cell integer(std::int64_t n) { return {std::to_string(n), Emphasis::none, {}, {}, static_cast<double>(n)}; }

Cell milliseconds(const Side& side, double seconds) {
  if (!side.has()) return {side.word, side.word == "-" ? Emphasis::muted : Emphasis::word, {}, side.note};
  if (seconds < 0) return {"-", Emphasis::muted};
  return {format_milliseconds(seconds) + side.marks,
          side.ranked ? Emphasis::none : Emphasis::muted,
          {},
          side.note,
          seconds * 1e3};
}
Cell mean_cell(const Side& side) { return milliseconds(side, side.mean_s); }

// `bold`: whether the report's rule prints this ratio in bold.
Cell ratio_cell(const Side& baseline, const Side& own, const std::function<bool(double)>& bold) {
  for (const Side* side : {&own, &baseline}) {
    if (!side->has()) return {side->word, side->word == "-" ? Emphasis::muted : Emphasis::word};
  }
  const double ratio = baseline.mean_s / own.mean_s;
  Cell cell{format_ratio(ratio), Emphasis::none, {}, {}, ratio};
  if (baseline.here != own.here && !comparable(baseline, own)) {
    cell.emphasis = Emphasis::muted;
  } else if (bold(ratio)) {
    cell.emphasis = Emphasis::best;
  } else if (ratio < 1) {
    cell.emphasis = Emphasis::loss;
  }
  return cell;
}

std::string type_word(const verification::AttentionCase& c) {
  return c.problem.dtype == DType::fp32 ? "float32" : c.problem.dtype == DType::bf16 ? "bfloat16" : "float16";
}

std::vector<Side> sides(const Book& book, const verification::AttentionCase& c, const std::string& role,
                        bool published) {
  std::vector<Side> three;
  for (const CasePass pass : verification::kCasePasses) {
    three.push_back(published ? book.theirs(c, pass, role) : book.ours(c, pass, role));
  }
  return three;
}

// A: a line per implementation; mean and standard deviation of three passes; forward speed-up over the eager form.
Table table_a(const Book& book) {
  Table table{"published-a",
              "Report A: forward, backward, and both (ms)",
              book.conditions,
              {{"impl", {}, false},
               {"figures", {}, false},
               {"dtype", {}, false},
               {"seq_len"},
               {"d_model"},
               {"batch"},
               {"is_causal", {}, false}}};
  for (const char* pass : {"forward", "backward", "e2e"}) {
    table.columns.push_back({pass, "mean"});
    table.columns.push_back({pass, "std"});
  }
  table.columns.push_back({"forward", "speed-up"});
  for (const verification::AttentionCase& c : book.configurations) {
    for (const bool published : {false, true}) {
      const std::vector<Side> eager = sides(book, c, "naive", published);
      for (const std::string role : {"naive", "flash"}) {
        const std::vector<Side> own = sides(book, c, role, published);
        const std::string name = published ? (role == "naive" ? "torch" : "triton_fa2") : role;
        std::vector<Cell> row{text(name),
                              published ? Cell{"published", Emphasis::muted} : text("here"),
                              text(type_word(c)),
                              integer(c.problem.len_q),
                              integer(c.problem.dim_qk),
                              integer(c.problem.batch),
                              text(c.problem.mask == Mask::none ? "False" : "True")};
        for (const Side& side : own) {
          row.push_back(mean_cell(side));
          row.push_back(milliseconds(side, side.std_s));
        }
        row.push_back(role == "naive" ? Cell{"", Emphasis::muted}
                                      : ratio_cell(eager[0], own[0], [](double r) { return r > 1; }));
        table.rows.push_back(std::move(row));
      }
    }
  }
  return table;
}

// B and D3: a line per configuration; three passes of two implementations, then three speed-ups.
Table table_of_columns(const Book& book, const std::vector<std::string>& heads,
                       const std::function<bool(const verification::AttentionCase&, double)>& bold) {
  Table table{book.report->letter == "B" ? "published-b" : "published-d3",
              "Report " + book.report->letter + ": two implementations (ms)",
              book.conditions,
              {{"seq_len"}, {"d"}, {"dtype", {}, false}, {"figures", {}, false}}};
  for (const std::string& head : heads) table.columns.push_back({head});
  for (const verification::AttentionCase& c : book.configurations) {
    for (const bool published : {false, true}) {
      const auto eager = sides(book, c, "naive", published);
      const auto own = sides(book, c, "flash", published);
      std::vector<Cell> row{integer(c.problem.len_q), integer(c.problem.dim_qk), text(type_word(c)),
                            published ? Cell{"published", Emphasis::muted} : text("here")};
      for (const Side& side : eager) row.push_back(mean_cell(side));
      for (const Side& side : own) row.push_back(mean_cell(side));
      for (std::size_t pass = 0; pass < 3; ++pass) {
        row.push_back(ratio_cell(eager[pass], own[pass], [&](double ratio) { return bold(c, ratio); }));
      }
      table.rows.push_back(std::move(row));
    }
  }
  return table;
}

Table table_d2(const Book& book) {
  Table table{
      "published-d2",
      "Report D2: time, and memory before backward",
      "fwd + bwd is the sum of the two columns here, and what the report prints as bwd. Formula: see above, for "
      "implementations that keep the probabilities; what the report has beyond it is explained below. " +
          book.conditions,
      {{"d"},
       {"n"},
       {"figures", {}, false},
       {"implementation", {}, false},
       {"fwd", "ms"},
       {"bwd", "ms"},
       {"fwd + bwd", "ms"},
       {"mem_before", "MB"},
       {"formula", "MB"}}};
  const auto megabytes = [](double bytes) {
    return bytes < 0 ? Cell{"-", Emphasis::muted}
                     : Cell{format_figure(bytes / 1e6), Emphasis::none, {}, {}, bytes / 1e6};
  };
  for (const verification::AttentionCase& c : book.configurations) {
    const std::vector<Cell> key{integer(c.problem.dim_qk), integer(c.problem.len_q)};
    for (const std::string role : kRoles) {
      const Side fwd = book.ours(c, CasePass::fwd, role), bwd = book.ours(c, CasePass::bwd, role);
      if (fwd.word == "-" && bwd.word == "-") continue;
      Side sum = fwd.has() ? bwd : fwd;
      sum.mean_s += fwd.mean_s;
      std::vector<Cell> row = key;
      for (Cell cell : {text("here"), text(role), mean_cell(fwd), mean_cell(bwd), mean_cell(sum),
                        bwd.has() ? megabytes(bwd.memory_bytes) : mean_cell(bwd),
                        role == "flash" ? text("-") : megabytes(eager_bytes(c.problem))}) {
        row.push_back(std::move(cell));
      }
      table.rows.push_back(std::move(row));
    }
    const Side fwd = book.theirs(c, CasePass::fwd, "naive"), both = book.theirs(c, CasePass::bwd, "naive");
    std::vector<Cell> row = key;
    for (Cell cell : {Cell{"published", Emphasis::muted}, text("torch"), mean_cell(fwd), Cell{"-", Emphasis::muted},
                      mean_cell(both), fwd.has() ? megabytes(fwd.memory_bytes) : mean_cell(fwd),
                      megabytes(eager_bytes(c.problem))}) {
      row.push_back(std::move(cell));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

std::string tier_of(const verification::AttentionCase& c) {
  const AttentionProblem& p = c.problem;
  return fmt::format("d{} h{} b{} n{}", p.dim_qk, p.heads_q, p.batch, length_of(c));
}

// E: a line per kernel and configuration with mean, standard deviation and minimum.
Table table_e(const Book& book) {
  Table table{"published-e",
              "Report E: forward of four kernels (ms)",
              book.conditions,
              {{"kernel", {}, false}, {"tier", {}, false}, {"Q_N"}, {"K_N"}, {"head_dim"}, {"heads"}, {"batch"}}};
  for (const char* side : {"here", "published"}) {
    for (const char* figure : {"avg", "std", "min"}) table.columns.push_back({figure, side});
  }
  for (const verification::AttentionCase& c : book.configurations) {
    const AttentionProblem& p = c.problem;
    for (const char* role : kRoles) {
      const PublishedFigure* const printed = published_figure(*book.report, c, role);
      std::vector<Cell> row{{role, Emphasis::none, {}, printed == nullptr ? "" : printed->column}, text(tier_of(c))};
      for (const auto size : {p.len_q, p.len_k, p.dim_qk, p.heads_q, p.batch}) row.push_back(integer(size));
      for (const Side& side : {book.ours(c, CasePass::fwd, role), side_of(printed)}) {
        for (const double value : {side.mean_s, side.std_s, side.min_s}) row.push_back(milliseconds(side, value));
      }
      table.rows.push_back(std::move(row));
    }
  }
  return table;
}

// E's second kind of table: the time of each kernel over that of flash; the fastest in bold.
Table relative_table_e(const Book& book) {
  Table table{"published-e-relative",
              "Report E: speed relative to flash",
              "Time of flash over time of the kernel: above 1 the kernel is faster than flash. Fastest of the four in "
              "bold. " +
                  book.conditions,
              {{"tier", {}, false}, {"figures", {}, false}}};
  for (const char* role : kRoles) table.columns.push_back({role});
  for (const verification::AttentionCase& c : book.configurations) {
    for (const bool published : {false, true}) {
      std::vector<Side> all;
      for (const char* role : kRoles) {
        all.push_back(published ? book.theirs(c, CasePass::fwd, role) : book.ours(c, CasePass::fwd, role));
      }
      double fastest = INFINITY;
      for (const Side& side : all) {
        if (side.has() && side.ranked) fastest = std::min(fastest, side.mean_s);
      }
      std::vector<Cell> row{text(tier_of(c)), published ? Cell{"published", Emphasis::muted} : text("here")};
      for (const Side& side : all) {
        row.push_back(ratio_cell(all.back(), side, [&](double) { return side.mean_s == fastest; }));
      }
      table.rows.push_back(std::move(row));
    }
  }
  return table;
}

void add_tables(PublishedPage& page, const Book& book) {
  const std::string& letter = page.report->letter;
  if (letter == "A") {
    page.rule = "Speed-up: torch (here naive) over triton_fa2 (here flash), forward. Above 1 in bold.";
    page.tables = {table_a(book)};
  } else if (letter == "B") {
    page.rule =
        "Speed-up: PyTorch (PT, here naive) over Triton (TR, here flash), per pass. In bold: 2 or more at "
        "lengths of 4096 and beyond.";
    page.tables = {table_of_columns(
        book,
        {"PT fwd", "PT bwd", "PT e2e", "TR fwd", "TR bwd", "TR e2e", "fwd speed-up", "bwd speed-up", "e2e speed-up"},
        [](const verification::AttentionCase& c, double ratio) { return c.problem.len_q >= 4096 && ratio >= 2; })};
  } else if (letter == "D3") {
    page.rule =
        "Speed-up: torch (here naive) over triton (here flash) of forward (ft), backward (bt) and both (fbt). "
        "The report prints nothing in bold; here a speed-up above 1 is.";
    page.tables = {table_of_columns(book,
                                    {"ft torch", "bt torch", "fbt torch", "ft triton", "bt triton", "fbt triton",
                                     "ft speed-up", "bt speed-up", "fbt speed-up"},
                                    [](const verification::AttentionCase&, double ratio) { return ratio > 1; })};
  } else if (letter == "D2") {
    page.rule =
        "No speed-ups and nothing in bold in the report: times of the eager form and the memory in use between "
        "forward and backward.";
    page.tables = {table_d2(book)};
  } else {
    page.rule = "Four kernels per configuration, each relative to the FlashAttention kernel; the fastest in bold.";
    page.tables = {relative_table_e(book), table_e(book)};
  }
  if (letter != "D2") page.rule += " Of the ratios here only those that can be told from 1 are bold.";
}

// Geometric mean of naive over flash, here and published, over the configurations that both have.
std::vector<std::string> compare(const Book& book) {
  std::vector<std::string> said;
  for (const CasePass pass : verification::kCasePasses) {
    double here = 0, there = 0;
    int n = 0;
    for (const verification::AttentionCase& c : book.configurations) {
      const Side a = book.ours(c, pass, "naive"), b = book.ours(c, pass, "flash");
      const Side x = book.theirs(c, pass, "naive"), y = book.theirs(c, pass, "flash");
      if (!comparable(a, b) || !comparable(x, y)) continue;
      here += std::log(a.mean_s / b.mean_s);
      there += std::log(x.mean_s / y.mean_s);
      ++n;
    }
    if (n == 0) continue;
    said.push_back(fmt::format(
        "{}: flash over naive in the geometric mean of {} shared configuration{}: {} here, {} "
        "published.",
        word_of(pass), n, n == 1 ? "" : "s", format_ratio(std::exp(here / n)), format_ratio(std::exp(there / n))));
  }
  return said;
}

// Rows of the first matching machine and device, by measurement and role.
Book book_of(const Study& study, const PublishedReport& report, std::vector<Match>& matches) {
  std::string runner;
  std::set<std::string> printed, measured;
  for (const PublishedFigure& figure : report.figures) printed.insert(figure.measurement);
  Book book{&report, {}, {}, {}};
  std::vector<const Measured*> used;
  for (const Measured& one : study.rows) {
    const std::string measurement = measurement_of(one.problem);
    if (!printed.contains(measurement) || !timer_word(one.row).empty()) continue;
    const std::string ran_on =
        fmt::format("{} {} {}", core::name_of(one.problem.problem.device.kind), one.row.machine, threads_of(one.row));
    if (!used.empty() && ran_on != runner) continue;
    runner = ran_on;
    used.push_back(&one);
    measured.insert(measurement);
    const Measured*& place = book.here[{measurement, std::string(one.role())}];
    if (place == nullptr || !place->timed() || (one.timed() && one.seconds() < place->seconds())) place = &one;
  }
  for (const PublishedFigure& figure : report.figures) {
    const auto found = book.here.find({figure.measurement, figure.implementation});
    if (found != book.here.end()) matches.push_back({&figure, found->second});
    const verification::AttentionCase forward = with_pass(figure.problem, CasePass::fwd);
    const auto was_measured = [&](CasePass pass) {
      return measured.contains(measurement_of(with_pass(forward, pass)));
    };
    if (std::none_of(std::begin(verification::kCasePasses), std::end(verification::kCasePasses), was_measured))
      continue;
    auto& all = book.configurations;
    if (std::find(all.begin(), all.end(), forward) == all.end()) all.push_back(forward);
  }
  if (!used.empty()) {
    book.conditions = "Mean times, as the report has them. Here: " + conditions_of(used) + ". Published: report " +
                      report.letter + ", " + report.hardware +
                      ". Times of different machines are not a comparison; speed-ups are.";
  }
  return book;
}

}  // namespace

std::vector<PublishedPage> published_pages(const Study& study) {
  std::vector<PublishedPage> pages;
  for (const PublishedReport& report : published_reports()) {
    PublishedPage page;
    page.report = &report;
    const Book book = book_of(study, report, page.matches);
    if (page.matches.empty()) continue;
    add_tables(page, book);
    page.comparisons = compare(book);
    if (report.letter == "D2") page.comparisons.push_back(memory_against_formula(page.matches));
    page.findings = findings_of(report);
    pages.push_back(std::move(page));
  }
  return pages;
}

}  // namespace fovea::program
