// Descriptors drawn from nonsense: each is refused with an Error or runs within its buffers; none crashes.
#include "attention/random_descriptors.h"

#include "attention/engines.h"

namespace fovea {
namespace {

// Memory between protected pages for each of a call's tensors.
struct Pool {
  std::vector<verification::HostTensor> tensors;
  Pool() {
    for (int n = 0; n < static_cast<int>(kDescriptorSlots); ++n)
      tensors.push_back(verification::host_buffer(kDescriptorBytes, true));
  }
  std::byte* memory(std::size_t n) const { return static_cast<std::byte*>(tensors[n].view().data); }
};

// 1 if it ran, 0 if it was refused.
int runs(const Descriptor& descriptor) {
  try {
    descriptor.call();
    return 1;
  } catch (const Error& error) {
    EXPECT_NE(error.status(), Status::error) << error.what();
    return 0;
  }
}

TEST(RandomDescriptors, TenThousandAreRefusedOrRun) {
  const Pool pool;
  const DescriptorMemory memory{{}, [&pool](std::size_t slot) { return pool.memory(slot); }};
  const std::vector<std::string> names = engines();
  int ran = 0;
  constexpr int kCalls = 10000;
  for (int n = 0; n < kCalls; ++n) {
    Descriptor descriptor = draw_descriptor(n, memory);
    descriptor.options.implementation = names[static_cast<std::size_t>(n) % names.size()];
    ran += runs(descriptor);
  }
  EXPECT_GT(ran, kCalls / 20);  // both verdicts are met often
  EXPECT_LT(ran, kCalls * 19 / 20);
}

// Every implementation gives the same verdict on a problem's facts, or names its own limits.
TEST(RandomDescriptors, EveryCombinationOfSmallSizes) {
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
