// Rows whose visible scores are all -infinity: out, lse and the gradients that they contribute to are NaN. Rows that
// see no key, and all other rows, keep the bits of a call with finite scores. Every tile of cuda.any, with every kind
// of splits; then every implementation on the device.
#include <cmath>
#include <cstdio>
#include <limits>
#include <string>
#include <vector>

#include "attention/reference/head.h"
#include "core/float16.h"
#include "device_call.h"
#include "every_tile.h"
#include "fovea/error.h"
#include "on_device.h"
#include "verification/attention/case.h"

namespace fovea::cuda {
namespace {

using verification::AttentionCase;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Column 0 decides. `queries`: -infinity in every third query of head 0, 1 in all keys. `keys`: -infinity in the first
// half of the keys of key head 0, 1 in all queries; so a row with other keys has an ordinary result.
enum class Struck { queries, keys };

std::int64_t offset(const MutableTensorView& view, std::int64_t h, std::int64_t i) {
  return h * view.strides[1] + i * view.strides[2];
}

void fill_column(const MutableTensorView& view, float value) {
  for (std::int64_t h = 0; h < view.sizes[1]; ++h) {
    for (std::int64_t i = 0; i < view.sizes[2]; ++i)
      core::store_from_float(view.data, view.dtype, offset(view, h, i), value);
  }
}

// What a row's results must be.
enum class Row { hidden, ordinary, infinite };

struct Pattern {
  AttentionProblem problem;
  Struck struck;

  bool strikes(std::int64_t i, std::int64_t j) const {
    return struck == Struck::queries ? i % 3 == 1 : j < problem.len_k / 2;
  }
  // Writes column 0 of q and k; `value` where it strikes.
  void write(const verification::CaseTensors& t, float value) const {
    const bool of_queries = struck == Struck::queries;
    fill_column(t.q.view(), 1.0f), fill_column(t.k.view(), 1.0f);
    const MutableTensorView& view = of_queries ? t.q.view() : t.k.view();
    for (std::int64_t i = 0; i < view.sizes[2]; ++i) {
      if (strikes(i, i)) core::store_from_float(view.data, view.dtype, offset(view, 0, i), value);
    }
  }
  Row row(std::int64_t h, std::int64_t i) const {
    const std::int64_t struck_heads = struck == Struck::queries ? 1 : problem.heads_q / problem.heads_kv;
    bool sees_keys = false, all_struck = h < struck_heads;
    for (std::int64_t j = 0; j < problem.len_k; ++j) {
      if (!reference::visible(problem, i, j)) continue;
      sees_keys = true;
      all_struck = all_struck && strikes(i, j);
    }
    return !sees_keys ? Row::hidden : all_struck ? Row::infinite : Row::ordinary;
  }
  bool seen_by_an_infinite_row(std::int64_t j) const {
    for (std::int64_t i = 0; i < problem.len_q; ++i) {
      if (reference::visible(problem, i, j) && strikes(i, j)) return true;
    }
    return false;
  }
};

// Every value of a tensor, row by row.
struct Values {
  explicit Values(const MutableTensorView& view) : length(view.sizes[2]), columns(view.sizes[3]) {
    for (std::int64_t h = 0; h < view.sizes[1]; ++h) {
      for (std::int64_t i = 0; i < length; ++i) {
        for (std::int64_t c = 0; c < columns; ++c)
          all.push_back(core::load_as_float(view.data, view.dtype, offset(view, h, i) + c));
      }
    }
  }
  // Whether `holds` is true of every value of the row and of the one in the same place of `other`.
  template <class Holds>
  bool row(const Values& other, std::int64_t h, std::int64_t i, Holds holds) const {
    for (std::int64_t at = (h * length + i) * columns; at < (h * length + i + 1) * columns; ++at) {
      if (!holds(all[static_cast<std::size_t>(at)], other.all[static_cast<std::size_t>(at)])) return false;
    }
    return true;
  }

