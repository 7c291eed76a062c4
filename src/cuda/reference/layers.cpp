// Uploads matrices, enqueues the steps of one head after another, downloads the results.
#include "cuda/reference/layers.h"

#include "cuda/reference/device_matrix.h"
#include "cuda/reference/pairs.h"
#include "cuda/reference/products.h"

namespace fovea::cuda::reference {
namespace {

template <class Number>
MatrixMemory<Number> uploaded(const HostMatrix<Number>& m) {
  return {m.rows, m.columns, m.values};
}

template <class Number>
DeviceMatrix<Number> view_of(const MatrixMemory<Number>& memory, const HostMatrix<Number>& m) {
  return m.is_transposed ? memory.view().transposed() : memory.view();
}

// Calls write(a, b, added, result) with all of them on the device.
template <class Number, class B, class Write>
void compute_product(const HostMatrix<Number>& a, const HostMatrix<B>& b, const HostMatrix<Number>& added,
                     Number* result, const Write& write) {
  const MatrixMemory<Number> memory_a = uploaded(a), memory_added = uploaded(added);
  const MatrixMemory<B> memory_b = uploaded(b);
  const DeviceMatrix<Number> device_a = view_of(memory_a, a);
  const DeviceMatrix<B> device_b = view_of(memory_b, b);
  const MatrixMemory<Number> sums(device_a.rows, device_b.columns);
  write(device_a, device_b, memory_added.view(), sums.view());
  sums.download(result);
}

// The heads on the device, and the pairs of one of them.
template <class Number>
struct DeviceHeads {
  DeviceHeads(const AttentionProblem& p, const HostHeads<Number>& heads)
      : q(p.batch * p.len_q, p.heads_q * p.dim_qk, heads.q),
        k(p.batch * p.len_k, p.heads_kv * p.dim_qk, heads.k),
        v(p.batch * p.len_k, p.heads_kv * p.dim_v, heads.v),
        scores(p.len_q, p.len_k) {}

  MatrixMemory<Number> q, k, v, scores;
};

// What backward needs besides.
template <class Number>
struct DeviceGradients {
  DeviceGradients(const AttentionProblem& p, const HostHeads<Number>& heads)
      : dout(p.batch * p.len_q, p.heads_q * p.dim_v, heads.dout),
        dp(p.len_q, p.len_k),
        dq(p.batch * p.len_q, p.heads_q * p.dim_qk),
        dk(p.batch * p.len_k, p.heads_kv * p.dim_qk),
        dv(p.batch * p.len_k, p.heads_kv * p.dim_v) {
    for (MatrixMemory<Number>* const one : {&dq, &dk, &dv}) one->zero();
  }
  void download(const HostGradients<Number>& host) const {
    dq.download(host.dq);
    dk.download(host.dk);
    dv.download(host.dv);
  }

