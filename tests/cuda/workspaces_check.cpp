// Calls whose workspace is the library's: what a stream left is used again by it alone, also where streams come and go,
// where threads share one, and where it is captured; and all of it can be given back.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "attention/plan.h"
#include "cuda/measure/device_memory.h"
#include "cuda/runtime/check.h"
#include "cuda/runtime/idle_blocks.h"
#include "cuda/runtime/launch.h"
#include "cuda/runtime/workspace_pool.h"
#include "device_call.h"
#include "fovea/error.h"
#include "on_device.h"
#include "verification/attention/case.h"

namespace fovea::cuda {
namespace {

int passed = 0, failed = 0;

void judge(const char* name, const std::string& wrong) {
  std::printf("workspaces: %s: %s\n", name, wrong.empty() ? "right" : wrong.c_str());
  std::fflush(stdout);
  ++(wrong.empty() ? passed : failed);
}

// Waits before it is destroyed, unless told that calls may be under way.
class Stream {
 public:
  explicit Stream(unsigned flags = cudaStreamNonBlocking, bool waits = true) : waits_(waits) {
    check(cudaStreamCreateWithFlags(&stream_, flags), "cudaStreamCreateWithFlags");
  }
  ~Stream() {
    if (waits_) cudaStreamSynchronize(stream_);
    cudaStreamDestroy(stream_);
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
  bool waits_;
};

// Another number gives other values.
verification::AttentionCase case_of(std::int64_t length, int number) {
  verification::AttentionCase c =
      verification::attention_case("pass=bwd b=1 hq=1 hkv=1 lq=128 d=64 dtype=fp32 mask=causal");
  c.problem.device = {DeviceKind::cuda, 0};
  c.problem.pass = Pass::backward;
  c.problem.len_q = c.problem.len_k = length;
  c.seed = static_cast<std::uint64_t>(number);
  return c;
}

std::int64_t bytes_of(std::int64_t length) { return workspace_bytes(case_of(length, 0).problem, "cuda.any"); }

// A length with a small workspace, and the one with the largest that a dozen streams may leave.
struct Lengths {
  static constexpr std::int64_t kMost = 8192;
  std::int64_t small = 128, large = 128;
  Lengths() {
    for (std::int64_t length = 256; length <= kMost; length += 128) {
      if (bytes_of(length) <= IdleBlocks::kMostBytes / 12 && bytes_of(length) > bytes_of(large)) large = length;
    }
  }
};

const Lengths& lengths() {
  static const Lengths all;
  return all;
}

void wait() { check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }

// Empty, or what is taken of the pool instead.
std::string unless_used(std::int64_t wanted) {
  const std::int64_t used = pool_used(0);
  return used == wanted ? "" : std::to_string(used) + " bytes are taken, wanted " + std::to_string(wanted);
}

struct Known {
  explicit Known(std::int64_t length, int number = 0) : call(case_of(length, number)), bytes(bytes_of(length)) {
    attention_forward(call.forward, call.options);
    attention_backward(call.backward, call.options);
    wanted = call.bytes();
    call.poison(Pass::backward);
    give_workspaces_back();
  }
  void enqueue(cudaStream_t stream, Buffer workspace = {}) {
    AttentionOptions options = call.options;
    options.stream = stream;
    options.workspace = workspace;
    attention_backward(call.backward, options);
  }
  std::string wrong() const { return call.bytes() == wanted ? "" : "other bits"; }

  DeviceCall call;
  std::int64_t bytes;
  std::vector<std::byte> wanted;
};

// A captured call of backward. Without a workspace the graph has memory nodes.
class Graph {
 public:
  Graph(Known& one, cudaStream_t stream, Buffer workspace = {}) : stream_(stream) {
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    one.enqueue(stream, workspace);
    check(cudaStreamEndCapture(stream, &graph_), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&executable_, graph_, 0), "cudaGraphInstantiate");
  }
  ~Graph() { cudaGraphExecDestroy(executable_), cudaGraphDestroy(graph_); }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  void launch() const { check(cudaGraphLaunch(executable_, stream_), "cudaGraphLaunch"); }
  // Microseconds of one of `replays` in a row.
  double replay_us(int replays) const {
    cudaEvent_t begin = nullptr, end = nullptr;
    check(cudaEventCreate(&begin), "cudaEventCreate");
    check(cudaEventCreate(&end), "cudaEventCreate");
    check(cudaEventRecord(begin, stream_), "cudaEventRecord");
    for (int i = 0; i < replays; ++i) launch();
    check(cudaEventRecord(end, stream_), "cudaEventRecord");
    check(cudaEventSynchronize(end), "cudaEventSynchronize");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    cudaEventDestroy(begin), cudaEventDestroy(end);
    return 1e3 * static_cast<double>(ms) / replays;
  }

