// A device that is not there: on any machine.
#include "cuda/runtime/device_info.h"

#include <gtest/gtest.h>

#include <string>

#include "fovea/error.h"

namespace fovea::cuda {
namespace {

// Attention, Linear, layers and the program ask alike, so the refusal blames none of them.
TEST(DeviceInfo, ADeviceThatIsNotThereIsRefusedInNobodysName) {
  for (const int device : {-1, kMaxDevices}) {
    try {
      device_info(device);
      FAIL() << device;
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::invalid_argument);
      EXPECT_EQ(error.what(), "fovea: invalid device: no such device\n  got:    cuda:" + std::to_string(device) +
                                  "\n  wanted: " + std::to_string(device_count()) + " devices, counted from 0");
    }
  }
}

}  // namespace
}  // namespace fovea::cuda
