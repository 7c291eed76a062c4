// Attention's input families.
#pragma once

#include <vector>

#include "verification/families.h"

namespace fovea::verification {

// The families of kDataFamilies, in its order.
std::vector<Family> attention_families();

}  // namespace fovea::verification
