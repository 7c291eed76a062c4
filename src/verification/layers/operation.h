// Attention layers as operations, one for each kind.
#pragma once

#include <functional>

#include "fovea/layers.h"
#include "verification/layers/evaluator.h"
#include "verification/operation.h"

namespace fovea::verification {

inline constexpr LayerKind kLayerKinds[] = {LayerKind::mha_fused, LayerKind::mha, LayerKind::gqa, LayerKind::mqa,
                                            LayerKind::mla};

// Its implementations are those of attention: the layer runs with that attention between its heads.
const Operation& layer_operation(LayerKind kind);

// Sets who evaluates layers on each device. Without it the CPU does.
void evaluate_layers_by(std::function<const LayerEvaluator&(DeviceKind)> evaluator_on);

void register_layers();  // all of them, as operations of this program

}  // namespace fovea::verification
