// Causal attention of 8 query heads over 2 key heads, in the layout (batch, heads, length, dim).
#include <fovea/attention.h>

#include <cstdio>
#include <vector>

int main() {
  const fovea::Sizes queries{1, 8, 1024, 64}, keys{1, 2, 1024, 64};
  std::vector<float> q(8 * 1024 * 64, 0.5f), k(2 * 1024 * 64, 0.5f), v(k.size()), out(q.size());
  for (std::size_t i = 0; i < v.size(); ++i) v[i] = static_cast<float>(i / 64 % 1024);  // every value is its position
  fovea::attention_forward({.q = fovea::contiguous(q.data(), queries),
                            .k = fovea::contiguous(k.data(), keys),
                            .v = fovea::contiguous(v.data(), keys),
                            .out = fovea::contiguous(out.data(), queries)},
                           {.mask = fovea::Mask::causal});
  std::printf("the last query sees the mean of 0..1023: %.1f\n", out.back());  // equal scores, so equal probabilities
}
