// Strides, alignment, placement: what a kernel may not assume of memory, on every engine.
#include <sys/mman.h>

#include <cstring>

#include "attention/engines.h"

namespace fovea {
namespace {

TEST(Layout, EveryPlacementAndLayout) {
  for (const char* place :
       {"contiguous", "strided", "broadcast seed=0", "broadcast seed=1", "guarded", "guarded_front"}) {
    for (const char* layout : {"bhld", "blhd"}) {
      for (const char* dtype : {"fp32", "bf16", "fp16"}) {
        for (const char* shape : {"lq=33 lk=65 d=24", "lq=1 lk=97 d=64 dv=40", "lq=70 lk=70 d=7 mask=causal"}) {
          expect_right_everywhere("pass=e2e b=2 hq=4 hkv=2 " + std::string(shape) + " layout=" + layout +
                                  " dtype=" + dtype + " place=" + place);
        }
      }
    }
  }
}

// The same values in memory of any shape give the same bits.
TEST(Layout, StridesDoNotChangeABit) {
  for (const char* length : {"33", "65", "97"}) {
    for (const char* dtype : {"fp32", "bf16", "fp16"}) {
      const std::string line = "pass=e2e b=2 hq=4 hkv=2 lq=40 d=40 dtype=" + std::string(dtype) + " lk=" + length;
      for (const std::string& engine : engines()) {
        if (!takes(engine, backward_of(verification::attention_case(line).problem))) continue;
        const auto straight = solved_by(engine, line);
        for (const char* other : {" place=strided", " layout=blhd", " place=guarded layout=blhd"}) {
          SCOPED_TRACE(engine + ": " + line + other);
          const auto placed = solved_by(engine, line + other);
          EXPECT_EQ(values_of(straight.out.view()), values_of(placed.out.view()));
          EXPECT_EQ(values_of(straight.dq.view()), values_of(placed.dq.view()));
          EXPECT_EQ(values_of(straight.dk.view()), values_of(placed.dk.view()));
          EXPECT_EQ(values_of(straight.dv.view()), values_of(placed.dv.view()));
        }
      }
    }
  }
}

TEST(Layout, BroadcastKeysEqualTheirCopies) {
  for (const char* length : {"33", "65", "97"}) {
    const verification::AttentionCase c =
        verification::attention_case("b=2 hq=4 hkv=4 lq=20 d=24 place=broadcast seed=1 lk=" + std::string(length));
    verification::AttentionCase copied = c;
    copied.place = "contiguous";
    for (const std::string& engine : engines_of_all_types()) {
      SCOPED_TRACE(engine + " " + length);
      const auto broadcast = solved_by(engine, c);
      auto dense = verification::make_tensors(copied);
      for (const auto& [from, to] :
           {std::pair{&broadcast.q, &dense.q}, {&broadcast.k, &dense.k}, {&broadcast.v, &dense.v}}) {
        for (std::int64_t b = 0; b < 2; ++b) {
          for (std::int64_t h = 0; h < 4; ++h) {
            for (std::int64_t i = 0; i < to->view().sizes[2]; ++i) {
              for (std::int64_t n = 0; n < 24; ++n) set(to->view(), b, h, i, n, at(from->view(), b, h, i, n));
            }
          }
        }
      }
      attention_forward(dense.forward(), options_on(engine, copied));
      EXPECT_EQ(values_of(broadcast.out.view()), values_of(dense.out.view()));
    }
  }
}

// Memory reserved, not committed: views may spread far without costing anything.
class Reserved {
 public:
  explicit Reserved(std::size_t bytes)
      : bytes_(bytes),
        data_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {}
  ~Reserved() {
    if (mapped()) munmap(data_, bytes_);
  }
  Reserved(const Reserved&) = delete;
  bool mapped() const { return data_ != MAP_FAILED; }
  void* data() const { return data_; }

