// [2/9] report-d1:sm step: 7 of 15 steps, 12 s left
#include "program/profile/pass_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "program/bench/progress.h"
#include "program/terminal_text.h"

namespace fovea::program {
namespace {

constexpr auto kPause = std::chrono::milliseconds(100);

}  // namespace

PassProgress::PassProgress(std::size_t expected) : expected_(expected), terminal_(isatty(STDERR_FILENO) != 0) {}

void PassProgress::end() {
  if (line_open_) std::fputs("\r\033[K", stderr);
  line_open_ = false;
}

void PassProgress::show(const std::string& text) {
  if (terminal_) {
    std::fprintf(stderr, "\r\033[K%s", cut_to(text, terminal_width() - 1).c_str());
    line_open_ = true;
  } else {
    std::fprintf(stderr, "%s\n", text.c_str());
  }
  std::fflush(stderr);
}

void PassProgress::on_check(const std::string& model, std::size_t done) {
  show(fmt::format("[{}/{}] {}: checking against the reference", done + 1, expected_, model));
}

void PassProgress::on_step(const std::string& model, const ProfileStep& step, std::size_t done) {
  const auto now = std::chrono::steady_clock::now();
  const std::string name = fmt::format("[{}/{}] {} {}", done + 1, expected_, model, step.passes);
  if (step.made == 0) return show(name + " begins");
  if (step.made == 1) first_ = now;
  if (!terminal_ || (step.made > 1 && now - shown_ < kPause)) return;
  shown_ = now;
  std::string text = fmt::format("{}: {} of {} steps", name, step.made, step.total);
  if (step.made > 1) {
    const double spent = std::chrono::duration<double>(now - first_).count();
    const double left = spent / static_cast<double>(step.made - 1) * static_cast<double>(step.total - step.made);
    text += ", " + duration_text(left) + " left";
  }
  show(text);
}

void PassProgress::on_result(const std::string& text, std::size_t done) {
  end();
  fmt::print(stderr, "[{}/{}] {}\n", done, expected_, text);
}

}  // namespace fovea::program
