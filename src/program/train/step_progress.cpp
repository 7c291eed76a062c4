// [120/1600] 4 min 10 s left  loss 1.734  held out 1.902
#include "program/train/step_progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>

#include "program/bench/progress.h"

namespace fovea::program {
namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kTerminalPause = std::chrono::milliseconds(100), kPlainPause = std::chrono::milliseconds(10'000);

}  // namespace

StepProgress::StepProgress(std::int64_t first, std::int64_t total)
    : first_(first), total_(total), terminal_(isatty(STDERR_FILENO) != 0), start_(Clock::now()), shown_(start_) {}

void StepProgress::on_step(const TrainingStep& step) {
  const auto now = Clock::now();
  const bool is_first = step.step == first_ + 1, is_news = step.held_out.has_value();
  if (is_news) held_out_ = step.held_out;
  if (!is_first && !is_news && now - shown_ < (terminal_ ? kTerminalPause : kPlainPause)) return;
  shown_ = now;
  const double spent = std::chrono::duration<double>(now - start_).count();
  const double left = spent / static_cast<double>(step.step - first_) * static_cast<double>(total_ - step.step);
  std::string text = fmt::format("[{}/{}] {} left  loss {:.3f}", step.step, total_, duration_text(left), step.loss);
  if (held_out_) text += fmt::format("  held out {:.3f}", *held_out_);
  if (is_news) text += fmt::format(" (trigrams {:.3f})", *step.trigram);
  if (terminal_)
    std::fprintf(stderr, "\r\033[K%s%s", text.c_str(), is_news ? "\n" : "");
  else
    std::fprintf(stderr, "%s\n", text.c_str());
  std::fflush(stderr);
  line_open_ = terminal_ && !is_news;
}

void StepProgress::end() {
  if (line_open_) std::fputs("\n", stderr);
  line_open_ = false;
}

}  // namespace fovea::program
