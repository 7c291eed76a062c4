// Rates of a GPU: every shape beside its peers, one table per pass and type.
#pragma once

#include <vector>

#include "program/report_study.h"
#include "program/report_table.h"

namespace fovea::program {

// TFLOP/s of every implementation, and this library's time against that of torch.flash, in the rows measured on a GPU.
// Empty where there are none.
std::vector<Table> rate_tables(const Study& study);

}  // namespace fovea::program
