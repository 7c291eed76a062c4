// How a machine with several GPUs is named.
#include "program/machine/machine.h"

#include <gtest/gtest.h>

namespace fovea::program {
namespace {

TEST(MachineNames, EqualGpusAreCountedAndTheFirstIsAFact) {
  Machine machine{.cpu = "A CPU", .processors = 2, .gpus = {"H200", "H200", "A100"}};
  EXPECT_EQ(machine.gpu_text(), "A100, 2 x H200");
  EXPECT_EQ(machine.id(), "A CPU, 2 processors, 0 GiB, A100, 2 x H200");
  EXPECT_EQ(machine.facts().at("gpu"), "H200");
  machine.gpus.clear();
  EXPECT_EQ(machine.id(), "A CPU, 2 processors, 0 GiB");
  EXPECT_EQ(machine.facts().at("gpu"), "none");
}

}  // namespace
}  // namespace fovea::program