  MatrixMemory<Number> dout, dp, dq, dk, dv;
};

// Calls work(batch, head, key head) for every query head. The heads of a group follow one another.
template <class Work>
void for_each_head(const AttentionProblem& p, const Work& work) {
  for (std::int64_t b = 0; b < p.batch; ++b) {
    for (std::int64_t h = 0; h < p.heads_q; ++h) work(b, h, h / (p.heads_q / p.heads_kv));
  }
}

PlainPairs plain_pairs_of(const AttentionProblem& p, const PlainForm& form) {
  return {band_of(p), form, p.dtype, static_cast<float>(p.scale)};
}

}  // namespace

void product(const HostMatrix<double>& a, const HostMatrix<double>& b, const HostMatrix<double>& added,
             double* result) {
  compute_product(a, b, added, result, [](const auto&... matrices) { write_product(matrices...); });
}

void product(const HostMatrix<double>& a, const HostMatrix<float>& b, double* result) {
  compute_product(a, b, {}, result, [](const auto&... matrices) { write_product(matrices...); });
}

void product(const HostMatrix<float>& a, const HostMatrix<float>& b, const HostMatrix<float>& added,
             const PlainForm& form, float* result) {
  compute_product(a, b, added, result, [&form](const auto&... matrices) { write_product(matrices..., form); });
}

void attend(const AttentionProblem& p, const HostHeads<double>& heads, double* out) {
  const DeviceHeads<double> on_device(p, heads);
  MatrixMemory<double> sums(p.batch * p.len_q, p.heads_q * p.dim_v);
  sums.zero();
  const Band band = band_of(p);
  const auto scores = on_device.scores.view();
  for_each_head(p, [&](std::int64_t b, std::int64_t h, std::int64_t key_head) {
    write_product(on_device.q.head(b, p.len_q, h, p.dim_qk),
                  on_device.k.head(b, p.len_k, key_head, p.dim_qk).transposed(), {}, scores);
    write_softmax(scores, band, p.scale);
    add_seen_sums(scores, band, on_device.v.head(b, p.len_k, key_head, p.dim_v), sums.head(b, p.len_q, h, p.dim_v));
  });
  sums.download(out);
}

void attend_backward(const AttentionProblem& p, const HostHeads<double>& heads,
                     const HostGradients<double>& gradients) {
  const DeviceHeads<double> on_device(p, heads);
  const DeviceGradients<double> d(p, heads);
  const Band band = band_of(p);
  const auto probabilities = on_device.scores.view(), dp = d.dp.view();
  for_each_head(p, [&](std::int64_t b, std::int64_t h, std::int64_t key_head) {
    const auto q = on_device.q.head(b, p.len_q, h, p.dim_qk), k = on_device.k.head(b, p.len_k, key_head, p.dim_qk),
               v = on_device.v.head(b, p.len_k, key_head, p.dim_v), dout = d.dout.head(b, p.len_q, h, p.dim_v);
    write_product(q, k.transposed(), {}, probabilities);
    write_softmax(probabilities, band, p.scale);
    write_product(dout, v.transposed(), {}, dp);
    write_score_gradients(probabilities, dp, band, p.scale);
    add_seen_sums(dp, band, k, d.dq.head(b, p.len_q, h, p.dim_qk));
    add_seen_sums(dp.transposed(), band.transposed(), q, d.dk.head(b, p.len_k, key_head, p.dim_qk));
    add_seen_sums(probabilities.transposed(), band.transposed(), dout, d.dv.head(b, p.len_k, key_head, p.dim_v));
  });
  d.download(gradients);
}

void attend(const AttentionProblem& p, const HostHeads<float>& heads, const PlainForm& form, float* out) {
  const DeviceHeads<float> on_device(p, heads);
  MatrixMemory<float> sums(p.batch * p.len_q, p.heads_q * p.dim_v);
  sums.zero();
  const MatrixMemory<float> row_sums(p.len_q, 1);
  const PlainPairs pairs = plain_pairs_of(p, form);
  const auto scores = on_device.scores.view();
  for_each_head(p, [&](std::int64_t b, std::int64_t h, std::int64_t key_head) {
    write_product(on_device.q.head(b, p.len_q, h, p.dim_qk),
                  on_device.k.head(b, p.len_k, key_head, p.dim_qk).transposed(), {}, scores, form);
    write_softmax(pairs, scores, row_sums.data(), nullptr);
    add_seen_sums(scores, pairs.band, on_device.v.head(b, p.len_k, key_head, p.dim_v),
                  sums.head(b, p.len_q, h, p.dim_v), form, 1, form.divided_last ? row_sums.data() : nullptr);
  });
  sums.download(out);
}

void attend_backward(const AttentionProblem& p, const HostHeads<float>& heads, const PlainForm& form,
                     const PlainForm* form_of_lse, const HostGradients<float>& gradients) {
  const DeviceHeads<float> on_device(p, heads);
  const DeviceGradients<float> d(p, heads);
  const MatrixMemory<float> out(p.batch * p.len_q, p.heads_q * p.dim_v, heads.out), lse(p.len_q, 1), delta(p.len_q, 1),
      row_sums(p.len_q, 1);
  const PlainPairs pairs = plain_pairs_of(p, form);
  const Band by_key = pairs.band.transposed();
  const auto probabilities = on_device.scores.view(), dp = d.dp.view();
  const float after = form.scaled_first || form.fused ? 1.0f : pairs.scale;  // of dQ and dK
  for_each_head(p, [&](std::int64_t b, std::int64_t h, std::int64_t key_head) {
    const auto q = on_device.q.head(b, p.len_q, h, p.dim_qk), k = on_device.k.head(b, p.len_k, key_head, p.dim_qk),
               v = on_device.v.head(b, p.len_k, key_head, p.dim_v), dout = d.dout.head(b, p.len_q, h, p.dim_v);
    if (form_of_lse != nullptr) {
      write_product(q, k.transposed(), {}, probabilities, *form_of_lse);
      write_softmax(plain_pairs_of(p, *form_of_lse), probabilities, row_sums.data(), lse.data());
    }
    write_product(q, k.transposed(), {}, probabilities, form);
    form_of_lse == nullptr ? write_softmax(pairs, probabilities, row_sums.data(), nullptr)
                           : write_softmax_of_lse(pairs, probabilities, lse.data());
    write_product(dout, v.transposed(), {}, dp, form);
    write_delta(pairs, out.head(b, p.len_q, h, p.dim_v), dout, delta.data());
    write_score_gradients(pairs, probabilities, delta.data(), dp);
    add_seen_sums(dp, pairs.band, k, d.dq.head(b, p.len_q, h, p.dim_qk), form, after);
    add_seen_sums(dp.transposed(), by_key, q, d.dk.head(b, p.len_k, key_head, p.dim_qk), form, after);
    add_seen_sums(probabilities.transposed(), by_key, dout, d.dv.head(b, p.len_k, key_head, p.dim_v), form, 1);
  });
  d.download(gradients);
}

}  // namespace fovea::cuda::reference
