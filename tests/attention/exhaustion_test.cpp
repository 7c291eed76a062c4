// Memory that runs out at every allocation that a call makes through operator new, once or from then on. A program
// of its own, since it replaces operator new; the workspace has its own test in allocation_test.cpp.
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>

#include "attention/small_call.h"

namespace {

std::atomic<long> allocations_left{-1};  // until the one that fails; negative: none does
std::atomic<bool> fails_on{false};       // and all after it

void* allocate(std::size_t bytes, std::size_t alignment) {
  if (allocations_left.load() == 0 && fails_on.load()) return nullptr;
  if (allocations_left.load() > 0 && allocations_left.fetch_sub(1) == 1) return nullptr;
  return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

void* allocate_or_throw(std::size_t bytes, std::size_t alignment) {
  void* const data = allocate(bytes == 0 ? 1 : bytes, alignment);
  if (data == nullptr) throw std::bad_alloc();
  return data;
}

}  // namespace

void* operator new(std::size_t bytes) { return allocate_or_throw(bytes, alignof(std::max_align_t)); }
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(alignment));
}
void operator delete(void* data) noexcept { std::free(data); }
void operator delete(void* data, std::size_t) noexcept { std::free(data); }
void operator delete(void* data, std::align_val_t) noexcept { std::free(data); }
void operator delete(void* data, std::size_t, std::align_val_t) noexcept { std::free(data); }

namespace fovea {
namespace {

int failures = 0;

void expect(bool right, const std::string& what) {
  if (right) return;
  ++failures;
  std::fprintf(stderr, "%s\n", what.c_str());
}

// Of a call with its n-th allocation failing; whether it got that far.
template <class Run>
bool runs_out(long n, bool goes_on, const Run& run, const Call& call, const std::string& name) {
  std::string problem;
  fails_on = goes_on;
  allocations_left = n;
  bool written = true;
  try {
    run();
  } catch (const Error& error) {
    allocations_left = -1;
    written = false;
    if (error.status() != Status::out_of_memory) problem = error.what();
  } catch (const std::exception& error) {
    allocations_left = -1;
    written = false;
    problem = std::string("not an Error: ") + error.what();
  }
  const bool failed = allocations_left.exchange(-1) <= 0;
  const std::string where = name + ", allocation " + std::to_string(n) + (goes_on ? " and all after it" : "") + ": ";
  expect(problem.empty(), where + problem);
  expect(written || call.outputs_untouched(), where + "the outputs are touched");
  return failed;
}

// Every n in a process of its own, so that what a first call makes for good is among what fails.
template <class Prepare>
void check(const std::string& name, const Prepare& prepare) {
  constexpr int kWrong = 1, kEnough = 2, kMost = 10000;
  for (const bool goes_on : {false, true}) {
    int status = 0, n = 0;
    while (status == 0 && n++ < kMost) {
      const pid_t child = fork();
      if (child == 0) {
        Call call(4);  // tasks for both threads
        call.options.threads = 2;
        const auto run = prepare(call);
        const bool failed = runs_out(n, goes_on, run, call, name);
        try {
          run();
          expect(!call.outputs_untouched(), name + ": the next call wrote nothing");
        } catch (const std::exception& error) {
          expect(false, name + ": the next call: " + error.what());
        }
        std::_Exit(failures > 0 ? kWrong : failed ? 0 : kEnough);
      }
      waitpid(child, &status, 0);
    }
    const bool right = WIFEXITED(status) && WEXITSTATUS(status) == kEnough && n > 2;
    expect(right, name + ": ended at allocation " + std::to_string(n) + " with status " + std::to_string(status));
    if (right) std::printf("%s: %d allocations failed in turn\n", name.c_str(), n - 1);
  }
}

void check_engine(const std::string& engine) {
  check(engine + " forward", [&](Call& call) {
    call.options.implementation = engine;
    return [&call] { attention_forward(call.forward, call.options); };
  });
  check(engine + " backward", [&](Call& call) {
    call.options.implementation = engine;
    return [&call] { attention_backward(call.backward, call.options); };
  });
}

// Asked in a process of its own too, and it must take fp32.
bool runs_here(const char* engine) {
  const pid_t child = fork();
  if (child == 0) std::_Exit(explain(AttentionProblem{}, engine).chosen.empty() ? 1 : 0);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void check_queries() {
  check("describe, explain, workspace_bytes, implementations", [](Call& call) {
    return [&call] {
      const AttentionProblem problem = describe(call.forward, call.options);
      const Explanation explanation = explain(problem);
      if (workspace_bytes(problem) == explanation.workspace_bytes && !implementations().empty()) call.out[0] = 0;
    };
  });
  check("merge_partials", [](Call& call) {
    return [&call] {
      const PartialResult parts[] = {{call.backward.out, call.backward.lse}, {call.backward.out, call.backward.lse}};
      merge_partials(parts, call.forward.out, call.forward.lse);
    };
  });
  // A refusal too is made of strings.
  check("refusal", [](Call& call) {
    return [&call] {
      AttentionOptions refused = call.options;
      refused.implementation = "no_such_name";
      try {
        attention_forward(call.forward, refused);
      } catch (const Error& error) {
        if (error.status() == Status::out_of_memory) throw;
      }
      call.out[0] = 0;
    };
  });
}

}  // namespace
}  // namespace fovea

int main() {
  std::setvbuf(stdout, nullptr, _IONBF, 0);
  for (const char* engine : {"reference", "cpu.scalar", "cpu.avx2", "cpu.avx512", "cpu.avx512_bf16"}) {
    if (fovea::runs_here(engine)) fovea::check_engine(engine);
  }
  fovea::check_queries();
  return fovea::failures == 0 ? 0 : 1;
}
