// fovea_cuda_check: what `fovea verify --device cuda` cannot see. Repeated launches bit by bit, refusals that need a
// GPU, tensors beyond 2^31 elements, every tile whether a problem takes it or not, rows of infinite scores.
//   fovea_cuda_check repeat COUNT | refusals COUNT | exhaustion | ptx | reference | launches | workspaces | devices |
//   tiles | tensor_maps | hopper_tiles | infinite | linear | layers | model [tiny] | large
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "cuda/runtime/device_info.h"
#include "on_device.h"

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (const std::string obstacle = fovea::cuda::unavailable(); !obstacle.empty()) {
    std::printf("%s\n", obstacle.c_str());
    return 4;
  }
  if (words.size() == 2 && words[0] == "repeat") return fovea::cuda::repeat_bitwise(std::atoi(words[1].c_str()));
  if (words.size() == 2 && words[0] == "refusals") return fovea::cuda::check_refusals(std::atoi(words[1].c_str()));
  if (words.size() == 1 && words[0] == "exhaustion") return fovea::cuda::check_exhaustion();
  if (words.size() == 1 && words[0] == "ptx") return fovea::cuda::check_ptx();
  if (words.size() == 1 && words[0] == "reference")
    return std::max(fovea::cuda::check_reference(), fovea::cuda::check_layer_reference());
  if (words.size() == 1 && words[0] == "launches") return fovea::cuda::check_launches();
  if (words.size() == 1 && words[0] == "workspaces") return fovea::cuda::check_workspaces();
  if (words.size() == 1 && words[0] == "devices") return fovea::cuda::check_devices();
  if (words.size() == 1 && words[0] == "tiles") return fovea::cuda::check_tiles();
  if (words.size() == 1 && words[0] == "tensor_maps") return fovea::cuda::check_tensor_maps();
  if (words.size() == 1 && words[0] == "hopper_tiles") return fovea::cuda::check_hopper_tiles();
  if (words.size() == 1 && words[0] == "infinite") return fovea::cuda::check_infinite_scores();
  if (words.size() == 1 && words[0] == "linear") return fovea::cuda::check_linear();
  if (words.size() == 1 && words[0] == "layers")
    return std::max(fovea::cuda::check_weight_copies(), fovea::cuda::check_layers());
  if (words.size() == 1 && words[0] == "model") return fovea::cuda::check_model(false);
  if (words.size() == 2 && words[0] == "model" && words[1] == "tiny") return fovea::cuda::check_model(true);
  if (words.size() == 1 && words[0] == "large") return fovea::cuda::check_large();
  std::printf(
      "usage: fovea_cuda_check repeat COUNT | refusals COUNT | exhaustion | ptx | reference | launches | workspaces | "
      "devices | tiles | tensor_maps | hopper_tiles | infinite | linear | layers | model [tiny] | large\n");
  return 2;
}