  std::int64_t length, columns;
  std::vector<float> all;
};

bool is_nan(float got, float) { return std::isnan(got); }
bool is_same(float got, float finite) { return got == finite && std::isfinite(got); }

std::string place(const char* name, std::int64_t h, std::int64_t i) {
  return std::string(name) + " of head " + std::to_string(h) + ", row " + std::to_string(i);
}

// Of a tensor with a row per query. Empty, or the row that is wrong.
std::string wrong_queries(const char* name, const Pattern& pattern, const Values& got, const Values& finite,
                          float hidden) {
  for (std::int64_t h = 0; h < pattern.problem.heads_q; ++h) {
    for (std::int64_t i = 0; i < pattern.problem.len_q; ++i) {
      const auto is_right = [&, row = pattern.row(h, i)](float value, float wanted) {
        if (row == Row::hidden) return value == hidden;
        return row == Row::infinite ? std::isnan(value) : is_same(value, wanted);
      };
      if (!got.row(finite, h, i, is_right)) return place(name, h, i);
    }
  }
  return {};
}

// Of dk or dv. A key of the struck head that no infinite row sees may be NaN, by 0 x infinity.
std::string wrong_keys(const char* name, const Pattern& pattern, const Values& got, const Values& finite) {
  for (std::int64_t h = 0; h < pattern.problem.heads_kv; ++h) {
    for (std::int64_t j = 0; j < pattern.problem.len_k; ++j) {
      const bool infinite = h == 0 && pattern.seen_by_an_infinite_row(j);
      if (infinite ? !got.row(finite, h, j, is_nan) : h > 0 && !got.row(finite, h, j, is_same))
        return place(name, h, j);
    }
  }
  return {};
}

std::string wrong_forward(const Pattern& pattern, const verification::CaseTensors& got, const Values (&finite)[5]) {
  const std::string wrong = wrong_queries("out", pattern, Values(got.out.view()), finite[0], 0);
  return wrong.empty() ? wrong_queries("lse", pattern, Values(got.lse.view()), finite[1], -kInfinity) : wrong;
}

std::string wrong_backward(const Pattern& pattern, const verification::CaseTensors& got, const Values (&finite)[5]) {
  std::string wrong;
  if (pattern.problem.wants_dq) wrong = wrong_queries("dq", pattern, Values(got.dq.view()), finite[2], 0);
  if (pattern.problem.wants_dk && wrong.empty()) wrong = wrong_keys("dk", pattern, Values(got.dk.view()), finite[3]);
  if (pattern.problem.wants_dv && wrong.empty()) wrong = wrong_keys("dv", pattern, Values(got.dv.view()), finite[4]);
  return wrong;
}

// Runs a call with large finite scores, whose results stay in place, then with infinite ones. `backwards`: gradients
// are judged, not out and lse. Empty, or what is wrong.
template <class Run>
std::string wrong_answer(DeviceCall& call, const Pattern& pattern, bool backwards, Run run) {
  try {
    pattern.write(call.host(), -6e4f);
    call.upload_inputs();
    run();
    const verification::CaseTensors& results = call.fetch();
    const Values finite[] = {Values(results.out.view()), Values(results.lse.view()), Values(results.dq.view()),
                             Values(results.dk.view()), Values(results.dv.view())};
    pattern.write(call.host(), -kInfinity);
    call.upload_inputs();
    run();
    const std::string wrong =
        backwards ? wrong_backward(pattern, call.fetch(), finite) : wrong_forward(pattern, call.fetch(), finite);
    return wrong.empty() ? "" : "wrong: " + wrong;
  } catch (const Error& error) {
    return error.what();
  }
}

class Count {
 public:
  void add(const std::string& subject, Struck struck, const std::string& wrong) {
    ++(wrong.empty() ? passed_ : failed_);
    if (!wrong.empty())
      std::printf("INFINITE %s in %s: %s\n", struck == Struck::queries ? "queries" : "keys", subject.c_str(),
                  wrong.c_str());
  }
  int end() const {
    std::printf("infinite: %d passed, %d failed\n", passed_, failed_);
    return failed_ == 0 ? 0 : 1;
  }

