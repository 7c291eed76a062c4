// Forward keeps the input of every norm, product and attention; backward goes the same way back.
#include "model/model.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "core/tensor_checks.h"
#include "model/products.h"

namespace fovea::model {
namespace {

constexpr std::string_view kCall = "model";
constexpr std::int64_t kFp32 = 4;  // bytes

Config checked(const Config& config, const Extent& extent) {
  check(config, extent, kCall);
  return config;
}

double loss_of(const cpu::RowLoss& row) {
  return std::log(static_cast<double>(row.sum)) + (static_cast<double>(row.maximum) - static_cast<double>(row.logit));
}

}  // namespace

Model::Model(const Config& config, const Extent& extent, std::uint64_t seed, Device device)
    : config_(checked(config, extent)),
      extent_(extent),
      map_(config),
      calls_(config, extent, device),
      memory_(config, extent, map_, calls_),
      work_(work_on(device, memory_.total_bytes, extent.rows())) {
  work_->clear(work_->memory(), memory_.state_bytes, {});
  if (device.kind == DeviceKind::cpu) {
    initialize(map_, seed, weights());
    round_weights({});
  } else {
    std::vector<float> first(weights().size());
    initialize(map_, seed, first);
    write(State::weights, first, {});
  }
}

std::span<float> Model::state(State which) {
  const std::int64_t offsets[] = {memory_.weights, memory_.gradients, memory_.first_moment, memory_.second_moment};
  return {floats(offsets[static_cast<std::size_t>(which)]), static_cast<std::size_t>(map_.floats())};
}

std::vector<float> Model::read(State which, const core::RunContext& context) {
  const std::span<float> from = state(which);
  std::vector<float> values(from.size());
  work_->read(values.data(), from.data(), static_cast<std::int64_t>(from.size_bytes()), context);
  return values;
}

void Model::write(State which, std::span<const float> values, const core::RunContext& context) {
  if (static_cast<std::int64_t>(values.size()) != map_.floats())
    core::Validator(kCall).refuse("values", "an array of another size",
                                  core::to_string(static_cast<std::int64_t>(values.size())),
                                  core::to_string(map_.floats()), "its layout is the parameter map");
  work_->write(state(which).data(), values.data(), static_cast<std::int64_t>(values.size_bytes()), context);
  if (which == State::weights) round_weights(context);
}

void Model::round_weights(const core::RunContext& context) {
  if (rounded() != nullptr) work_->round(rounded(), weights().data(), map_.floats(), context);
}

// The parts of a pass over one batch.
struct Model::Run : Products {
  const DeviceWork& work = *model.work_;
  cpu::Element element = c.dtype == DType::fp32 ? cpu::Element::fp32 : cpu::Element::bf16;
  std::int64_t bytes_of_one = size_of(c.dtype);
  bool accumulate = false;  // gradients
  bool recomputes = false;  // parts are then told as one

  void begins(const PassPart& part) const {
    if (model.watch_ && !recomputes) model.watch_(part);
  }
  // A pass that reads and writes so many bytes for each row and column of its arrays.
  void begins(std::string_view pass, std::int64_t columns, std::int64_t bytes) const {
    begins({.name = pass, .bytes = static_cast<double>(rows) * static_cast<double>(columns * bytes)});
  }
  void begins_forward(std::string_view name, const ProductCalls& product) const {
    begins({name, product.forward_flops, product.forward_bytes});
  }
  void begins_backward(std::string_view name, const ProductCalls& product) const {
    begins({name, product.backward_flops, product.backward_bytes});
  }

  // Rows as the attention layer counts them.
  MutableTensorView sequences(void* data) const {
    return contiguous(data, c.dtype, {model.extent_.batch, 1, model.extent_.length, c.width}, model.device());
  }

