// fovea_cuda_check: random cases on the device against the reference, repeated launches bit by bit, and a table of
// times.
//   fovea_cuda_check cases COUNT SEED | replay "PROBLEM LINE" | repeat COUNT | refusals | large | times SWEEP...
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/implementation.h"
#include "fovea/error.h"
#include "on_device.h"
#include "staged.h"
#include "verification/differential.h"

namespace {

using fovea::core::Case;
using fovea::verification::Differential;
using fovea::verification::Outcome;

struct Tally {
  std::mutex mutex;
  std::int64_t passed = 0, failed = 0, refused = 0;

  void add(const Case& c, const Outcome& outcome) {
    const std::lock_guard lock(mutex);
    if (outcome.kind == Outcome::Kind::failed) {
      ++failed;
      std::printf("FAILED %s | %s | %s\n", fovea::core::line_of(c).c_str(),
                  text_of(fovea::verification::variation_of(c)).c_str(), outcome.reason.substr(0, 500).c_str());
    } else {
      ++(outcome.kind == Outcome::Kind::passed ? passed : refused);
    }
  }
  int report(const char* group) const {
    std::printf("%s: passed %lld failed %lld refused %lld\n", group, static_cast<long long>(passed),
                static_cast<long long>(failed), static_cast<long long>(refused));
    return failed == 0 ? 0 : 1;
  }
};

void run_case(const Case& c, Tally& tally) {
  try {
    Differential differential(c, fovea::verification::variation_of(c));
    tally.add(c, differential.run(fovea::cuda::staged::any()));
  } catch (const std::exception& error) {
    tally.add(c, {Outcome::Kind::failed, error.what()});
  }
}

int check_cases(std::int64_t count, std::uint64_t seed) {
  Tally tally;
  std::atomic<std::int64_t> next{0};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < std::max(1u, std::thread::hardware_concurrency()); ++t) {
    threads.emplace_back([&] {
      for (std::int64_t n = next++; n < count; n = next++) {
        Case c = fovea::verification::random_case(seed, static_cast<std::uint64_t>(n));
        if (std::max(c.problem.dim_qk, c.problem.dim_v) > 256) continue;
        run_case(c, tally);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  return tally.report("cases");
}

int replay(const char* line) {
  Tally tally;
  run_case(fovea::core::parse_case(line), tally);
  return tally.report("replay");
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  fovea::core::register_implementations({&fovea::cuda::staged::any(), 1});
  if (const std::string obstacle = fovea::cuda::staged::any().unavailable(); !obstacle.empty()) {
    std::printf("%s\n", obstacle.c_str());
    return 2;
  }
  if (words.size() == 3 && words[0] == "cases")
    return check_cases(std::atoll(words[1].c_str()), std::strtoull(words[2].c_str(), nullptr, 10));
  if (words.size() == 2 && words[0] == "replay") return replay(words[1].c_str());
  if (words.size() == 2 && words[0] == "repeat") return fovea::cuda::repeat_bitwise(std::atoi(words[1].c_str()));
  if (words.size() == 1 && words[0] == "refusals") return fovea::cuda::check_refusals();
  if (words.size() == 1 && words[0] == "large") return fovea::cuda::check_large();
  if (words.size() >= 2 && words[0] == "times") {
    int status = 0;
    for (std::size_t i = 1; i < words.size(); ++i) status |= fovea::cuda::print_times(words[i]);
    return status;
  }
  std::printf(
      "usage: fovea_cuda_check cases COUNT SEED | replay LINE | repeat COUNT | refusals | large | times SWEEP...\n");
  return 2;
}
