// What each implementation takes, asked of the implementations themselves; no machine's instruction sets matter.
#pragma once

#include <string>

#include "attention/implementation.h"
#include "verification/attention/cases.h"
#include "verification/operation.h"

namespace fovea::verification {

// Over the head dimensions, results and variations that random cases of the cell draw from.
CellSupport support_of(const attention::Implementation& implementation, const Cell& cell);

// docs/support.md: one row per implementation of the CPU, element type and pass; one column per class of head
// dimensions.
std::string support_matrix_markdown();

}  // namespace fovea::verification
