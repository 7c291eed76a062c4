// Which cases each implementation takes. The implementations answer; the machine's instruction sets do not matter.
#pragma once

#include <string>

#include "attention/implementation.h"
#include "verification/attention/cases.h"
#include "verification/operation.h"

namespace fovea::verification {

// Asks for all head dimensions, result types and variations that random cases of the cell have.
CellSupport support_of(const attention::Implementation& implementation, const Cell& cell);

// The page docs/support.md: one row per CPU implementation, type and pass; one column per class of head dimensions.
std::string support_matrix_markdown();

}  // namespace fovea::verification
