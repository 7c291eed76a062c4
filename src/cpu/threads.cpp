// The pool. Each worker has a mailbox; after a task it spins on it for a while, then sleeps on it. One call at a time
// uses the pool. A caller that has ended its own task takes back the tasks that no worker has begun, since waking a
// thread may take longer than a short call. It waits only for the workers that have begun.
#include "cpu/threads.h"

#include <pthread.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <thread>

#include "core/check.h"
#include "core/floating_point.h"
#include "core/processors.h"

namespace fovea::cpu {
namespace {

constexpr int kMaxWorkers = 1023;
// As long as a virtual machine may take to wake a processor that it has put to sleep.
constexpr auto kSpin = std::chrono::microseconds(200);

void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Waits until `value` differs from `old`: a bounded spin, then sleep.
void wait_for_change(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
  const auto until = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 64; ++i) {
      if (value.load(std::memory_order_acquire) != old) return;
      pause_briefly();
    }
  } while (std::chrono::steady_clock::now() < until);
  value.wait(old, std::memory_order_acquire);
}

class Pool {
 public:
  // Returns false if another call is using the pool.
  bool run(int count, void (*task)(void*, int), void* argument);

 private:
  struct alignas(64) Mailbox {
    // Numbers of tasks: of the last one, and of the last that the worker or the caller took, which is it or the one
    // before.
    std::atomic<std::uint32_t> posted{0}, claimed{0};
    void (*task)(void*, int) = nullptr;
    void* argument = nullptr;
    int index = 0;

    void post(void (*what)(void*, int), void* with, int at) {
      task = what, argument = with, index = at;
      posted.fetch_add(1, std::memory_order_release);
      posted.notify_one();
    }
    // Whether the task of this number is now the claimer's. The other one no longer reads it.
    bool claim(std::uint32_t number) {
      std::uint32_t before = number - 1;
      return claimed.compare_exchange_strong(before, number, std::memory_order_acq_rel);
    }
  };

  void work(Mailbox& mailbox);
  int grow_to(int workers);

  std::atomic<bool> busy_{false};
  std::atomic<std::uint32_t> unfinished_{0};  // tasks that workers have not finished; the caller waits on it
  int workers_ = 0;
  std::array<std::unique_ptr<Mailbox>, kMaxWorkers> mailboxes_;
};

void Pool::work(Mailbox& mailbox) {
  for (std::uint32_t seen = 0;;) {
    wait_for_change(mailbox.posted, seen);
    seen = mailbox.posted.load(std::memory_order_acquire);
    if (!mailbox.claim(seen)) continue;
    mailbox.task(mailbox.argument, mailbox.index);
    if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_one();
  }
}

// Blocks every signal in its scope. Threads that start there inherit the mask, so workers receive no signals.
class AllSignalsBlocked {
 public:
  AllSignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~AllSignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  AllSignalsBlocked(const AllSignalsBlocked&) = delete;
  AllSignalsBlocked& operator=(const AllSignalsBlocked&) = delete;

 private:
  sigset_t before_;
};

// Starts threads until there are `workers`, or as many as the system allows. A worker does not inherit the affinity,
// the floating-point mode or the signal mask of the calling thread.
int Pool::grow_to(int workers) {
  const int wanted = std::min(workers, kMaxWorkers);
  if (workers_ >= wanted) return wanted;
  const AllSignalsBlocked blocked;
  for (; workers_ < wanted; ++workers_) {
    try {
      auto mailbox = std::make_unique<Mailbox>();
      std::thread([this, box = mailbox.get()] {
        core::run_on_all_processors();
        const core::DefaultFloatingPoint mode;
        work(*box);
      }).detach();
      mailboxes_[static_cast<std::size_t>(workers_)] = std::move(mailbox);
    } catch (const std::exception&) {  // the system has no more threads, or no memory
      break;
    }
  }
  return std::min(wanted, workers_);
}

bool Pool::run(int count, void (*task)(void*, int), void* argument) {
  if (busy_.exchange(true, std::memory_order_acquire)) return false;
  const int woken = grow_to(count - 1);
  unfinished_.store(static_cast<std::uint32_t>(woken), std::memory_order_relaxed);
  for (int i = 0; i < woken; ++i) mailboxes_[static_cast<std::size_t>(i)]->post(task, argument, i + 1);
  task(argument, 0);
  for (int i = woken + 1; i < count; ++i) task(argument, i);  // for threads that could not be started
  for (int i = 0; i < woken; ++i) {
    Mailbox& mailbox = *mailboxes_[static_cast<std::size_t>(i)];
    if (!mailbox.claim(mailbox.posted.load(std::memory_order_relaxed))) continue;
    task(argument, i + 1);
    unfinished_.fetch_sub(1, std::memory_order_relaxed);
  }
  for (auto left = unfinished_.load(std::memory_order_acquire); left != 0;
       left = unfinished_.load(std::memory_order_acquire))
    wait_for_change(unfinished_, left);
  busy_.store(false, std::memory_order_release);
  return true;
}

std::atomic<Pool*> the_pool{nullptr};

[[maybe_unused]] const int registered = pthread_atfork(nullptr, nullptr, [] { the_pool.store(nullptr); });

// Never destroyed: workers may sleep in it while the process exits. A forked child has no workers, so it drops the
// pointer and makes a new pool at its first call. Null if memory runs out.
Pool* pool() {
  Pool* current = the_pool.load(std::memory_order_acquire);
  if (current != nullptr) return current;
  std::unique_ptr<Pool> fresh(new (std::nothrow) Pool);
  if (the_pool.compare_exchange_strong(current, fresh.get(), std::memory_order_acq_rel)) return fresh.release();
  return current;
}

void run_external(const ExternalThreadPool& thread_pool, int count, void (*task)(void*, int), void* argument) {
  struct Call {
    void (*task)(void*, int);
    void* argument;
    int count;
    std::atomic<int> ended{0};
  } call{task, argument, count};
  thread_pool.run(
      thread_pool.host, count,
      [](void* data, std::int64_t index, int) {
        auto& c = *static_cast<Call*>(data);
        if (index < 0 || index >= c.count) return;
        const core::DefaultFloatingPoint mode;
        c.task(c.argument, static_cast<int>(index));
        ++c.ended;
      },
      &call);
  if (call.ended == count) return;
  core::fail({.status = Status::error,
              .argument = "thread_pool",
              .problem = "the thread pool did not run every task once; the outputs are unspecified",
              .got = std::to_string(call.ended) + " tasks that ended",
              .wanted = std::to_string(count) + " tasks, ended before `run` returned",
              .hint = "`run` calls the task once for every index and returns when all have ended"});
}

}  // namespace

void run_tasks(const ExternalThreadPool* thread_pool, int count, void (*task)(void* argument, int index),
               void* argument) {
  if (thread_pool != nullptr) return run_external(*thread_pool, count, task, argument);
  Pool* const own = count > 1 ? pool() : nullptr;
  if (own != nullptr && own->run(count, task, argument)) return;
  for (int i = 0; i < count; ++i) task(argument, i);
}

}  // namespace fovea::cpu