 private:
  std::size_t bytes_;
  void* data_;
};

TEST(Layout, BatchStridesBeyondThirtyTwoBits) {
  constexpr std::int64_t kStride = std::int64_t{1} << 32;  // elements
  const verification::AttentionCase c = verification::attention_case("pass=e2e b=3 hq=2 hkv=1 lq=5 lk=9 d=8");
  const Reserved far_k(3 * kStride * 4), far_out(3 * kStride * 4), far_dk(3 * kStride * 4);
  if (!far_k.mapped() || !far_out.mapped() || !far_dk.mapped()) GTEST_SKIP() << "no address space to reserve";
  for (const std::string& engine : engines()) {
    if (!takes(engine, backward_of(c.problem))) continue;
    SCOPED_TRACE(engine);
    const auto near = solved_by(engine, c);
    const auto spread = [](MutableTensorView view, const Reserved& memory) {
      view.data = memory.data();
      view.strides[0] = kStride;
      view.buffer_bytes = -1;
      return view;
    };
    const MutableTensorView k = spread(near.k.view(), far_k), out = spread(near.out.view(), far_out),
                            dk = spread(near.dk.view(), far_dk);
    for (std::int64_t b = 0; b < 3; ++b) {
      for (std::int64_t j = 0; j < 9; ++j) {
        for (std::int64_t n = 0; n < 8; ++n) set(k, b, 0, j, n, at(near.k.view(), b, 0, j, n));
      }
    }
    const auto lse = verification::make_tensors(c);
    attention_forward({.q = near.q.view(), .k = k, .v = near.v.view(), .out = out, .lse = lse.lse.view()},
                      options_on(engine, c));
    EXPECT_EQ(values_of(out), values_of(near.out.view()));
    BackwardTensors backward = near.backward();
    backward.k = k;
    backward.out = out;
    backward.dq = lse.dq.view();
    backward.dk = dk;
    backward.dv = lse.dv.view();
    attention_backward(backward, options_on(engine, c));
    EXPECT_EQ(values_of(dk), values_of(near.dk.view()));
    EXPECT_EQ(values_of(lse.dq.view()), values_of(near.dq.view()));
  }
}

TEST(Layout, StridesOfSizeOneDimensionsAreIgnored) {
  for (const std::int64_t strange : {std::int64_t{0}, std::int64_t{3}, std::int64_t{1} << 40, std::int64_t{-7}}) {
    for (const char* shape : {"b=1 hq=1 lq=1 lk=1 d=1", "b=1 hq=1 lq=9 lk=17 d=8", "b=1 hq=4 hkv=1 lq=1 lk=30 d=8"}) {
      const verification::AttentionCase c = verification::attention_case("pass=e2e " + std::string(shape));
      for (const std::string& engine : engines()) {
        if (!takes(engine, backward_of(c.problem))) continue;
        SCOPED_TRACE(engine + " " + shape + " stride " + std::to_string(strange));
        const auto straight = solved_by(engine, c), other = verification::make_tensors(c);
        const auto change = [strange](auto& view) {
          for (std::size_t i = 0; i < 4; ++i) {
            if (view.sizes[i] == 1) view.strides[i] = strange;
          }
          view.buffer_bytes = -1;
        };
        ForwardTensors forward = other.forward();
        BackwardTensors backward = other.backward();
        for (auto* view : {&forward.q, &forward.k, &forward.v, &backward.q, &backward.k, &backward.v, &backward.dout,
                           &backward.out, &backward.lse})
          change(*view);
        for (auto* view : {&forward.out, &forward.lse, &backward.dq, &backward.dk, &backward.dv}) change(*view);
        attention_forward(forward, options_on(engine, c));
        attention_backward(backward, options_on(engine, c));
        EXPECT_EQ(values_of(straight.out.view()), values_of(other.out.view()));
        EXPECT_EQ(values_of(straight.dk.view()), values_of(other.dk.view()));
      }
    }
  }
}

// The gradient of a sum is one number behind every element: strides 0 over batch, heads and rows.
TEST(Layout, BroadcastOutputGradients) {
  const verification::AttentionCase c = verification::attention_case("pass=e2e b=2 hq=2 lq=21 lk=30 d=16 data=ones");
  for (const std::string& engine : engines()) {
    if (!takes(engine, backward_of(c.problem))) continue;
    SCOPED_TRACE(engine);
    auto tensors = verification::make_tensors(c), dense = verification::make_tensors(c);
    attention_forward(tensors.forward(), options_on(engine, c));
    std::vector<float> ones(16, 1.0f);
    BackwardTensors backward = tensors.backward();
    backward.dout.data = ones.data();
    backward.dout.strides = {0, 0, 0, 1};
    backward.dout.buffer_bytes = 64;
    attention_backward(backward, options_on(engine, c));
    const auto verdict = verification::check_backward(backward_of(c.problem), backward, 1);
    EXPECT_TRUE(verdict.ok) << verdict.reason();
  }
}

// q, k and v, and their gradients, interleaved in one allocation as a fused projection writes them.
TEST(Layout, PackedQueriesKeysAndValues) {
  const verification::AttentionCase c = verification::attention_case("pass=e2e b=2 hq=3 lq=19 d=16 layout=blhd");
  const Sizes sizes{2, 3, 19, 16}, strides{19 * 9 * 16, 16, 9 * 16, 1};
  for (const std::string& engine : engines()) {
    if (!takes(engine, backward_of(c.problem))) continue;
    SCOPED_TRACE(engine);
    const auto apart = solved_by(engine, c);
    std::vector<float> packed(2 * 19 * 9 * 16), gradients(packed.size());
    const auto slice = [&](std::vector<float>& memory, std::size_t which) {
      return MutableTensorView{.data = memory.data() + which * 48, .sizes = sizes, .strides = strides};
    };
    const std::array sources{&apart.q, &apart.k, &apart.v};
    for (std::size_t which = 0; which < 3; ++which) {
      for (std::int64_t n = 0; n < 2 * 3 * 19 * 16; ++n) {
        const std::int64_t b = n / 912, h = n / 304 % 3, i = n / 16 % 19, column = n % 16;
        set(slice(packed, which), b, h, i, column, at(sources[which]->view(), b, h, i, column));
      }
    }
    BackwardTensors backward = apart.backward();
    backward.q = slice(packed, 0);
    backward.k = slice(packed, 1);
    backward.v = slice(packed, 2);
    backward.dq = slice(gradients, 0);
    backward.dk = slice(gradients, 1);
    backward.dv = slice(gradients, 2);
    attention_backward(backward, options_on(engine, c));
    EXPECT_EQ(values_of(backward.dq), values_of(apart.dq.view()));
    EXPECT_EQ(values_of(backward.dk), values_of(apart.dk.view()));
    EXPECT_EQ(values_of(backward.dv), values_of(apart.dv.view()));
  }
}

// out, dout and the gradients each with strides of their own.
TEST(Layout, EveryTensorWithItsOwnLayout) {
  const verification::AttentionCase c = verification::attention_case("pass=e2e b=2 hq=4 hkv=2 lq=37 lk=50 d=16 dv=24");
  verification::AttentionCase turned = c, loose = c;
  turned.layout = verification::Layout::blhd;
  loose.place = "strided";
  for (const std::string& engine : engines()) {
    if (!takes(engine, backward_of(c.problem))) continue;
    SCOPED_TRACE(engine);
    const auto same = solved_by(engine, c);
    const std::array pools{verification::make_tensors(c), verification::make_tensors(turned),
                           verification::make_tensors(loose)};
    for (std::size_t n = 0; n < 9; ++n) {
      const auto &a = pools[n % 3], &b = pools[(n / 3 + 1) % 3], &o = pools[(n + n / 3) % 3];
      const ForwardTensors forward{
          .q = a.q.view(), .k = b.k.view(), .v = o.v.view(), .out = b.out.view(), .lse = o.lse.view()};
      attention_forward(forward, options_on(engine, c));
      BackwardTensors backward{
          .q = b.q.view(), .k = o.k.view(), .v = a.v.view(), .out = b.out.view(), .lse = o.lse.view()};
      backward.dout = a.dout.view();
      backward.dq = o.dq.view();
      backward.dk = a.dk.view();
      backward.dv = b.dv.view();
      attention_backward(backward, options_on(engine, c));
      EXPECT_EQ(values_of(b.out.view()), values_of(same.out.view()));
      EXPECT_EQ(values_of(o.dq.view()), values_of(same.dq.view()));
      EXPECT_EQ(values_of(a.dk.view()), values_of(same.dk.view()));
      EXPECT_EQ(values_of(b.dv.view()), values_of(same.dv.view()));
    }
  }
}

}  // namespace
}  // namespace fovea
