// The protocol between parent and worker. python/fovea_bench/fovea_worker.py implements it too.
//
// Both send JSON objects, one per line, on separate descriptors. So the output of a kernel goes to the log and never
// into an answer.
//
//   {"command":"prepare","problem":LINE,"implementation":NAME,"saves":true,"threads":N,"pass":"fwd","timing":"cold",
//    "memory_limit":N,"input_bytes":..,"output_bytes":..,"tensors":{"q":{"offset":..,"sizes":[4],"strides":[4],"dtype":"fp32","input":true},
//    ...}}                            saves: false if forward of an implementation of ours may save nothing for
//    backward
//   {"command":"run"}                 every pass of the case once, outputs into the shared block
//       -> {"ok":true,"timer":"steady_clock","workspace_bytes":N|null,"saved_bytes":N|null}
//          and "peer":"PyTorch 2.9.1" if a framework runs it
//   {"command":"sample","runs":N,"lead":N}   N timed runs of the case's pass after `lead` untimed ones
//       -> {"ok":true,"seconds":[...],"clock_mhz":X|null,"power_w":X|null}      the last two only on a GPU
//          and "launches":[...], seconds of the kernels' launches alone, if timing is host and they are known
//          and "pooled":[...] with them, for calls with a workspace from the library's pool, if they need one
//          and "host_bound":[true,...] on a GPU: which samples may include the host's time to enqueue them
//   {"command":"load_outputs"}        the kernel's outputs become what the shared block holds
//   {"command":"store_outputs"}       the outputs of the last runs into the shared block
//   {"command":"drop"}                forget the case and its memory
//   {"command":"quit"}
// Failures: {"ok":false,"status":"oom|unsupported|error","reason":TEXT}.
#pragma once

namespace fovea::program::protocol {

// File descriptors of a worker.
inline constexpr int kInputs = 3;    // memory of the inputs, read only
inline constexpr int kOutputs = 4;   // memory of the outputs
inline constexpr int kCommands = 5;  // parent -> worker
inline constexpr int kReplies = 6;   // worker -> parent

}  // namespace fovea::program::protocol