 private:
  cudaStream_t stream_ = nullptr;
  cudaGraph_t graph_ = nullptr;
  cudaGraphExec_t executable_ = nullptr;
};

// Of one length, or of two that take turns.
std::vector<std::unique_ptr<Known>> several(int count, std::int64_t one, std::int64_t other) {
  std::vector<std::unique_ptr<Known>> calls;
  for (int i = 0; i < count; ++i) calls.push_back(std::make_unique<Known>(i % 2 == 0 ? one : other, i));
  return calls;
}

std::string wrong_of(const std::vector<std::unique_ptr<Known>>& calls) {
  std::string wrong;
  for (const auto& call : calls) {
    if (wrong.empty()) wrong = call->wrong();
  }
  return wrong;
}

void lengths_differ() {
  const std::int64_t small = bytes_of(lengths().small), large = bytes_of(lengths().large);
  std::printf("workspaces: %lld bytes of %lld rows, %lld bytes of %lld rows\n", static_cast<long long>(small),
              static_cast<long long>(lengths().small), static_cast<long long>(large),
              static_cast<long long>(lengths().large));
  judge("one workspace is larger than the other", small < large ? "" : "it is not");
}

void a_stream_takes_memory_once() {
  Known one(lengths().large);
  const Stream stream, other;
  for (int i = 0; i < 20; ++i) one.enqueue(stream.get());
  wait();
  judge("what a stream's calls left is kept once", unless_used(one.bytes));
  judge("calls after the first", one.wrong());
  one.enqueue(other.get());
  wait();
  judge("another stream's call takes its own", unless_used(2 * one.bytes));
  give_workspaces_back();
  judge("all is given back", unless_used(0));
}

unsigned long long id_of(cudaStream_t stream) {
  unsigned long long id = 0;
  check(cudaStreamGetId(stream, &id), "cudaStreamGetId");
  return id;
}

// More of them than are kept. The handle of one that is gone comes back; what tells streams apart must not.
void streams_come_and_go() {
  Known one(lengths().large);
  std::set<unsigned long long> ids;
  std::string wrong;
  constexpr std::size_t kStreams = IdleBlocks::kMostBlocks + 20;
  for (std::size_t i = 0; i < kStreams; ++i) {
    const Stream stream;
    ids.insert(id_of(stream.get()));
    one.call.poison(Pass::backward);
    one.enqueue(stream.get());
    wait();
    if (wrong.empty()) wrong = one.wrong();
  }
  judge("streams that come and go", wrong);
  judge("ids of streams", ids.size() == kStreams ? "" : std::to_string(ids.size()) + " different ones");
  const auto most_blocks = static_cast<std::int64_t>(IdleBlocks::kMostBlocks);
  judge("as many as may be are kept",
        unless_used(std::min(most_blocks, IdleBlocks::kMostBytes / one.bytes) * one.bytes));
  give_workspaces_back();
}

// Each has memory of its own, whatever ends first; the legacy default stream has two names.
void streams_side_by_side() {
  const auto calls = several(9, lengths().large, lengths().large);
  const Stream one, two, three, four, blocking(cudaStreamDefault), another(cudaStreamDefault);
  const cudaStream_t streams[] = {one.get(),     two.get(),        three.get(),         four.get(), blocking.get(),
                                  another.get(), cudaStreamLegacy, cudaStreamPerThread, nullptr};
  for (int n = 0; n < 20; ++n) {
    for (std::size_t i = 0; i < calls.size(); ++i) calls[i]->enqueue(streams[i]);
  }
  wait();
  judge("streams side by side", wrong_of(calls));
  std::set<unsigned long long> ids;
  for (const cudaStream_t stream : streams) ids.insert(id_of(stream));
  judge("streams side by side, what they left", unless_used(static_cast<std::int64_t>(ids.size()) * calls[0]->bytes));
  give_workspaces_back();
}

// Four share one, two have theirs under one handle, and two call on the default stream.
void threads_at_once() {
  const Stream shared;
  const cudaStream_t streams[] = {shared.get(),        shared.get(),        shared.get(), shared.get(),
                                  cudaStreamPerThread, cudaStreamPerThread, nullptr,      nullptr};
  const auto calls = several(8, lengths().large, lengths().small);
  std::vector<std::thread> threads;
  std::vector<std::string> said(calls.size());
  for (std::size_t i = 0; i < calls.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        for (int n = 0; n < 50; ++n) calls[i]->enqueue(streams[i]);
      } catch (const std::exception& error) {
        said[i] = error.what();
      }
      cudaStreamSynchronize(streams[i]);
    });
  }
  for (std::thread& thread : threads) thread.join();
  wait();
  for (std::size_t i = 0; i < calls.size(); ++i)
    judge("threads at once", said[i].empty() ? calls[i]->wrong() : said[i]);
  give_workspaces_back();
}

