// What a user of the library writes: every way of packaging builds and runs this. One key: the answer is its value.
#include <fovea/attention.h>
#include <fovea/linear.h>
#include <fovea/version.h>

#include <cstdio>
#include <limits>

int main() {
  float part[] = {1.5f, -2.0f}, part_lse[] = {0.25f}, none[] = {7.0f, 7.0f};
  float none_lse[] = {-std::numeric_limits<float>::infinity()}, out[2], lse[1];
  const fovea::Sizes sizes{1, 1, 1, 2}, rows{1, 1, 1, 1};
  const fovea::PartialResult parts[] = {{fovea::contiguous(part, sizes), fovea::contiguous(part_lse, rows)},
                                        {fovea::contiguous(none, sizes), fovea::contiguous(none_lse, rows)}};
  fovea::merge_partials(parts, fovea::contiguous(out, sizes), fovea::contiguous(lse, rows));
  float x[] = {1.0f, 2.0f}, weight[] = {3.0f, 4.0f}, y[1];  // without any matrix library
  fovea::linear_forward({fovea::contiguous(x, sizes), fovea::contiguous(weight, sizes), {}, fovea::contiguous(y, rows)});
  if (y[0] != 11.0f) return 1;
  std::printf("fovea %s: %g %g %g\n", FOVEA_VERSION_STRING, out[0], out[1], lse[0]);
  try {
    fovea::merge_partials({}, fovea::contiguous(out, sizes), fovea::contiguous(lse, rows));
  } catch (const fovea::Error& error) {  // the exception type crosses the library's border
    return error.status() == fovea::Status::invalid_argument ? 0 : 1;
  }
  return 1;
}
