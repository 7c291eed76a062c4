// With few numbers the plain evaluation's error is a matter of luck. So it is measured in several orders of summation,
// and on companions whose inputs are moved by up to an eighth. The largest error counts. On a GPU products of 16-bit
// operands are summed also as its tensor cores sum them.
#include "verification/linear/check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "core/float16.h"
#include "core/random.h"
#include "linear/reference.h"
#include "verification/row_sums.h"

namespace fovea::verification {
namespace {

using linear::SumsOfProducts;

constexpr double kFactor = 2;
constexpr std::int64_t kMostProducts = std::int64_t{1} << 21;  // rows of larger results are sampled
constexpr std::int64_t kSampledRows = 8;
constexpr int kCompanions = 2, kMostCompanions = 16;  // the rest only if an answer is beyond its bound
constexpr std::int64_t kChunk = 32;
constexpr std::int64_t kColumns = 64;  // of the result, evaluated together

// `flushed`: subnormal numbers count as zero, as in the processors' bf16 dot products; bf16 only.
enum class Order { forwards, backwards, fused, chunks, flushed };
constexpr Order kOrders[] = {Order::forwards, Order::backwards, Order::fused, Order::chunks, Order::flushed};

// Row `r` of a result comprises row `r` of all its heads.
struct Rows {
  std::vector<std::int64_t> chosen;
  bool complete = true;
};

// A result that is checked.
struct Checked {
  std::string name;
  SumsOfProducts sums;
  TensorView result;
  bool on_tensor_cores;
  Rows rows = {};
  RowValues before = {};  // what the call adds to; empty: nothing
};

Rows rows_of(const SumsOfProducts& sums, std::uint64_t seed) {
  Rows rows;
  const std::int64_t most =
      kMostProducts / std::max<std::int64_t>(1, sums.columns * std::max<std::int64_t>(1, sums.terms));
  rows.complete = sums.rows <= std::max(most, kSampledRows);
  const std::int64_t count = rows.complete ? sums.rows : kSampledRows;
  for (std::int64_t n = 0; n < count; ++n) {
    const auto part = static_cast<std::uint64_t>(sums.rows / std::max<std::int64_t>(1, count));
    const auto within =
        rows.complete ? 0 : static_cast<std::int64_t>(core::philox(seed, 7, static_cast<std::uint64_t>(n))[0] % part);
    rows.chosen.push_back(rows.complete ? n : n * static_cast<std::int64_t>(part) + within);
  }
  return rows;
}

// An input's value in a companion; companion 0 is the case itself.
float moved(float value, int companion, std::uint64_t stream, std::int64_t index) {
  if (companion == 0) return value;
  const auto random = core::philox(static_cast<std::uint64_t>(companion), stream, static_cast<std::uint64_t>(index))[0];
  return value * (1.0f + (static_cast<float>(random) * 0x1p-31f - 1.0f) / 8);
}

double exact_sum(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (std::size_t t = 0; t < a.size(); ++t) sum += static_cast<double>(a[t]) * static_cast<double>(b[t]);
  return sum;
}

float flushed(float value) { return std::fpclassify(value) == FP_SUBNORMAL ? 0.0f : value; }

float plain_sum(const std::vector<float>& a, const std::vector<float>& b, Order order) {
  float sum = 0, chunk = 0;
  const std::size_t count = a.size();
  for (std::size_t n = 0; n < count; ++n) {
    const std::size_t t = order == Order::backwards ? count - 1 - n : n;
    if (order == Order::fused) {
      sum = std::fma(a[t], b[t], sum);
    } else if (order == Order::flushed) {
      sum += flushed(a[t]) * flushed(b[t]);
    } else if (order == Order::chunks) {
      chunk += a[t] * b[t];
      if ((n + 1) % kChunk == 0 || n + 1 == count) sum += chunk, chunk = 0;
    } else {
      sum += a[t] * b[t];
    }
  }
  return sum;
}

double stored(float value, DType type) {
  float memory = 0;
  core::store_from_float(&memory, type, 0, value);
  return static_cast<double>(core::load_as_float(&memory, type, 0));
}

std::vector<RowIndex> indices_of(const TensorView& result, const Rows& rows) {
  std::vector<RowIndex> indices;
  for (const std::int64_t row : rows.chosen) {
    for (std::int64_t head = 0; head < result.sizes[1]; ++head)
      indices.push_back({row / result.sizes[2], head, row % result.sizes[2]});
  }
  return indices;
}

// The sums of one row for several columns, of which b[column] has the terms; also from the last term to the first,
// since a sum loses more to its roundings after a large term than before it.
std::array<std::vector<float>, 2> sums_on_tensor_cores(const std::vector<float>& a,
                                                       const std::vector<std::vector<float>>& b) {
  const std::size_t count = a.size();
  std::vector<float> terms(count * b.size());  // those of all columns side by side
  for (std::size_t column = 0; column < b.size(); ++column) {
    for (std::size_t t = 0; t < count; ++t) terms[t * b.size() + column] = b[column][t];
  }
  const auto columns = static_cast<std::int64_t>(b.size());
  RowSums forwards(columns, Rounding::tensor_cores), backwards(columns, Rounding::tensor_cores);
  for (std::size_t t = 0; t < count; ++t) {
    forwards.add(a[t], terms.data() + t * b.size());
    backwards.add(a[count - 1 - t], terms.data() + (count - 1 - t) * b.size());
  }
  return {forwards.finish(), backwards.finish()};
}

struct Evaluation {
  RowValues reference;
  std::vector<RowValues> plain;  // in each order, then on tensor cores
};

Evaluation evaluate(const Checked& checked, int companion) {
  const SumsOfProducts& sums = checked.sums;
  const std::vector<std::int64_t>& rows = checked.rows.chosen;
  Evaluation found{{indices_of(checked.result, checked.rows), checked.result.sizes[3], {}}, {}};
  found.reference.values.resize(rows.size() * static_cast<std::size_t>(sums.columns));
  const std::size_t orders = std::size(kOrders) - (sums.operands == DType::bf16 ? 0 : 1);
  found.plain.assign(orders + (checked.on_tensor_cores ? 2 : 0), found.reference);
  std::vector<std::vector<float>> a;
  const auto terms = static_cast<std::size_t>(sums.terms);
  for (const std::int64_t row : rows) {
    auto& line = a.emplace_back(terms);
    for (std::int64_t t = 0; t < sums.terms; ++t)
      line[static_cast<std::size_t>(t)] = moved(sums.a(row, t), companion, 1, row * sums.terms + t);
  }
  for (std::int64_t begin = 0; begin < sums.columns; begin += kColumns) {
    std::vector<std::vector<float>> b;
    std::vector<float> bias;
    for (std::int64_t column = begin; column < std::min(begin + kColumns, sums.columns); ++column) {
      auto& line = b.emplace_back(terms);
      for (std::int64_t t = 0; t < sums.terms; ++t)
        line[static_cast<std::size_t>(t)] = moved(sums.b(column, t), companion, 2, column * sums.terms + t);
      bias.push_back(sums.bias ? moved(sums.bias(column), companion, 3, column) : 0.0f);
    }
    for (std::size_t r = 0; r < a.size(); ++r) {
      std::array<std::vector<float>, 2> on_tensor_cores;
      if (checked.on_tensor_cores) on_tensor_cores = sums_on_tensor_cores(a[r], b);
      for (std::size_t c = 0; c < b.size(); ++c) {
        const std::size_t n = r * static_cast<std::size_t>(sums.columns) + static_cast<std::size_t>(begin) + c;
        const double before = checked.before.values.empty() ? 0 : checked.before.values[n];
        found.reference.values[n] = before + exact_sum(a[r], b[c]) + static_cast<double>(bias[c]);
        for (std::size_t way = 0; way < found.plain.size(); ++way) {
          const float sum = way < orders ? plain_sum(a[r], b[c], kOrders[way]) : on_tensor_cores[way - orders][c];
          found.plain[way].values[n] = stored(static_cast<float>(before) + (sum + bias[c]), checked.result.dtype);
        }
      }
    }
  }
  return found;
}

// The expectation of some results of one call.
Expectation expect(std::vector<Checked> all, const TensorSet& before, std::uint64_t seed, bool poisoned) {
  Expectation expected;
  for (Checked& checked : all) {
    checked.rows = rows_of(checked.sums, seed);
    if (const MutableTensorView* const added_to = before.find(checked.name))
      checked.before = read_rows(*added_to, indices_of(checked.result, checked.rows));
    ExpectedTensor& tensor = expected.tensors.emplace_back();
    tensor = {checked.name, {}, {.factor = kFactor, .stored = checked.result.dtype, .poisoned = poisoned}};
    expected.sampled = expected.sampled || !checked.rows.complete;
  }
  // A companion whose numbers exceed fp32 tells no bound.
  const auto raise = [all = std::move(all)](Expectation& raised, int companion) {
    for (std::size_t n = 0; n < all.size(); ++n) {
      const Evaluation found = evaluate(all[n], companion);
      for (const RowValues& plain : found.plain) {
        const ErrorSize error = error_of(plain, found.reference);
        if (companion == 0 || std::isfinite(error.row_norm)) raised.tensors[n].bound.plain.raise_to(error);
      }
      if (companion == 0) raised.tensors[n].reference = found.reference;
    }
  };
  raise(expected, 0);
  for (int companion = 1; companion <= kCompanions; ++companion) raise(expected, companion);
  for (ExpectedTensor& tensor : expected.tensors) allow_overflow(tensor.reference, tensor.bound);
  expected.measure_more = [raise](Expectation& raised) {
    for (int companion = kCompanions + 1; companion <= kMostCompanions; ++companion) raise(raised, companion);
  };
  return expected;
}

}  // namespace

Expectation expect_linear_forward(const LinearForwardTensors& t, std::uint64_t seed, DeviceKind device,
                                  bool may_be_non_finite) {
  return expect({{"y", linear::sums_of_y(t), t.y, may_use_tensor_cores(device, t.x.dtype)}}, {}, seed,
                may_be_non_finite);
}

Expectation expect_linear_backward(const LinearBackwardTensors& t, const TensorSet& before, std::uint64_t seed,
                                   DeviceKind device, bool may_be_non_finite) {
  const bool tensor_cores = may_use_tensor_cores(device, t.x.dtype);
  std::vector<Checked> all;
  if (t.dx) all.push_back({"dx", linear::sums_of_dx(t), t.dx, tensor_cores});
  if (t.dweight) all.push_back({"dweight", linear::sums_of_dweight(t), t.dweight, tensor_cores});
  if (t.dbias) all.push_back({"dbias", linear::sums_of_dbias(t), t.dbias, false});  // no tensor core sums it
  return expect(std::move(all), before, seed, may_be_non_finite);
}

}  // namespace fovea::verification