 private:
  int passed_ = 0, failed_ = 0;
};

// Fully masked rows come first in the second case. In the third, later rows see struck keys only, then both kinds, then
// others; in the last, splits see struck keys only.
constexpr const char* kShapes[] = {" lq=150 lk=301 mask=none", " lq=201 lk=130 mask=causal_bottom_right",
                                   " lq=301 lk=301 mask=window left=40 right=9", " lq=5 lk=1100 mask=none"};

void check_tile(const TileRun& tile, Count& count) {
  const bool backwards = tile.kernel != any::Kernel::forward;
  for (const std::string shape : kShapes) {
    const AttentionCase c = verification::attention_case("pass=bwd b=1 hq=4 hkv=2 dtype=" + tile.dtype + shape +
                                                         " d=" + std::to_string(tile.choice.kernel->tile.dim));
    for (const Struck struck : {Struck::queries, Struck::keys}) {
      if (backwards && struck == Struck::keys) continue;  // dq and dk of a head with an infinite key may all be NaN
      DeviceCall call(c);
      const Pattern pattern{problem_of(tile.kernel, c.problem), struck};
      const auto run = [&] {
        if (!backwards) return run_forward(tile, pattern.problem, call.forward);
        attention_forward(call.forward, call.options);
        run_backward(tile, pattern.problem, call.backward);
      };
      count.add(text_of(tile, c), struck, wrong_answer(call, pattern, backwards, run));
    }
  }
}

// One pass of a case, as a caller calls it.
void check_pass(const std::string& name, AttentionCase c, Pass pass, DType result, Count& count) {
  c.problem.device = {DeviceKind::cuda, 0};
  c.problem.pass = pass;
  c.problem.result_dtype = result;
  if (explain(c.problem, name).chosen.empty()) return;
  const bool backwards = pass == Pass::backward;
  const std::string forward_name = backwards ? "cuda.any" : name;
  for (const Struck struck : {Struck::queries, Struck::keys}) {
    if (backwards && struck == Struck::keys) continue;
    DeviceCall call(c, result);
    const auto run = [&] {
      call.options.implementation = forward_name;
      attention_forward(call.forward, call.options);
      call.options.implementation = name;
      if (backwards) attention_backward(call.backward, call.options);
    };
    const std::string subject = name + (backwards ? ", backward, " : ", forward, ") + verification::line_of(c) +
                                (result == c.problem.dtype ? "" : ", fp32 results");
    count.add(subject, struck, wrong_answer(call, {c.problem, struck}, backwards, run));
  }
}

void check_implementation(const std::string& name, const std::string& line, Count& count) {
  for (const AttentionCase& c : verification::attention_sweep(line)) {
    for (const Pass pass : {Pass::forward, Pass::backward}) {
      check_pass(name, c, pass, c.problem.dtype, count);
      if (c.problem.dtype != DType::fp32) check_pass(name, c, pass, DType::fp32, count);
    }
  }
}

}  // namespace

int check_infinite_scores() {
  Count count;
  for (const TileRun& tile : every_tile()) check_tile(tile, count);
  const std::string common = "pass=bwd b=1 dtype=fp32,bf16,fp16 d=64,128,256";
  for (const ImplementationInfo& one : implementations()) {
    if (!one.unavailable.empty() || one.device != DeviceKind::cuda) continue;
    for (const std::string shape : kShapes) check_implementation(one.name, common + " hq=4 hkv=2" + shape, count);
    // More query tiles than thread blocks run at once.
    check_implementation(one.name, common + " hq=96 hkv=48 lq=280 lk=260 mask=none,causal_bottom_right", count);
    check_implementation(one.name, common + " hq=2 hkv=1 lq=16 lk=9000 mask=none", count);
  }
  return count.end();
}

}  // namespace fovea::cuda
