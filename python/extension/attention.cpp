// Forward, backward, explanations and plans on arrays of Python.
#include "attention.h"

#include <string_view>

#include "arrays.h"
#include "fovea/attention.h"
#include "framework.h"
#include "interruptible.h"
#include "options.h"

namespace fovea::python {
namespace {

struct Forward {
  Options options;
  Array q, k, v, out, lse;

  // `arrays` holds q, k and v; out and lse, which are allocated where they are None; and a plan or None.
  Forward(const nb::tuple& arrays, Framework framework, const Words& words)
      : options(words),
        q(input_array(arrays[0], "q", options.layout)),
        k(input_array(arrays[1], "k", options.layout)),
        v(input_array(arrays[2], "v", options.layout)) {
    options.check_alignment(q.view.sizes[2], k.view.sizes[2]);
    const Sizes& of_q = q.view.sizes;
    const Sizes sizes{of_q[0], of_q[1], of_q[2], v.view.sizes[3]};
    nb::object given = arrays[3];
    if (given.is_none()) {
      given = sizes == of_q ? framework.empty_like(q.object)  // takes less time
                            : framework.empty(q.object, shape_of(sizes, options.layout));
    }
    out = output_array(given, "out", options.layout);
    given = arrays[4];
    if (given.is_none()) given = framework.empty_fp32(q.object, shape_of_rows(sizes));
    lse = output_rows(given, "lse");
  }

  ForwardTensors tensors() const { return {.q = q.view, .k = k.view, .v = v.view, .out = out.view, .lse = lse.view}; }
  AttentionProblem problem() const { return describe(tensors(), options.attention); }
};

struct Backward {
  Options options;
  Array dout, q, k, v, out, lse, dq, dk, dv;

  // `arrays` holds dout, q, k, v, out and lse; and for each of dq, dk and dv an array, or whether one is allocated.
  Backward(const nb::tuple& arrays, Framework framework, const Words& words)
      : options(words),
        dout(input_array(arrays[0], "dout", options.layout)),
        q(input_array(arrays[1], "q", options.layout)),
        k(input_array(arrays[2], "k", options.layout)),
        v(input_array(arrays[3], "v", options.layout)),
        out(input_array(arrays[4], "out", options.layout)),
        lse(input_rows(arrays[5], "lse")) {
    options.check_alignment(q.view.sizes[2], k.view.sizes[2]);
    const auto gradient = [&](nb::object wanted, const char* name, const Array& of) {
      if (!nb::isinstance<nb::bool_>(wanted)) return output_array(wanted, name, options.layout);
      if (!nb::cast<bool>(wanted)) return Array{.object = nb::none(), .held = {}, .view = {}};
      return output_array(framework.empty_like(of.object), name, options.layout);
    };
    dq = gradient(arrays[6], "dq", q), dk = gradient(arrays[7], "dk", k), dv = gradient(arrays[8], "dv", v);
  }

