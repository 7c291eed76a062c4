// The mean loss of a batch in double precision, by loops that follow the formulas of src/model/model.h.
#pragma once

#include <cstdint>
#include <vector>

#include "model/parameters.h"

namespace fovea::model {

// `weights` has the map's layout. Sequences are `length` tokens long.
double expected_loss(const Config& config, const ParameterMap& map, const std::vector<double>& weights,
                     const std::vector<std::int32_t>& tokens, const std::vector<std::int32_t>& targets,
                     std::int64_t length);

}  // namespace fovea::model
