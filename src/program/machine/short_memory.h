// Whether memory is short, for signal handlers: a matrix library without memory for its buffers crashes.
#pragma once

namespace fovea::program {

inline constexpr char kShortMemory[] = "less than 128 MiB of memory were left, so a library may have run out of it";

// Whether the process cannot get 128 MiB more, about what a matrix library takes for a thread. Async-signal-safe.
bool memory_is_short();

}  // namespace fovea::program
