// Gradients: forward keeps the log-sum-exp, backward takes it. One entry of dq is compared with a finite difference.
#include <fovea/attention.h>

#include <cmath>
#include <cstdio>
#include <vector>

int main() {
  const fovea::Sizes sizes{1, 2, 16, 8}, rows{1, 2, 16, 1};
  std::vector<float> q(2 * 16 * 8), k(q.size()), v(q.size()), dout(q.size(), 1.0f), lse(2 * 16);
  std::vector<float> out(q.size()), dq(q.size()), dk(q.size()), dv(q.size());
  for (std::size_t i = 0; i < q.size(); ++i) {
    q[i] = std::sin(static_cast<float>(i));
    k[i] = std::cos(static_cast<float>(3 * i));
    v[i] = 10 * std::sin(static_cast<float>(7 * i));
  }
  const auto tensor = [&sizes](std::vector<float>& data) { return fovea::contiguous(data.data(), sizes); };
  const auto forward = [&] {  // returns the sum of all outputs, whose gradient is dout = 1
    fovea::attention_forward({.q = tensor(q),
                              .k = tensor(k),
                              .v = tensor(v),
                              .out = tensor(out),
                              .lse = fovea::contiguous(lse.data(), rows)});
    double sum = 0;
    for (const float value : out) sum += value;
    return sum;
  };
  forward();
  fovea::attention_backward({.q = tensor(q),
                             .k = tensor(k),
                             .v = tensor(v),
                             .out = tensor(out),
                             .lse = fovea::contiguous(lse.data(), rows),
                             .dout = tensor(dout),
                             .dq = tensor(dq),
                             .dk = tensor(dk),
                             .dv = tensor(dv)});
  const float step = 0.01f, here = q[0];
  q[0] = here + step;
  const double above = forward();
  q[0] = here - step;
  const double below = forward();
  const double difference = (above - below) / (2 * static_cast<double>(step));
  const bool agree = std::abs(dq[0] - difference) <= 1e-2;
  std::printf("dq[0] = %.2f, by finite difference %.2f: they %s\n", static_cast<double>(dq[0]), difference,
              agree ? "agree" : "differ");
  return agree ? 0 : 1;
}
