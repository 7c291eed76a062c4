// The progress line.
#include "program/bench/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <map>

#include "core/printable.h"
#include "program/bench/short_lines.h"
#include "program/bench/table.h"
#include "program/terminal_text.h"
#include "verification/operation.h"
#include "verification/problem_line.h"

namespace fovea::program {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kRowsPerLine = 10;  // where no terminal shows a line that moves

}  // namespace

std::string duration_text(double seconds) {
  const auto whole = static_cast<long>(seconds + 0.5);
  if (whole >= 3600) return fmt::format("{} h {:02} min", whole / 3600, whole % 3600 / 60);
  if (whole >= 60) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} s", whole);
}

Progress::Progress(std::size_t total, const std::vector<std::string>& problems)
    : total_(total), terminal_(isatty(STDERR_FILENO) != 0), start_(Clock::now()), shown_(start_) {
  if (problems.size() < 2) return;
  // By what varies among the problems of the same operation; op= leads where there are several.
  std::map<std::string, std::vector<std::string>> by_operation;
  for (const std::string& problem : problems)
    by_operation[std::string(verification::parse_case(problem).operation->name())].push_back(problem);
  for (const auto& [operation, some] : by_operation) {
    const ShortLines shortened = shorten(some);
    const std::string lead = by_operation.size() > 1 ? "op=" + operation : "";
    for (std::size_t n = 0; n < some.size(); ++n) {
      const std::string words = some.size() > 1 ? shortened.lines[n] : "";
      names_[some[n]] = lead + (lead.empty() || words.empty() ? "" : " ") + words;
    }
  }
}

Progress::~Progress() {
  if (line_open_) std::fputs("\r\033[K", stderr);
}

std::string Progress::position() const {
  std::string text = fmt::format("[{}/{}]", done_, total_);
  if (measured_ == 0 || done_ == total_) return text;
  const double spent = std::chrono::duration<double>(Clock::now() - start_).count();
  return text + " " + duration_text(spent / static_cast<double>(measured_) * static_cast<double>(total_ - done_)) +
         " left";
}

void Progress::show(const std::string& text) {
  std::fprintf(stderr, "\r\033[K%s", cut_to(text, terminal_width() - 1).c_str());
  std::fflush(stderr);
  line_open_ = true;
}

void Progress::on_turn(const RoundReport& report) {
  const auto now = Clock::now();
  if (!terminal_ || now - shown_ < std::chrono::milliseconds(100)) return;
  shown_ = now;
  show(fmt::format("{}  {} {} (n={})", position(), core::printable(report.name), time_text(report.median),
                   report.samples));
}

void Progress::on_cell(std::size_t rows_so_far) { done_ = rows_so_far; }

void Progress::on_row(const Row& row) {
  ++done_;
  ++measured_;
  const std::string result = row.status == "ok" ? time_text(row.time_s->median) : row.status;
  const auto name = names_.find(row.problem);
  const std::string text = fmt::format("{}  {} {}{}{}", position(), core::printable(row.impl), result,
                                       name == names_.end() ? "" : "  ", name == names_.end() ? "" : name->second);
  if (terminal_) return show(text);
  if (done_ % kRowsPerLine == 0 || done_ == total_) std::fprintf(stderr, "%s\n", wrapped(text, 4).c_str());
}

}  // namespace fovea::program
