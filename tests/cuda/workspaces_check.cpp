// Calls whose workspace is the library's: what a stream left is used again by it alone, also where streams come and go,
// where threads share one, and where it is captured; and all of it can be given back.
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/problem_line.h"
#include "cuda/measure/device_memory.h"
#include "cuda/runtime/check.h"
#include "device_call.h"
#include "fovea/error.h"
#include "on_device.h"

namespace fovea::cuda {
namespace {

int passed = 0, failed = 0;

void judge(const char* name, const std::string& wrong) {
  if (!wrong.empty()) std::printf("WORKSPACES %s: %s\n", name, wrong.c_str());
  ++(wrong.empty() ? passed : failed);
}

class Stream {
 public:
  explicit Stream(unsigned flags = cudaStreamNonBlocking) {
    check(cudaStreamCreateWithFlags(&stream_, flags), "cudaStreamCreateWithFlags");
  }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

core::Case case_of(const char* line) {
  core::Case c = core::parse_case(line);
  c.problem.device = {DeviceKind::cuda, 0};
  c.problem.pass = Pass::backward;
  return c;
}

// Of both the gradients are cut into parts, which go through the workspace. The number makes the values other ones.
core::Case numbered(core::Case c, int number) {
  c.seed = static_cast<std::uint64_t>(number);
  return c;
}
core::Case long_case(int number = 0) {
  return numbered(case_of("pass=bwd b=1 hq=1 hkv=1 lq=8k d=64 dtype=fp32 mask=causal"), number);
}
core::Case short_case(int number = 0) {
  return numbered(case_of("pass=bwd b=1 hq=1 hkv=1 lq=1k d=64 dtype=fp32 mask=causal"), number);
}
// More than a stream may leave.
core::Case largest_case() { return case_of("pass=bwd b=1 hq=1 hkv=1 lq=16k d=64 dtype=fp32 mask=causal"); }

struct Known {
  explicit Known(const core::Case& c) : call(c) {
    attention_forward(call.forward, call.options);
    attention_backward(call.backward, call.options);
    wanted = call.bytes();
    call.poison(Pass::backward);
  }
  void enqueue(cudaStream_t stream) {
    AttentionOptions options = call.options;
    options.stream = stream;
    attention_backward(call.backward, options);
  }
  std::string wrong() const { return call.bytes() == wanted ? "" : "other bits"; }

