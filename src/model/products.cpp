// The products of a pass without anything between them. Weights and their gradients are those of the pass; other
// operands have its sizes and lie in its memory.
#include "model/products.h"

namespace fovea::model {

void Model::run_products(Pass pass, const core::RunContext& context) {
  const Products run{*this, context};
  const auto rows_at = [&](std::int64_t offset, std::int64_t columns) {
    return run.matrix(at(offset), run.rows, columns);
  };
  const std::int64_t width = config_.width, hidden = config_.hidden;
  const auto to_gate_up = [&](std::size_t i) {
    const std::int64_t saved = memory_.blocks[i].attention_saved;  // q, k and v come first
    run.multiply(calls_.qkv, rows_at(memory_.norms[2 * i].y, width), map_.blocks[i].qkv, rows_at(saved, 3 * width));
    run.multiply(calls_.out, rows_at(saved, width), map_.blocks[i].out, rows_at(memory_.branch, width));
    run.multiply(calls_.gate_up, rows_at(memory_.norms[2 * i + 1].y, width), map_.blocks[i].gate_up,
                 rows_at(memory_.blocks[i].gate_up, 2 * hidden));
  };
  if (pass == Pass::forward) {
    for (std::size_t i = 0; i < map_.blocks.size(); ++i) {
      to_gate_up(i);
      run.multiply(calls_.down, rows_at(memory_.hidden, hidden), map_.blocks[i].down, rows_at(memory_.branch, width));
    }
    return run.multiply(calls_.head, rows_at(memory_.norms.back().y, width), map_.head, run.logits());
  }
  const auto dy = rows_at(memory_.dy, width), dbranch = rows_at(memory_.dbranch, width);
  run.multiply_backward(calls_.head, rows_at(memory_.norms.back().y, width), dy, map_.head, run.logit_gradient());
  for (std::size_t i = map_.blocks.size(); i-- > 0;) {
    const std::int64_t saved = memory_.blocks[i].attention_saved;
    if (config_.checkpoints_activations && i + 1 < map_.blocks.size()) to_gate_up(i);
    run.multiply_to_dx(calls_.down_dx, rows_at(memory_.hidden, hidden), map_.blocks[i].down, dbranch);
    run.multiply_to_dweight(calls_.down_dweight, rows_at(memory_.hidden, hidden), map_.blocks[i].down, dbranch);
    run.multiply_backward(calls_.gate_up, rows_at(memory_.norms[2 * i + 1].y, width), dy, map_.blocks[i].gate_up,
                          rows_at(memory_.blocks[i].gate_up, 2 * hidden));
    run.multiply_backward(calls_.out, rows_at(saved, width), dy, map_.blocks[i].out, dbranch);
    run.multiply_backward(calls_.qkv, rows_at(memory_.norms[2 * i].y, width), dy, map_.blocks[i].qkv,
                          rows_at(saved, 3 * width));
  }
}

}  // namespace fovea::model
