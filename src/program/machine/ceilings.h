// The ceilings of the machine, measured now: the denominators of `ceiling_share`.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "fovea/tensor.h"
#include "program/record/record.h"

namespace fovea::program {

// The device's flops/s with inputs of this type, from a probe of about `seconds`: on a CPU register-only multiply-adds
// of `threads` threads, on a GPU a large matrix product. 0 if there is no probe.
double probe_flops(DeviceKind device, DType dtype, int threads, double seconds);

// The ceiling of a row: the largest of the probes and of the run's best library product. If that product beats the
// probes, they were disturbed; then up to three more probes run.
RowCeiling row_ceiling(double probe_before, double probe_after, double best_product,
                       const std::function<double()>& probe);

// Whether the product, or the row itself at `rate` flops/s, still beats the probes. Then they are no ceiling.
bool is_low_probe(const RowCeiling& ceiling, double rate);

// flops/s of the best library matrix product in fp32; 0 if the program links no library.
double probe_product(int threads);

// The CPU ceilings of `info` and of a record's environment, by name: fma_fp32, fma_fp32_avx2 (if there are wider
// vectors), dot_bf16, tile_bf16 and product_fp32 in flops/s, read_bandwidth in bytes/s. Leaves out probes for which
// memory runs out. Takes about half a second.
std::map<std::string, double> probe_all(int threads);

// The same for a GPU: gpu_copy_bandwidth and, if wanted, the slower gpu_product_fp32, gpu_product_bf16 and
// gpu_product_fp16. Leaves out probes that need more than the free memory; empty without a GPU.
std::map<std::string, double> probe_gpu(bool with_products);

// The key of the best library product in those maps.
std::string product_name(DeviceKind device, DType dtype);

}  // namespace fovea::program
