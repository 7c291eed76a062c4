// Descriptors drawn from nonsense: what callers might hand in, the same numbers for every device.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <functional>

#include "core/random.h"
#include "fovea/attention.h"

namespace fovea {

inline constexpr std::int64_t kDescriptorBytes = 1 << 15;
inline constexpr std::size_t kDescriptorSlots = 10;

// Where the tensors of a descriptor lie: kDescriptorBytes a slot, aligned to 256 bytes.
struct DescriptorMemory {
  Device device;
  std::function<std::byte*(std::size_t)> slot;
};

class Draw {
 public:
  explicit Draw(std::uint64_t n) : n_(n) {}
  template <class T, std::size_t N>
  T of(const std::array<T, N>& values) {
    return values[core::philox(99, n_, position_++)[0] % N];
  }
  bool one_in(std::uint32_t count) { return core::philox(99, n_, position_++)[1] % count == 0; }

 private:
  std::uint64_t n_, position_ = 0;
};

// What a caller might hand in: usually sizes that agree, sometimes anything.
struct DescriptorShape {
  std::int64_t batch, heads_q, heads_kv, len_q, len_k, dim_qk, dim_v;
};

inline DescriptorShape draw_shape(Draw& draw) {
  constexpr std::array<std::int64_t, 6> kCounts{1, 1, 2, 3, 0, 7};
  constexpr std::array<std::int64_t, 10> kLengths{0, 1, 2, 7, 16, 17, 33, 1, 5, 9};
  constexpr std::array<std::int64_t, 8> kDims{1, 2, 7, 8, 16, 17, 24, 0};
  DescriptorShape s{draw.of(kCounts), 0, draw.of(kCounts), draw.of(kLengths), draw.of(kLengths), draw.of(kDims),
                    draw.of(kDims)};
  s.heads_q = s.heads_kv * draw.of(kCounts);
  return s;
}

template <class View>
View spoiled(Draw& draw, const DescriptorMemory& memory, std::size_t slot, const Sizes& sizes, DType dtype) {
  constexpr std::array<std::int64_t, 10> kStrange{0, 1, 2, -1, 7, 8, 1000, std::int64_t{1} << 40, INT64_MAX, INT64_MIN};
  View view;
  view.dtype = dtype;
  view.sizes = sizes;
  view.strides = dense_strides(sizes);
  view.buffer_bytes = kDescriptorBytes;
  view.data = memory.slot(slot);
  view.device = memory.device;
  if (draw.one_in(12)) view.sizes[draw.of(std::array<std::size_t, 4>{0, 1, 2, 3})] = draw.of(kStrange);
  if (draw.one_in(10)) view.strides[draw.of(std::array<std::size_t, 4>{0, 1, 2, 3})] = draw.of(kStrange);
  if (draw.one_in(60)) view.data = nullptr;
  if (draw.one_in(60)) view.data = memory.slot(slot) + draw.of(std::array<int, 3>{1, 2, 4});
  if (view.data != nullptr && view.data != memory.slot(slot)) view.buffer_bytes -= 4;
  if (draw.one_in(60)) view.data = memory.slot(0);
  if (draw.one_in(40)) view.dtype = static_cast<DType>(draw.of(std::array<int, 4>{0, 1, 2, 9}));
  const DeviceKind other = memory.device.kind == DeviceKind::cpu ? DeviceKind::cuda : DeviceKind::cpu;
  if (draw.one_in(80)) view.device.kind = draw.of(std::array<DeviceKind, 2>{other, static_cast<DeviceKind>(5)});
  return view;
}

inline Mask draw_mask(Draw& draw) {
  constexpr std::int64_t kAll = Mask::kUnlimited;
  if (draw.one_in(4)) return Mask::none;
  const auto alignment = static_cast<Mask::Alignment>(draw.of(std::array<int, 8>{0, 1, 2, 3, 2, 3, 2, 200}));
  if (draw.one_in(2)) return {alignment, kAll, 0};
  return {alignment, draw.of(std::array<std::int64_t, 8>{0, 1, 2, 3, 7, kAll, Mask::kLargestBound, -1}),
          draw.of(std::array<std::int64_t, 8>{0, 0, 0, 1, 2, 5, kAll, INT64_MIN})};
}

inline AttentionOptions draw_options(Draw& draw) {
  AttentionOptions options;
  options.mask = draw_mask(draw);
  if (draw.one_in(8)) options.scale = draw.of(std::array<double, 5>{0.0, -1.0, 1e308, INFINITY, NAN});
  if (draw.one_in(20)) options.threads = draw.of(std::array<int, 3>{-1, 2, 5});
  if (draw.one_in(30)) options.workspace = {nullptr, draw.of(std::array<std::int64_t, 3>{-1, 0, 64})};
  return options;
}

struct Descriptor {
  bool is_forward = true;
  ForwardTensors forward;
  BackwardTensors backward;
  AttentionOptions options;
  void call() const { is_forward ? attention_forward(forward, options) : attention_backward(backward, options); }
};

inline ForwardTensors draw_forward(Draw& draw, const DescriptorMemory& memory, const DescriptorShape& s, DType dtype) {
  ForwardTensors t;
  t.q = spoiled<TensorView>(draw, memory, 0, {s.batch, s.heads_q, s.len_q, s.dim_qk}, dtype);
  t.k = spoiled<TensorView>(draw, memory, 1, {s.batch, s.heads_kv, s.len_k, s.dim_qk}, dtype);
  t.v = spoiled<TensorView>(draw, memory, 2, {s.batch, s.heads_kv, s.len_k, s.dim_v}, dtype);
  t.out = spoiled<MutableTensorView>(draw, memory, 3, {s.batch, s.heads_q, s.len_q, s.dim_v}, dtype);
  t.lse = spoiled<MutableTensorView>(draw, memory, 4, {s.batch, s.heads_q, s.len_q, 1}, DType::fp32);
  return t;
}

inline BackwardTensors draw_backward(Draw& draw, const DescriptorMemory& memory, const DescriptorShape& s,
                                     DType dtype) {
  const Sizes q{s.batch, s.heads_q, s.len_q, s.dim_qk}, k{s.batch, s.heads_kv, s.len_k, s.dim_qk},
      v{s.batch, s.heads_kv, s.len_k, s.dim_v}, out{s.batch, s.heads_q, s.len_q, s.dim_v},
      row{s.batch, s.heads_q, s.len_q, 1};
  BackwardTensors t;
  t.q = spoiled<TensorView>(draw, memory, 0, q, dtype);
  t.k = spoiled<TensorView>(draw, memory, 1, k, dtype);
  t.v = spoiled<TensorView>(draw, memory, 2, v, dtype);
  t.out = spoiled<TensorView>(draw, memory, 3, out, dtype);
  t.lse = spoiled<TensorView>(draw, memory, 4, row, DType::fp32);
  t.dout = spoiled<TensorView>(draw, memory, 5, out, dtype);
  if (draw.one_in(5)) t.delta = spoiled<TensorView>(draw, memory, 9, row, DType::fp32);
  if (!draw.one_in(5)) t.dq = spoiled<MutableTensorView>(draw, memory, 6, q, dtype);
  if (!draw.one_in(5)) t.dk = spoiled<MutableTensorView>(draw, memory, 7, k, dtype);
  if (!draw.one_in(5)) t.dv = spoiled<MutableTensorView>(draw, memory, 8, v, dtype);
  t.accumulate = draw.one_in(6);
  return t;
}

// The n-th: even ones are forward, odd ones backward. The caller names the implementation.
inline Descriptor draw_descriptor(int n, const DescriptorMemory& memory) {
  Draw draw(static_cast<std::uint64_t>(n));
  Descriptor d{.is_forward = n % 2 == 0};
  const DescriptorShape shape = draw_shape(draw);
  d.options = draw_options(draw);
  const DType dtype = draw.of(std::array{DType::fp32, DType::bf16, DType::fp16});
  if (d.is_forward) d.forward = draw_forward(draw, memory, shape, dtype);
  if (!d.is_forward) d.backward = draw_backward(draw, memory, shape, dtype);
  return d;
}

}  // namespace fovea
