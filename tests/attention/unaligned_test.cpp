// describe() tells which tensors on a GPU the copies of whole tiles cannot read.
#include <gtest/gtest.h>

#include "fovea/attention.h"

namespace fovea {
namespace {

// Views are never read here, so any address will do.
struct DeviceCall {
  ForwardTensors t;

  explicit DeviceCall(DType dtype = DType::bf16, DeviceKind kind = DeviceKind::cuda) {
    const auto view = [&](std::uintptr_t address) {
      MutableTensorView one{.data = reinterpret_cast<void*>(address), .dtype = dtype, .sizes = {2, 4, 8, 16}};
      one.strides = {8 * 4 * 16, 16, 4 * 16, 1};
      one.device = {kind, 0};
      return one;
    };
    t.q = view(1 << 20), t.k = view(2 << 20), t.v = view(3 << 20), t.out = view(4 << 20);
  }
  bool unaligned() const { return describe(t).unaligned; }
};

TEST(Unaligned, AlignedTensorsAreNot) {
  EXPECT_FALSE(DeviceCall().unaligned());
  DeviceCall results;  // the kernels store results of any alignment
  results.t.out.data = static_cast<std::byte*>(results.t.out.data) + 2;
  EXPECT_FALSE(results.unaligned());
}

TEST(Unaligned, RowsThatStartBetweenSixteenBytesAre) {
  DeviceCall shifted;
  shifted.t.k.data = static_cast<const std::byte*>(shifted.t.k.data) + 2;
  EXPECT_TRUE(shifted.unaligned());
  DeviceCall gaps;
  gaps.t.v.strides = {8 * 68, 17, 68, 1};
  EXPECT_TRUE(gaps.unaligned());
}

TEST(Unaligned, StridesThatNoTensorMapHoldsAre) {
  DeviceCall broadcast;
  broadcast.t.k.strides[0] = 0;
  EXPECT_TRUE(broadcast.unaligned());
  DeviceCall far;
  far.t.q.data = reinterpret_cast<const void*>(std::uintptr_t{5} << 20);  // behind out, which it must not overlap
  far.t.q.strides[0] = std::int64_t{1} << 39;
  EXPECT_TRUE(far.unaligned());
  far.t.q.strides[0] = (std::int64_t{1} << 39) - 8;
  EXPECT_FALSE(far.unaligned());
}

TEST(Unaligned, StridesOfSingleEntriesMeanNothing) {
  DeviceCall call;
  for (TensorView* view : {&call.t.q, &call.t.k, &call.t.v}) view->sizes[0] = 1, view->strides[0] = 3;
  call.t.out.sizes[0] = 1;
  EXPECT_FALSE(call.unaligned());
}

TEST(Unaligned, ItIsNoPropertyOfOtherProblems) {
  for (DeviceCall call : {DeviceCall(DType::fp32), DeviceCall(DType::bf16, DeviceKind::cpu)}) {
    call.t.k.strides[0] = 0;
    EXPECT_FALSE(call.unaligned());
  }
}

}  // namespace
}  // namespace fovea
