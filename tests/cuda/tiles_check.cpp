// Every compiled tile against the reference: unsplit, with splits through memory, with clusters; also tiles that the
// plans of this GPU never choose.
#include <cstdio>
#include <string>
#include <vector>

#include "device_call.h"
#include "every_tile.h"
#include "fovea/error.h"
#include "on_device.h"
#include "verification/attention/case.h"
#include "verification/attention/check.h"

namespace fovea::cuda {
namespace {

using any::Kernel;

// Rows of whole chunks and lengths of no whole tile; neither, with more than half of the columns filled; whole chunks
// of keys or of values only.
std::vector<verification::AttentionCase> cases_of(const TileRun& tile) {
  const int columns = tile.choice.kernel->tile.dim;
  const std::string dim = std::to_string(columns), less = std::to_string(columns * 3 / 4 + 1),
                    odd = std::to_string(columns - 1);
  const std::string common = "pass=bwd b=1 hq=2 hkv=1 dtype=" + tile.dtype;
  return {verification::attention_case(common + " lq=150 lk=301 mask=none d=" + dim),
          verification::attention_case(common + " lq=201 lk=233 mask=causal_bottom_right d=" + less),
          verification::attention_case(common + " lq=233 lk=301 mask=window_bottom_right left=70 right=9 d=" + dim),
          verification::attention_case(common + " lq=70 lk=201 mask=none d=" + dim + " dv=" + odd),
          verification::attention_case(common + " lq=70 lk=201 mask=none d=" + odd + " dv=" + dim)};
}

verification::Verdict verdict_on_forward(const TileRun& tile, const verification::AttentionCase& c) {
  DeviceCall call(c);
  const AttentionProblem problem = problem_of(tile.kernel, c.problem);
  run_forward(tile, problem, call.forward);
  return verification::check_forward(problem, call.fetch().forward(), c.seed);
}

// Of the kernel's gradients.
verification::Verdict verdict_on_backward(const TileRun& tile, const verification::AttentionCase& c) {
  DeviceCall call(c);
  attention_forward(call.forward, call.options);
  const AttentionProblem problem = problem_of(tile.kernel, c.problem);
  run_backward(tile, problem, call.backward);
  return verification::check_backward(problem, gradients_of(tile.kernel, call.fetch().backward()), c.seed);
}

// Empty, or what is wrong.
std::string wrong_answer(const TileRun& tile, const verification::AttentionCase& c) {
  try {
    const verification::Verdict verdict =
        tile.kernel == Kernel::forward ? verdict_on_forward(tile, c) : verdict_on_backward(tile, c);
    return verdict.ok ? "" : "wrong: " + verdict.reason();
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

int check_tiles() {
  int passed = 0, failed = 0;
  for (const TileRun& tile : every_tile()) {
    for (const verification::AttentionCase& c : cases_of(tile)) {
      const std::string wrong = wrong_answer(tile, c);
      ++(wrong.empty() ? passed : failed);
      if (!wrong.empty()) std::printf("TILE %s: %s\n", text_of(tile, c).c_str(), wrong.c_str());
    }
  }
  std::printf("tiles: %d passed, %d failed\n", passed, failed);
  return failed == 0 ? 0 : 1;
}

}  // namespace fovea::cuda
