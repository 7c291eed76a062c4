// The probes of the engines, under names that records use.
#include "program/ceilings.h"

namespace fovea::program {

double probe_flops(DeviceKind, DType, int) { return 0; }
double probe_product(DeviceKind, DType, int) { return 0; }
std::map<std::string, double> probe_all(int) { return {}; }

}  // namespace fovea::program