  LayerOptions attention_options_of(const Plan& plan) const {
    LayerOptions options = attention_options(c);
    options.threads = context.threads;
    options.thread_pool = context.thread_pool;
    options.cancel = context.cancel;
    options.stream = context.stream;
    options.workspace = workspace;
    options.plan = &plan;
    if (model.watch_ && !recomputes)
      options.watch = [this](const LayerPart& part) {
        begins({part.name == "row passes" ? "rotary" : part.name, part.flops, part.bytes});
      };
    return options;
  }

  // Norm `index` reads the stream; if it `adds`, it adds the branch before it first.
  void norm(std::size_t index, std::int64_t offset, bool adds) const {
    const NormMemory& m = memory.norms[index];
    begins("norm", c.width, adds ? 2 * kFp32 + 2 * bytes_of_one : kFp32 + bytes_of_one);
    work.rms_norm({.x = floats(adds ? memory.norms[index - 1].x : m.x),
                   .branch = adds ? at(memory.branch) : nullptr,
                   .sum = adds ? floats(m.x) : nullptr,
                   .weight = weight(offset),
                   .y = at(m.y),
                   .inverse = floats(m.inverse),
                   .rows = rows,
                   .columns = c.width,
                   .epsilon = static_cast<float>(c.epsilon),
                   .element = element},
                  context);
  }

  // The gradient of the stream for products, if they cannot read the one in fp32.
  std::uint16_t* rounded_stream() const {
    return c.dtype == DType::fp32 ? nullptr : static_cast<std::uint16_t*>(at(memory.dbranch));
  }

  // Adds the gradient of norm `index` to the gradient of the stream, which the last norm begins.
  void norm_backward(std::size_t index, std::int64_t offset) const {
    const NormMemory& m = memory.norms[index];
    const bool accumulates = index + 1 < memory.norms.size();
    begins(
        "norm", c.width,
        (accumulates ? 3 : 2) * kFp32 + bytes_of_one + (index > 0 && rounded_stream() != nullptr ? bytes_of_one : 0));
    work.rms_norm_backward({.x = floats(m.x),
                            .weight = weight(offset),
                            .inverse = floats(m.inverse),
                            .dy = at(memory.dy),
                            .dx = floats(memory.dstream),
                            .accumulate = accumulates,
                            .dweight = gradient(offset),
                            .rows = rows,
                            .columns = c.width,
                            .epsilon = static_cast<float>(c.epsilon),
                            .element = element,
                            .rounded = index == 0 ? nullptr : rounded_stream(),
                            .accumulate_dweight = accumulate},
                           floats(memory.partials), context);
  }

  LayerParameters attention_parameters(const BlockOffsets& block) const {
    LayerParameters parameters;
    parameters.qkv.weight = weights(block.qkv, 3 * c.width, c.width);
    parameters.out.weight = weights(block.out, c.width, c.width);
    return parameters;
  }

  void attend(std::size_t index, const BlockOffsets& block) const {
    layer_forward({.x = sequences(at(memory.norms[2 * index].y)),
                   .parameters = attention_parameters(block),
                   .y = sequences(at(memory.branch)),
                   .saved = {at(memory.blocks[index].attention_saved), model.calls_.attention_saved_bytes}},
                  attention_options_of(model.calls_.attention_forward));
  }

  void attend_backward(std::size_t index, const BlockOffsets& block) const {
    LayerBackwardTensors t{.x = sequences(at(memory.norms[2 * index].y)),
                           .parameters = attention_parameters(block),
                           .dy = sequences(at(memory.dbranch)),
                           .dx = sequences(at(memory.dy)),
                           .saved = {at(memory.blocks[index].attention_saved), model.calls_.attention_saved_bytes},
                           .accumulate = accumulate};
    t.gradients.qkv.weight = gradients(block.qkv, 3 * c.width, c.width);
    t.gradients.out.weight = gradients(block.out, c.width, c.width);
    layer_backward(t, attention_options_of(model.calls_.attention_backward.plan(accumulate)));
  }

