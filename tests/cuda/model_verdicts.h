// What the checks of the model share: counting verdicts.
#pragma once

#include <cstdio>
#include <string>

namespace fovea::cuda {

struct Verdicts {
  int passed = 0, failed = 0;
  void judge(const std::string& what, const std::string& fault) {
    (fault.empty() ? passed : failed) += 1;
    if (!fault.empty()) std::printf("MODEL %s: %s\n", what.c_str(), fault.c_str());
  }
};

// Every pass beside products and attention alone.
void check_model_passes(Verdicts& verdicts);

}  // namespace fovea::cuda
