// The public calls: views -> problem -> choice -> steps -> run.
#include "fovea/linear.h"

#include "core/check.h"
#include "core/memory.h"
#include "linear/implementation.h"
#include "linear/validate.h"

namespace fovea {
namespace {

using linear::Implementation;
using linear::NamedMemory;

// Workspace of an implementation that has its own memory, given back even if the call fails half-way.
class DeviceWorkspace {
 public:
  DeviceWorkspace(const Implementation& one, const LinearProblem& problem, std::int64_t bytes, void* stream)
      : one_(one), problem_(problem), stream_(stream), buffer_(one.allocate_workspace(problem, bytes, stream)) {}
  ~DeviceWorkspace() { one_.release_workspace(problem_, buffer_, stream_); }
  DeviceWorkspace(const DeviceWorkspace&) = delete;
  DeviceWorkspace& operator=(const DeviceWorkspace&) = delete;

  void* data() const { return buffer_.data; }

 private:
  const Implementation& one_;
  const LinearProblem& problem_;
  void* stream_;
  Buffer buffer_;
};

void check_workspace(const Buffer& given, std::int64_t wanted, std::string_view call) {
  if (given.data == nullptr || given.bytes >= wanted) return;
  core::fail({.status = Status::invalid_argument,
              .call = std::string(call),
              .argument = "workspace",
              .problem = "the buffer is too small",
              .got = std::to_string(given.bytes) + " bytes",
              .wanted = "at least " + std::to_string(wanted) + " bytes",
              .hint = "workspace_bytes(describe(..)) tells how many; {} for the library's own"});
}

NamedMemory named(std::string_view name, const TensorView& t) {
  const bool empty = t.sizes[0] * t.sizes[1] * t.sizes[2] * t.sizes[3] == 0;
  return {name, empty ? nullptr : t.data};
}

std::vector<NamedMemory> memory_of(const LinearForwardTensors& t) {
  return {named("x", t.x), named("weight", t.weight), named("bias", t.bias), named("y", t.y)};
}

std::vector<NamedMemory> memory_of(const LinearBackwardTensors& t) {
  return {named("x", t.x),   named("weight", t.weight),   named("dy", t.dy),
          named("dx", t.dx), named("dweight", t.dweight), named("dbias", t.dbias)};
}

template <class Tensors>
void run(const Tensors& tensors, const LinearOptions& options, std::string_view call) {
  const LinearProblem problem = linear::validate(tensors, options, call);
  const Implementation& chosen = linear::choose(problem, options.implementation, call);
  const std::int64_t bytes = chosen.workspace_bytes(problem);
  check_workspace(options.workspace, bytes, call);
  core::RunContext context{.threads = options.threads,
                           .thread_pool = options.thread_pool,
                           .cancel = options.cancel,
                           .stream = options.stream};
  if (options.threads == 0 && problem.device.kind == DeviceKind::cpu)
    context.threads = options.thread_pool != nullptr ? options.thread_pool->threads : default_threads();
  const auto run_with = [&](void* workspace) {
    context.workspace = workspace;
    if (chosen.check_memory) chosen.check_memory(problem, memory_of(tensors), context);
    chosen.run(problem, linear::steps_of(problem, tensors, workspace), context);
  };
  if (options.workspace.data != nullptr) return run_with(options.workspace.data);
  if (chosen.allocate_workspace != nullptr)
    return run_with(DeviceWorkspace(chosen, problem, bytes, options.stream).data());
  run_with(core::WorkspaceLease(bytes, call).data());
}

double elements(const LinearProblem& p, bool of_x) {
  return static_cast<double>(p.rows()) * static_cast<double>(of_x ? p.columns_in() : p.columns_out());
}

}  // namespace

double flops(const LinearProblem& p) {
  const double product = 2.0 * elements(p, true) * static_cast<double>(p.columns_out());
  if (p.pass == Pass::forward) return product;
  return product * ((p.wants_dx ? 1 : 0) + (p.wants_dweight ? 1 : 0));
}

double bytes(const LinearProblem& p) {
  const double in = static_cast<double>(size_of(p.dtype)), result = static_cast<double>(size_of(p.result_dtype)),
               parameter = static_cast<double>(size_of(p.parameter_dtype));
  const double x = elements(p, true), y = elements(p, false), n = static_cast<double>(p.columns_out());
  const double weight = n * static_cast<double>(p.columns_in());
  if (p.pass == Pass::forward) return in * (x + weight + (p.bias ? n : 0)) + result * y;
  const double gradients = (p.wants_dweight ? weight : 0) + (p.wants_dbias ? n : 0);
  return in * (y + (p.wants_dweight ? x : 0) + (p.wants_dx ? weight : 0)) +
         (p.wants_dx ? result * x * (p.accumulate_dx ? 2 : 1) : 0) + parameter * gradients * (p.accumulate ? 2 : 1);
}

void linear_forward(const LinearForwardTensors& tensors, const LinearOptions& options) {
  core::guarded("linear_forward", [&] { run(tensors, options, "linear_forward"); });
}

void linear_backward(const LinearBackwardTensors& tensors, const LinearOptions& options) {
  core::guarded("linear_backward", [&] { run(tensors, options, "linear_backward"); });
}

LinearProblem describe(const LinearForwardTensors& tensors, const LinearOptions& options) {
  return core::guarded("describe", [&] { return linear::validate(tensors, options, "describe"); });
}

LinearProblem describe(const LinearBackwardTensors& tensors, const LinearOptions& options) {
  return core::guarded("describe", [&] { return linear::validate(tensors, options, "describe"); });
}

std::int64_t workspace_bytes(const LinearProblem& problem, std::string_view implementation) {
  constexpr std::string_view call = "workspace_bytes";
  return core::guarded(call, [&] {
    linear::validate(problem, call);
    return linear::choose(problem, implementation, call).workspace_bytes(problem);
  });
}

Explanation explain(const LinearProblem& problem, std::string_view implementation) {
  return core::guarded("explain", [&] {
    linear::validate(problem, "explain");
    linear::check_name(implementation, "explain");
    Explanation result;
    result.walk = linear::walk(problem, implementation);
    result.flops = flops(problem);
    result.bytes = bytes(problem);
    for (const auto& step : result.walk) {
      if (!step.accepted) continue;
      const Implementation& chosen = linear::choose(problem, step.name, "explain");
      result.chosen = step.name;
      result.tiles = chosen.tiles(problem);
      result.workspace_bytes = chosen.workspace_bytes(problem);
      break;
    }
    return result;
  });
}

std::vector<ImplementationInfo> linear_implementations() {
  return core::guarded("linear_implementations", [] {
    std::vector<ImplementationInfo> infos;
    for (const Implementation& one : linear::all_implementations())
      infos.push_back({one.name, one.device, one.named_because.empty(), one.unavailable()});
    return infos;
  });
}

}  // namespace fovea