  // To the result of SwiGLU. A block that runs again leaves that out: backward makes it together with the gradient.
  void gate(std::size_t index, const BlockOffsets& block) const {
    const BlockMemory& m = memory.blocks[index];
    begins_forward("gate_up", model.calls_.gate_up);
    multiply(model.calls_.gate_up, matrix(at(memory.norms[2 * index + 1].y), rows, c.width), block.gate_up,
             matrix(at(m.gate_up), rows, 2 * c.hidden));
    if (recomputes) return;
    begins("swiglu", c.hidden, 3 * bytes_of_one);
    work.swiglu({at(m.gate_up), at(memory.hidden), rows, c.hidden, element}, context);
  }

  // `begins`: the branch before is not in the stream yet.
  void run_block(std::size_t index, bool begins) const {
    const BlockOffsets& block = model.map_.blocks[index];
    norm(2 * index, block.attention_norm, begins);
    attend(index, block);
    norm(2 * index + 1, block.feed_forward_norm, true);
    gate(index, block);
  }

  void finish_block(std::size_t index) const {
    begins_forward("down", model.calls_.down);
    multiply(model.calls_.down, matrix(at(memory.hidden), rows, c.hidden), model.map_.blocks[index].down,
             matrix(at(memory.branch), rows, c.width));
  }

  void feed_forward_backward(std::size_t index, const BlockOffsets& block) const {
    const BlockMemory& m = memory.blocks[index];
    const Calls& calls = model.calls_;
    const MutableTensorView hidden = matrix(at(memory.hidden), rows, c.hidden),
                            dbranch = matrix(at(memory.dbranch), rows, c.width);
    begins({"down", calls.down.backward_flops / 2, calls.down_dx_bytes});
    multiply_to_dx(calls.down_dx, hidden, block.down, dbranch);
    begins("swiglu", c.hidden, 6 * bytes_of_one);
    work.swiglu_backward({at(m.gate_up), hidden.data, at(m.gate_up), rows, c.hidden, element, hidden.data}, context);
    begins({"down", calls.down.backward_flops / 2, calls.down_dweight_bytes});
    multiply_to_dweight(calls.down_dweight, hidden, block.down, dbranch, accumulate);
    begins_backward("gate_up", model.calls_.gate_up);
    multiply_backward(model.calls_.gate_up, matrix(at(memory.norms[2 * index + 1].y), rows, c.width),
                      matrix(at(memory.dy), rows, c.width), block.gate_up, matrix(at(m.gate_up), rows, 2 * c.hidden),
                      accumulate);
  }

  // A checkpointed block runs again, up to what backward reads. The arrays of the last one are still there.
  void recompute(std::size_t index) const {
    if (!c.checkpoints_activations || index + 1 == memory.blocks.size()) return;
    begins({"recompute", model.calls_.recomputed_flops(), model.calls_.recomputed_bytes()});
    Run again = *this;
    again.recomputes = true;
    again.run_block(index, false);
  }

  std::int32_t* tokens() const { return static_cast<std::int32_t*>(at(memory.tokens)); }

  // Up to the logits, then the losses; with a gradient, logits become theirs.
  void forward(const Batch& batch, double gradient_factor) const {
    const ParameterMap& map = model.map_;
    begins("embedding", c.width, 2 * kFp32);
    model.work_->send(tokens(), batch, context);
    work.gather({weight(map.embedding), tokens(), floats(memory.norms[0].x), rows, c.width}, context);
    for (std::size_t i = 0; i < map.blocks.size(); ++i) {
      run_block(i, i > 0);
      finish_block(i);
    }
    norm(memory.norms.size() - 1, map.norm, true);
    begins_forward("head", model.calls_.head);
    multiply(model.calls_.head, matrix(at(memory.norms.back().y), rows, c.width), map.head, logits());
    begins("loss", c.vocabulary, kFp32 + (gradient_factor != 0 ? bytes_of_one : 0));
    work.cross_entropy({floats(memory.logits), tokens() + rows, static_cast<cpu::RowLoss*>(at(memory.losses)), rows,
                        c.vocabulary, static_cast<float>(gradient_factor / static_cast<double>(rows)), element},
                       context);
  }