  DeviceCall call;
  std::vector<std::byte> wanted;
};

void a_stream_takes_memory_once() {
  give_workspaces_back();
  Known one(short_case());
  const Stream stream;
  reset_workspace_peak();
  one.enqueue(stream.get());
  const std::int64_t first = workspace_peak();
  for (int i = 0; i < 20; ++i) one.enqueue(stream.get());
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  judge("the first call takes memory", first > 0 ? "" : "none was counted");
  judge("calls after the first take none", workspace_peak() == first ? "" : "more was taken");
  judge("calls after the first", one.wrong());
  give_workspaces_back();
  reset_workspace_peak();
  judge("all is given back", workspace_peak() == 0 ? "" : std::to_string(workspace_peak()) + " bytes are still taken");
}

unsigned long long id_of(const Stream& stream) {
  unsigned long long id = 0;
  check(cudaStreamGetId(stream.get(), &id), "cudaStreamGetId");
  return id;
}

// More of them than are kept. The handle of one that is gone comes back; what tells streams apart must not.
void streams_come_and_go() {
  Known one(short_case());
  std::set<unsigned long long> ids;
  std::string wrong;
  constexpr std::size_t kStreams = 100;
  for (std::size_t i = 0; i < kStreams; ++i) {
    const Stream stream;
    ids.insert(id_of(stream));
    one.call.poison(Pass::backward);
    one.enqueue(stream.get());
    check(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
    wrong += one.wrong();
  }
  judge("streams that come and go", wrong.empty() ? "" : "other bits");
  judge("ids of streams", ids.size() == kStreams ? "" : std::to_string(ids.size()) + " different ones");
}

// Each has memory of its own, whatever ends first.
void streams_side_by_side() {
  std::vector<std::unique_ptr<Known>> calls;
  for (int i = 0; i < 9; ++i) calls.push_back(std::make_unique<Known>(i % 2 == 0 ? short_case(i) : long_case(i)));
  const Stream one, two, three, four, blocking(cudaStreamDefault), another(cudaStreamDefault);
  const cudaStream_t streams[] = {one.get(),     two.get(),        three.get(),         four.get(), blocking.get(),
                                  another.get(), cudaStreamLegacy, cudaStreamPerThread, nullptr};
  for (int n = 0; n < 20; ++n) {
    for (std::size_t i = 0; i < calls.size(); ++i) calls[i]->enqueue(streams[i]);
  }
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  std::string wrong;
  for (const auto& call : calls) wrong += call->wrong();
  judge("streams side by side", wrong.empty() ? "" : "other bits");
}

// Four share one, two have theirs under one handle, and two call on the default stream.
void threads_at_once() {
  const Stream shared;
  const cudaStream_t streams[] = {shared.get(),        shared.get(),        shared.get(), shared.get(),
                                  cudaStreamPerThread, cudaStreamPerThread, nullptr,      nullptr};
  std::vector<std::unique_ptr<Known>> calls;
  for (int i = 0; i < 8; ++i) calls.push_back(std::make_unique<Known>(i % 2 == 0 ? short_case(i) : long_case(i)));
  std::vector<std::thread> threads;
  std::vector<std::string> said(calls.size());
  for (std::size_t i = 0; i < calls.size(); ++i) {
    threads.emplace_back([&, i] {
      try {
        for (int n = 0; n < 50; ++n) calls[i]->enqueue(streams[i]);
        check(cudaStreamSynchronize(streams[i]), "cudaStreamSynchronize");
      } catch (const std::exception& error) {
        said[i] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  for (std::size_t i = 0; i < calls.size(); ++i)
    judge("threads at once", said[i].empty() ? calls[i]->wrong() : said[i]);
}

// A graph would use what the stream left each time it runs, whatever else does by then.
void a_capture_gets_nothing_left() {
  Known one(short_case());
  const Stream stream;
  one.enqueue(stream.get());
  std::string said;
  cudaGraph_t graph = nullptr;
  check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
  try {
    one.enqueue(stream.get());
  } catch (const Error& error) {
    said = error.what();
  }
  check(cudaStreamEndCapture(stream.get(), &graph), "cudaStreamEndCapture");
  cudaGraphDestroy(graph);
  judge("capture where the stream left memory",
        said.find("captured") != std::string::npos ? "" : "says `" + said + "`");
  one.enqueue(stream.get());
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  judge("the call after the capture", one.wrong());
}

// What a stream left may be too small for its next call, and serves a smaller one.
void sizes_change() {
  Known small(short_case()), large(long_case());
  const Stream stream;
  for (int i = 0; i < 10; ++i) {
    small.enqueue(stream.get());
    large.enqueue(stream.get());
  }
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  judge("sizes that change, the small one", small.wrong());
  judge("sizes that change, the large one", large.wrong());
}

// A call that wants more than may be kept has no use for what its stream left, which must not stay beside it.
void more_than_is_kept() {
  give_workspaces_back();
  Known small(long_case()), large(largest_case());
  give_workspaces_back();
  const Stream stream;
  reset_workspace_peak();
  large.enqueue(stream.get());
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  const std::int64_t alone = workspace_peak();
  reset_workspace_peak();
  small.enqueue(stream.get());
  large.enqueue(stream.get());
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  judge("a call that wants more than is kept", workspace_peak() == alone ? large.wrong() : "beside what was kept");
}

// What a stream left serves another's call where memory runs out.
void memory_runs_out() {
  Known small(long_case(1)), large(long_case(2));
  const Stream stream, other;
  large.enqueue(other.get());  // whatever a stream's first call takes of the driver
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  large.call.poison(Pass::backward);
  give_workspaces_back();
  small.enqueue(stream.get());
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  std::vector<DeviceMemory> taken;
  for (std::int64_t bytes = std::int64_t{1} << 34; bytes >= 1 << 12;) {
    try {
      taken.emplace_back(bytes);
    } catch (const Error&) {
      bytes /= 2;
    }
  }
  std::string wrong;
  try {
    large.enqueue(other.get());
    wrong = large.wrong();
  } catch (const Error& error) {
    wrong = error.what();
  }
  judge("memory that runs out", wrong);
}

// With kernels that begin early this may leave the device hanging: docs/kernels/cuda_any.md.
void streams_destroyed_under_way() {
  std::vector<std::unique_ptr<Known>> calls;
  for (int i = 0; i < 9; ++i) calls.push_back(std::make_unique<Known>(long_case(i)));
  std::string wrong;
  for (int round = 0; round < 6; ++round) {
    for (const auto& call : calls) call->call.poison(Pass::backward);
    for (const auto& call : calls) call->enqueue(Stream().get());
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    for (const auto& call : calls) wrong += call->wrong();
  }
  judge("streams destroyed with calls under way", wrong.empty() ? "" : "other bits");
}

bool kernels_begin_early() {
  const char* variable = std::getenv("FOVEA_CUDA_EARLY_LAUNCH");
  return variable == nullptr || std::string_view(variable) != "0";
}

}  // namespace

int check_workspaces() {
  a_stream_takes_memory_once();
  streams_come_and_go();
  streams_side_by_side();
  threads_at_once();
  a_capture_gets_nothing_left();
  sizes_change();
  more_than_is_kept();
  memory_runs_out();
  if (!kernels_begin_early()) streams_destroyed_under_way();
  std::printf("workspaces: %d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace fovea::cuda
