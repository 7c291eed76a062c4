// Descriptors drawn from nonsense: each is refused with an Error or runs within its buffers; none crashes (B55).
#include <array>
#include <cmath>

#include "attention/engines.h"
#include "core/random.h"

namespace fovea {
namespace {

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

constexpr std::int64_t kBytes = 1 << 15;

// Memory between protected pages for each of a call's tensors.
struct Pool {
  std::vector<verification::HostTensor> tensors;
  Pool() {
    core::Case guarded;
    guarded.place = "guarded";
    for (int n = 0; n < 10; ++n) tensors.emplace_back(Sizes{1, 1, 1, kBytes / 4}, DType::fp32, guarded, true);
  }
  std::byte* memory(std::size_t n) const { return static_cast<std::byte*>(tensors[n].view().data); }
};

// What a caller might hand in: usually sizes that agree, sometimes anything.
struct Shape {
  std::int64_t batch, heads_q, heads_kv, len_q, len_k, dim_qk, dim_v;
};

Shape draw_shape(Draw& draw) {
  constexpr std::array<std::int64_t, 6> kCounts{1, 1, 2, 3, 0, 7};
  constexpr std::array<std::int64_t, 10> kLengths{0, 1, 2, 7, 16, 17, 33, 1, 5, 9};
  constexpr std::array<std::int64_t, 8> kDims{1, 2, 7, 8, 16, 17, 24, 0};
  Shape s{draw.of(kCounts), 0, draw.of(kCounts), draw.of(kLengths), draw.of(kLengths), draw.of(kDims), draw.of(kDims)};
  s.heads_q = s.heads_kv * draw.of(kCounts);
  return s;
}

template <class View>
View spoiled(Draw& draw, const Pool& pool, std::size_t slot, const Sizes& sizes, DType dtype) {
  constexpr std::array<std::int64_t, 10> kStrange{0, 1, 2, -1, 7, 8, 1000, std::int64_t{1} << 40, INT64_MAX, INT64_MIN};
  View view;
  view.dtype = dtype;
  view.sizes = sizes;
  view.strides = dense_strides(sizes);
  view.buffer_bytes = kBytes;
  view.data = pool.memory(slot);
  if (draw.one_in(12)) view.sizes[draw.of(std::array<std::size_t, 4>{0, 1, 2, 3})] = draw.of(kStrange);
  if (draw.one_in(10)) view.strides[draw.of(std::array<std::size_t, 4>{0, 1, 2, 3})] = draw.of(kStrange);
  if (draw.one_in(60)) view.data = nullptr;
  if (draw.one_in(60)) view.data = pool.memory(slot) + draw.of(std::array<int, 3>{1, 2, 4});
  if (view.data != nullptr && view.data != pool.memory(slot)) view.buffer_bytes -= 4;
  if (draw.one_in(60)) view.data = pool.memory(0);
  if (draw.one_in(40)) view.dtype = static_cast<DType>(draw.of(std::array<int, 4>{0, 1, 2, 9}));
  if (draw.one_in(80)) view.device.kind = static_cast<DeviceKind>(draw.of(std::array<int, 2>{1, 5}));
  return view;
}

AttentionOptions draw_options(Draw& draw, const std::string& engine) {
  AttentionOptions options{.implementation = engine};
  options.mask = static_cast<Mask>(draw.of(std::array<int, 8>{0, 0, 1, 2, 3, 2, 3, 200}));
  if (draw.one_in(8)) options.scale = draw.of(std::array<double, 5>{0.0, -1.0, 1e308, INFINITY, NAN});
  if (draw.one_in(20)) options.threads = draw.of(std::array<int, 3>{-1, 2, 5});
  if (draw.one_in(30)) options.workspace = {nullptr, draw.of(std::array<std::int64_t, 3>{-1, 0, 64})};
  return options;
}

// 1 if it ran, 0 if it was refused.
int call_forward(Draw& draw, const Pool& pool, const Shape& s, DType dtype, const AttentionOptions& options) {
  ForwardTensors t;
  t.q = spoiled<TensorView>(draw, pool, 0, {s.batch, s.heads_q, s.len_q, s.dim_qk}, dtype);
  t.k = spoiled<TensorView>(draw, pool, 1, {s.batch, s.heads_kv, s.len_k, s.dim_qk}, dtype);
  t.v = spoiled<TensorView>(draw, pool, 2, {s.batch, s.heads_kv, s.len_k, s.dim_v}, dtype);
  t.out = spoiled<MutableTensorView>(draw, pool, 3, {s.batch, s.heads_q, s.len_q, s.dim_v}, dtype);
  t.lse = spoiled<MutableTensorView>(draw, pool, 4, {s.batch, s.heads_q, s.len_q, 1}, DType::fp32);
  try {
    attention_forward(t, options);
    return 1;
  } catch (const Error& error) {
    EXPECT_NE(error.status(), Status::error) << error.what();
    return 0;
  }
}

int call_backward(Draw& draw, const Pool& pool, const Shape& s, DType dtype, const AttentionOptions& options) {
  const Sizes q{s.batch, s.heads_q, s.len_q, s.dim_qk}, k{s.batch, s.heads_kv, s.len_k, s.dim_qk},
      v{s.batch, s.heads_kv, s.len_k, s.dim_v}, out{s.batch, s.heads_q, s.len_q, s.dim_v},
      row{s.batch, s.heads_q, s.len_q, 1};
  BackwardTensors t;
  t.q = spoiled<TensorView>(draw, pool, 0, q, dtype);
  t.k = spoiled<TensorView>(draw, pool, 1, k, dtype);
  t.v = spoiled<TensorView>(draw, pool, 2, v, dtype);
  t.out = spoiled<TensorView>(draw, pool, 3, out, dtype);
  t.lse = spoiled<TensorView>(draw, pool, 4, row, DType::fp32);
  t.dout = spoiled<TensorView>(draw, pool, 5, out, dtype);
  if (draw.one_in(5)) t.delta = spoiled<TensorView>(draw, pool, 9, row, DType::fp32);
  if (!draw.one_in(5)) t.dq = spoiled<MutableTensorView>(draw, pool, 6, q, dtype);
  if (!draw.one_in(5)) t.dk = spoiled<MutableTensorView>(draw, pool, 7, k, dtype);
  if (!draw.one_in(5)) t.dv = spoiled<MutableTensorView>(draw, pool, 8, v, dtype);
  t.accumulate = draw.one_in(6);
  try {
    attention_backward(t, options);
    return 1;
  } catch (const Error& error) {
    EXPECT_NE(error.status(), Status::error) << error.what();
    return 0;
  }
}

TEST(RandomDescriptors, B55_TenThousandAreRefusedOrRun) {
  const Pool pool;
  const std::vector<std::string> names = engines();
  constexpr std::array kTypes{DType::fp32, DType::bf16, DType::fp16};
  int ran = 0;
  constexpr int kCalls = 10000;
  for (int n = 0; n < kCalls; ++n) {
    Draw draw(static_cast<std::uint64_t>(n));
    const Shape shape = draw_shape(draw);
    const AttentionOptions options = draw_options(draw, names[static_cast<std::size_t>(n) % names.size()]);
    const DType dtype = draw.of(kTypes);
    ran +=
        n % 2 == 0 ? call_forward(draw, pool, shape, dtype, options) : call_backward(draw, pool, shape, dtype, options);
  }
  EXPECT_GT(ran, kCalls / 20);  // both verdicts are met often
  EXPECT_LT(ran, kCalls * 19 / 20);
}

// Every implementation gives the same verdict on a problem's facts, or names its own limits (B56).
TEST(RandomDescriptors, B55_EveryCombinationOfSmallSizes) {
  constexpr std::int64_t kSizes[] = {0, 1, 2, 7};
  for (const std::int64_t batch : kSizes) {
    for (const std::int64_t heads_q : kSizes) {
      for (const std::int64_t heads_kv : kSizes) {
        for (const std::int64_t len : kSizes) {
          for (const std::int64_t dim : kSizes) {
            AttentionProblem p{.batch = batch, .heads_q = heads_q, .heads_kv = heads_kv, .len_q = len, .len_k = 3};
            p.dim_qk = dim;
            p.dim_v = 7 - dim;
            try {
              explain(p);
              EXPECT_TRUE(dim > 0 && dim < 7 && (heads_q == 0 || (heads_kv > 0 && heads_q % heads_kv == 0)));
            } catch (const Error& error) {
              EXPECT_EQ(error.status(), Status::invalid_argument) << error.what();
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace fovea