  void backward() const {
    const ParameterMap& map = model.map_;
    begins_backward("head", model.calls_.head);
    multiply_backward(model.calls_.head, matrix(at(memory.norms.back().y), rows, c.width),
                      matrix(at(memory.dy), rows, c.width), map.head, logit_gradient(), accumulate);
    norm_backward(memory.norms.size() - 1, map.norm);
    for (std::size_t i = map.blocks.size(); i-- > 0;) {
      recompute(i);
      feed_forward_backward(i, map.blocks[i]);
      norm_backward(2 * i + 1, map.blocks[i].feed_forward_norm);
      attend_backward(i, map.blocks[i]);
      norm_backward(2 * i, map.blocks[i].attention_norm);
    }
    begins({.name = "embedding",
            .bytes = static_cast<double>(c.width * kFp32) *
                     static_cast<double>(3 * rows + (accumulate ? 0 : c.vocabulary))});
    if (!accumulate)
      work.clear(gradient(map.embedding), c.vocabulary * c.width * static_cast<std::int64_t>(sizeof(float)), context);
    work.scatter({floats(memory.dstream), tokens(), gradient(map.embedding), rows, c.width, 0, c.width}, context);
  }
};

void Model::check_batch(const Batch& batch) const {
  const core::Validator validator(kCall);
  for (const auto& [name, tokens] : {std::pair{"tokens", batch.tokens}, {"targets", batch.targets}}) {
    if (static_cast<std::int64_t>(tokens.size()) != extent_.rows())
      validator.refuse(name, "a batch of another size", core::to_string(static_cast<std::int64_t>(tokens.size())),
                       core::to_string(extent_.rows()), "batch * length of the model's extent");
    for (const std::int32_t token : tokens) {
      if (token < 0 || token >= config_.vocabulary)
        validator.refuse(name, "a token outside of the vocabulary", core::to_string(std::int64_t{token}),
                         "0 to " + core::to_string(config_.vocabulary - 1), "the model has no row for it");
    }
  }
}

std::vector<double> Model::token_losses(const core::RunContext& context) const {
  std::vector<cpu::RowLoss> rows(static_cast<std::size_t>(extent_.rows()));
  work_->read(rows.data(), at(memory_.losses), static_cast<std::int64_t>(rows.size() * sizeof(cpu::RowLoss)), context);
  std::vector<double> all;
  for (const cpu::RowLoss& row : rows) all.push_back(loss_of(row));
  return all;
}

std::vector<double> Model::losses(const Batch& batch, const core::RunContext& context) {
  begin_forward(batch, 0, context);
  return token_losses(context);
}

void Model::begin_forward(const Batch& batch, double factor, const core::RunContext& context) {
  check_batch(batch);
  Run{{*this, context}}.forward(batch, factor);
}

double Model::mean_loss(const core::RunContext& context) {
  double sum = 0;
  for (const double one : token_losses(context)) sum += one;
  return sum / static_cast<double>(extent_.rows());
}

double Model::forward(const Batch& batch, double factor, const core::RunContext& context) {
  begin_forward(batch, factor, context);
  return mean_loss(context);
}

void Model::backward(const Batch& batch, const core::RunContext& context, bool accumulate) {
  check_batch(batch);
  Run run{{*this, context}};
  run.accumulate = accumulate;
  run.backward();
}

double Model::forward_backward(const Batch& batch, double factor, const core::RunContext& context, bool accumulate) {
  begin_forward(batch, factor, context);
  backward(batch, context, accumulate);
  return mean_loss(context);
}

}  // namespace fovea::model
