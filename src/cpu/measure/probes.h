// Measures the ceilings of this machine, which the program compares times with.
#pragma once

#include "cpu/isa.h"

namespace fovea::cpu {

// The best instruction set that this machine supports.
Isa best_isa();

// Floating-point operations per second of register-only multiply-adds on `threads` threads. The best round counts; all
// rounds together take about `seconds`. 0 if the machine lacks the instructions.
double fma_flops_per_second(Isa isa, int threads, double seconds);
double bf16_dot_flops_per_second(int threads, double seconds);

// The same for products in AMX's tile registers; asks the system for their use.
double bf16_tile_flops_per_second(int threads, double seconds);

// Bytes per second that `threads` threads together read from `bytes` of memory, far more than the caches hold.
double read_bandwidth(int threads, double seconds, std::int64_t bytes = std::int64_t{1} << 28);

}  // namespace fovea::cpu
