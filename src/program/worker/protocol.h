// What parent and worker say to each other. python/bench/fovea_worker.py speaks the same words.
//
// Both directions are JSON objects, one a line, on descriptors of their own, so that whatever a kernel prints goes to
// the log and never into an answer.
//
//   {"command":"prepare","problem":LINE,"implementation":NAME,"threads":N,"pass":"fwd","timing":"cold",
//    "memory_limit":N,"input_bytes":..,"output_bytes":..,"tensors":{"q":{"offset":..,"sizes":[4],"strides":[4],"dtype":"fp32","input":true},
//    ...}}
//   {"command":"run"}                 every pass of the case once, outputs into the shared block
//       -> {"ok":true,"timer":"steady_clock","workspace_bytes":N|null,"saved_bytes":N|null}
//          and "peer":"PyTorch 2.9.1" if a framework runs it
//   {"command":"sample","runs":N,"lead":N}   N timed runs of the case's pass after `lead` untimed ones
//       -> {"ok":true,"seconds":[...],"clock_mhz":X|null,"power_w":X|null}      the last two of a GPU
//          and "launches":[...], of the kernels' launches alone, where timing is host and they are known
//          and "pooled":[...] beside them, of calls with a workspace of the library's pool, where they want any
//          and "host_bound":[true,...], of a GPU: which samples may hold the time of the host that enqueued them
//   {"command":"drop"}                forget the case and its memory
//   {"command":"quit"}
// Failures: {"ok":false,"status":"oom|unsupported|error","reason":TEXT}.
#pragma once

namespace fovea::program::protocol {

// Descriptors of a worker.
inline constexpr int kInputs = 3;    // memory of the inputs, read only
inline constexpr int kOutputs = 4;   // memory of the outputs
inline constexpr int kCommands = 5;  // parent -> worker
inline constexpr int kReplies = 6;   // worker -> parent

}  // namespace fovea::program::protocol