  BackwardTensors tensors() const {
    return {.q = q.view,
            .k = k.view,
            .v = v.view,
            .out = out.view,
            .lse = lse.view,
            .dout = dout.view,
            .dq = dq.view,
            .dk = dk.view,
            .dv = dv.view};
  }
  AttentionProblem problem() const { return describe(tensors(), options.attention); }
};

nb::str str_of(std::string_view text) { return nb::str(text.data(), text.size()); }

// A plan that Python keeps.
struct KeptPlan {
  Plan plan;
};

// Whether somebody may want to interrupt it: it takes more than some milliseconds.
bool is_long(const Array& q, const Array& k) {
  const Sizes &rows = q.view.sizes, &keys = k.view.sizes;
  constexpr double kMultiplyAdds = 1e8;
  return static_cast<double>(rows[0] * rows[1]) * static_cast<double>(rows[2] * rows[3]) *
             static_cast<double>(keys[2]) >
         kMultiplyAdds;
}

template <class Call>
void run(const Call& call, Framework framework, const KeptPlan* kept,
         void (*work)(const Call&, const AttentionOptions&)) {
  AttentionOptions options = call.options.attention;
  const bool on_cpu = call.q.view.device.kind == DeviceKind::cpu;
  Plan plan;
  nb::object workspace;
  if (!on_cpu) {
    plan = kept != nullptr ? kept->plan : prepare(call.problem(), options.implementation);
    // The allocator may give this memory to later work of the current stream as soon as the call has been enqueued. So
    // calls on other streams take the library's own.
    if (call.options.on_current_stream) {
      options.stream = framework.current_stream(call.q.object);
      workspace = framework.empty_bytes(call.q.object, plan.workspace_bytes(), options.workspace);
    }
    options.plan = &plan;
  } else if (kept != nullptr) {
    options.plan = &kept->plan;
  }
  run_interruptible(on_cpu && is_long(call.q, call.k), [&](const std::atomic<bool>* cancel) {
    options.cancel = cancel;
    work(call, options);
  });
}

const KeptPlan* plan_of(const nb::object& plan) { return plan.is_none() ? nullptr : nb::cast<const KeptPlan*>(plan); }

nb::tuple forward(const nb::tuple& arrays, nb::handle framework, const Words& words) {
  const Forward call(arrays, {framework}, words);
  run<Forward>(call, {framework}, plan_of(arrays[5]),
               [](const Forward& it, const AttentionOptions& options) { attention_forward(it.tensors(), options); });
  return nb::make_tuple(call.out.object, call.lse.object);
}

nb::tuple backward(const nb::tuple& arrays, nb::handle framework, const Words& words) {
  const Backward call(arrays, {framework}, words);
  run<Backward>(call, {framework}, nullptr,
                [](const Backward& it, const AttentionOptions& options) { attention_backward(it.tensors(), options); });
  return nb::make_tuple(call.dq.object, call.dk.object, call.dv.object);
}

nb::dict dict_of(const Explanation& explanation) {
  nb::list walk;
  for (const auto& step : explanation.walk)
    walk.append(nb::make_tuple(step.name.c_str(), step.accepted, step.reason.c_str(), step.predicted_seconds));
  nb::dict all;
  all["chosen"] = explanation.chosen.c_str();
  all["tiles"] = explanation.tiles.c_str();
  all["walk"] = walk;
  all["workspace_bytes"] = explanation.workspace_bytes;
  all["saved_bytes"] = explanation.saved_bytes;
  all["flops"] = explanation.flops;
  all["bytes"] = explanation.bytes;
  all["predicted_seconds"] = explanation.predicted_seconds;
  return all;
}

nb::list list_of_implementations() {
  nb::list all;
  for (const ImplementationInfo& one : implementations())
    all.append(nb::make_tuple(one.name.c_str(), one.device == DeviceKind::cpu ? "cpu" : "cuda", one.automatic,
                              one.unavailable.c_str()));
  return all;
}

}  // namespace

void add_attention(nb::module_& module) {
  nb::class_<KeptPlan>(module, "Plan")
      .def_prop_ro("implementation", [](const KeptPlan& it) { return str_of(it.plan.implementation()); })
      .def_prop_ro("workspace_bytes", [](const KeptPlan& it) { return it.plan.workspace_bytes(); });
  module.def("forward", &forward);
  module.def("backward", &backward);
  module.def("explain_forward", [](const nb::tuple& arrays, nb::handle framework, const Words& words) {
    const Forward call(arrays, {framework}, words);
    return dict_of(explain(call.problem(), call.options.implementation));
  });
  module.def("plan_forward", [](const nb::tuple& arrays, nb::handle framework, const Words& words) {
    const Forward call(arrays, {framework}, words);
    return KeptPlan{prepare(call.problem(), call.options.implementation)};
  });
  module.def("implementations", &list_of_implementations);
}

}  // namespace fovea::python
