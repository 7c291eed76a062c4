// What the machine can do at most, measured now: the denominators of `ceiling_share`.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "fovea/tensor.h"
#include "program/record/record.h"

namespace fovea::program {

// What the device can do with inputs of this type, flops/s, from a probe of about `seconds`: on a CPU multiply-adds of
// `threads` threads in registers, on a GPU a large matrix product. 0 where there is no probe.
double probe_flops(DeviceKind device, DType dtype, int threads, double seconds);

// The ceiling of a row. A probe that the run's best library product beats was disturbed: up to three more are taken and
// the best counts. The ceiling is the larger of probes and product.
RowCeiling row_ceiling(double probe_before, double probe_after, double best_product,
                       const std::function<double()>& probe);

// Did the product, or the row itself at `rate` flops/s, beat the probes all the same? They are no ceiling then.
bool is_low_probe(const RowCeiling& ceiling, double rate);

// Rate of the best library matrix product, fp32, flops/s; 0 where the program links no library.
double probe_product(int threads);

// What `info` and the environment of records show, by name: fma_fp32, dot_bf16, product_fp32 in flops/s and
// read_bandwidth in bytes/s. Takes about half a second.
std::map<std::string, double> probe_all(int threads);

// The same for a GPU: gpu_copy_bandwidth and, if wanted, gpu_product_fp32, gpu_product_bf16 and gpu_product_fp16, which
// take longer. Those for which its free memory does not suffice are missing; empty without a GPU.
std::map<std::string, double> probe_gpu(bool with_products);

// The name of the best library product under which those maps hold it.
std::string product_name(DeviceKind device, DType dtype);

}  // namespace fovea::program