// A graph would use what the stream left each time it runs, whatever else does by then. So it has memory of its own.
void a_capture_gets_nothing_left() {
  Known one(lengths().large);
  const Stream stream;
  one.enqueue(stream.get());
  wait();
  judge("before a capture", unless_used(one.bytes));
  {
    const Graph graph(one, stream.get());
    judge("after a capture", unless_used(one.bytes));
    for (int replay = 0; replay < 2; ++replay) {
      one.call.poison(Pass::backward);
      graph.launch();
      wait();
      judge("the graph", one.wrong());
      one.call.poison(Pass::backward);
      one.enqueue(stream.get());
      wait();
      judge("the call after the graph", one.wrong());
    }
  }
  judge("after the graph", unless_used(one.bytes));
  give_workspaces_back();
}

double median(std::vector<double> all) {
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  std::nth_element(all.begin(), middle, all.end());
  return *middle;
}

// Prints what memory nodes add to a replay (docs/kernels/cuda_any.md, Workspace), and judges answers only. The two graphs
// take turns, so that both run at the same frequency.
void time_replays(std::int64_t length) {
  constexpr int kRounds = 51, kReplays = 100;
  Known one(length);
  const Stream stream;
  const DeviceMemory workspace(one.bytes);
  const Graph with_nodes(one, stream.get()), with_callers(one, stream.get(), {workspace.data(), workspace.bytes()});
  std::vector<double> nodes_us, callers_us;
  for (int round = 0; round < kRounds; ++round) {
    nodes_us.push_back(with_nodes.replay_us(kReplays));
    callers_us.push_back(with_callers.replay_us(kReplays));
  }
  const double nodes = median(nodes_us), callers = median(callers_us);
  std::printf(
      "workspaces: replay of backward, %lld rows, %lld bytes: %.2f us with memory nodes, %.2f us with the "
      "caller's workspace, difference %.2f us\n",
      static_cast<long long>(length), static_cast<long long>(one.bytes), nodes, callers, nodes - callers);
  for (const Graph* graph : {&with_nodes, &with_callers}) {
    one.call.poison(Pass::backward);
    graph->launch();
    wait();
    judge("a replay after many", one.wrong());
  }
  give_workspaces_back();
}

// What a stream left serves a smaller call, and makes room for one that it is too small for.
void sizes_change() {
  Known small(lengths().small), large(lengths().large);
  const Stream stream;
  small.enqueue(stream.get());
  large.enqueue(stream.get());
  wait();
  judge("a larger call's memory replaces a smaller one's", unless_used(large.bytes));
  small.call.poison(Pass::backward);
  small.enqueue(stream.get());
  wait();
  judge("a smaller call takes a larger one's", unless_used(large.bytes));
  for (const Known* one : {&small, &large}) judge("sizes that change", one->wrong());
  give_workspaces_back();
}

// Asked for without a call: not on every device is there one that wants so much.
void too_much_to_be_kept() {
  constexpr std::int64_t kTooMuch = IdleBlocks::kMostBytes + 512;
  Known one(lengths().large);
  const Stream stream;
  reset_workspace_peak();
  one.enqueue(stream.get());
  wait();
  attention::Plan plan(case_of(lengths().large, 0).problem);
  plan.workspace_bytes = kTooMuch;
  const Buffer taken = allocate_workspace(plan, stream.get());
  judge("what is too small makes room", unless_used(kTooMuch));
  judge("and nothing more is taken", workspace_peak() == kTooMuch ? "" : std::to_string(workspace_peak()) + " bytes");
  release_workspace(plan, taken, stream.get());
  wait();
  judge("too much is not kept", unless_used(0));
}

// With programmatic dependent launch this may leave the device hanging: docs/kernels/cuda_any.md.
void streams_destroyed_under_way() {
  const auto calls = several(9, 8192, 8192), short_calls = several(9, lengths().large, lengths().large);
  std::string wrong;
  for (int round = 0; round < 6 && wrong.empty(); ++round) {
    for (const auto& call : calls) call->call.poison(Pass::backward);
    for (const auto& call : short_calls) call->call.poison(Pass::backward);
    for (std::size_t i = 0; i < calls.size(); ++i) {
      const Stream stream(cudaStreamNonBlocking, false);
      calls[i]->enqueue(stream.get());
      short_calls[i]->enqueue(stream.get());
    }
    wait();
    wrong = wrong_of(calls) + wrong_of(short_calls);
  }
  judge("streams destroyed with calls under way", wrong);
  give_workspaces_back();
}

}  // namespace

int check_workspaces() {
  lengths_differ();
  a_stream_takes_memory_once();
  streams_come_and_go();
  streams_side_by_side();
  threads_at_once();
  a_capture_gets_nothing_left();
  for (const std::int64_t length : {lengths().small, std::int64_t{512}, lengths().large}) time_replays(length);
  sizes_change();
  too_much_to_be_kept();
  if (!pdl_enabled()) streams_destroyed_under_way();
  std::printf("workspaces: %d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace fovea::cuda
