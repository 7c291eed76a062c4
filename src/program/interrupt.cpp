// The handlers only count. Code that reads the count does the rest.
#include "program/interrupt.h"

#include <unistd.h>

#include <atomic>
#include <csignal>

namespace fovea::program {
namespace {

std::atomic<int> signals = 0;
static_assert(std::atomic<int>::is_always_lock_free);

void count(int) {
  if (signals.fetch_add(1) > 0) _exit(130);
}

}  // namespace

void watch_interrupts() {
  struct sigaction action {};
  action.sa_handler = count;  // without SA_RESTART: a wait for a worker must wake up
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &action, nullptr);
}

bool interrupted() { return signals.load() > 0; }

}  // namespace fovea::program
