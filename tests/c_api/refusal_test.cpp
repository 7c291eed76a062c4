// What only the C interface can get wrong, and that it is refused with outputs untouched.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <thread>
#include <vector>

#include "core/memory.h"
#include "fovea/fovea.h"

namespace {

constexpr float kPoison = -12345.0f;

// A valid forward and backward call, which each case spoils in one place.
struct Call {
  std::vector<float> q = std::vector<float>(2 * 3 * 4, 0.5f), k = q, v = q, dout = q;
  std::vector<float> out = std::vector<float>(2 * 3 * 4, kPoison), dq = out, dk = out, dv = out;
  std::vector<float> lse = std::vector<float>(2 * 3, kPoison);
  fovea_tensor q_view = dense(q), k_view = dense(k), v_view = dense(v), dout_view = dense(dout), out_view = dense(out);
  fovea_tensor dq_view = dense(dq), dk_view = dense(dk), dv_view = dense(dv);
  fovea_tensor lse_view = dense(lse, 1);
  fovea_external_thread_pool thread_pool = {sizeof(fovea_external_thread_pool)};
  fovea_options options = {sizeof(fovea_options)};
  fovea_forward_tensors forward = {sizeof(fovea_forward_tensors), &q_view, &k_view, &v_view, &out_view, &lse_view};
  fovea_backward_tensors backward = {sizeof(fovea_backward_tensors),
                                     &q_view,
                                     &k_view,
                                     &v_view,
                                     &out_view,
                                     &lse_view,
                                     &dout_view,
                                     nullptr,
                                     &dq_view,
                                     &dk_view,
                                     &dv_view};

  static fovea_tensor dense(std::vector<float>& data, std::int64_t dim = 4) {
    fovea_tensor tensor = {sizeof tensor};
    EXPECT_EQ(fovea_init_dense_tensor(&tensor, data.data(), FOVEA_FP32, 1, 2, 3, dim), FOVEA_OK);
    return tensor;
  }

  bool outputs_untouched() const {
    for (const auto* output : {&out, &lse, &dq, &dk, &dv}) {
      for (const float value : *output) {
        if (value != kPoison) return false;
      }
    }
    return true;
  }
};

struct Refusal {
  const char* name;
  std::function<void(Call&)> spoil;
  std::vector<const char*> words;  // argument, got, wanted
  bool forward = true, backward = true;
  bool has_line = false;  // the structs could be read, so the problem is known
};

// Sizes of structs, by which versions of the header are told apart.
std::vector<Refusal> refusals_of_structs() {
  const auto bytes_of = [](std::size_t size) { return new std::string(std::to_string(size) + " bytes"); };
  static const std::string* tensor_bytes = bytes_of(sizeof(fovea_tensor));
  static const std::string* options_bytes = bytes_of(sizeof(fovea_options));
  static const std::string* forward_bytes = bytes_of(sizeof(fovea_forward_tensors));
  static const std::string* pool_bytes = bytes_of(sizeof(fovea_external_thread_pool));
  return {
      {"tensor_struct_size_of_zero",
       [](Call& c) { c.q_view.struct_size = 0; },
       {"`q`", "0 bytes", tensor_bytes->c_str()}},
      {"tensor_struct_with_a_field_of_a_newer_version",
       [](Call& c) {
         static struct {
           fovea_tensor known;
           std::int64_t unknown;
         } newer;
         newer.known = c.v_view, newer.known.struct_size = sizeof newer, newer.unknown = 1;
         c.forward.v = c.backward.v = &newer.known;
       },
       {"`v`", "112 bytes", tensor_bytes->c_str(), "zeros behind them"}},
      {"struct_size_that_was_not_set",
       [](Call& c) { c.options.struct_size = SIZE_MAX; },
       {"`options`", "18446744073709551615 bytes", options_bytes->c_str()}},
      {"options_struct_size",
       [](Call& c) { c.options.struct_size = 12; },
       {"`options`", "12 bytes", options_bytes->c_str()}},
      {"forward_struct_size",
       [](Call& c) { c.forward.struct_size = 1; },
       {"`tensors`", "1 bytes", forward_bytes->c_str()},
       true,
       false},
      {"backward_struct_size", [](Call& c) { c.backward.struct_size = 1; }, {"`tensors`", "1 bytes"}, false, true},
      {"thread_pool_struct_size",
       [](Call& c) {
         c.thread_pool.struct_size = 3;
         c.options.thread_pool = &c.thread_pool;
       },
       {"`thread_pool`", "3 bytes", pool_bytes->c_str()}},
  };
}

// Fields of few values.
std::vector<Refusal> refusals_of_values() {
  return {
      {"unknown_dtype", [](Call& c) { c.k_view.dtype = 3; }, {"`k.dtype`", "got:    3", "0 to 2"}},
      {"negative_dtype", [](Call& c) { c.k_view.dtype = -1; }, {"`k.dtype`", "got:    -1", "0 to 2"}},
      {"unknown_device", [](Call& c) { c.q_view.device_kind = 9; }, {"`q.device_kind`", "got:    9", "0 to 1"}},
      {"unknown_mask", [](Call& c) { c.options.mask = 7; }, {"`mask`", "got:    7", "0 to 6"}},
      {"mask_beyond_a_byte", [](Call& c) { c.options.mask = 256; }, {"`mask`", "got:    256", "0 to 6"}},
      {"bound_of_a_mask_that_takes_none",
       [](Call& c) { c.options.mask = FOVEA_MASK_CAUSAL, c.options.mask_left = 5; },
       {"`mask_left`", "got:    5 with mask causal", "wanted: 0, or mask window"}},
      {"negative_bound",
       [](Call& c) { c.options.mask = FOVEA_MASK_WINDOW, c.options.mask_right = -1; },
       {"`mask_right`", "got:    -1", "wanted: 0 to 2^62 keys, or FOVEA_UNLIMITED"}},
      {"bound_beyond_2_to_62",
       [](Call& c) { c.options.mask = FOVEA_MASK_WINDOW, c.options.mask_left = INT64_MAX - 1; },
       {"`mask_left`", "got:    9223372036854775806", "wanted: 0 to 2^62 keys, or FOVEA_UNLIMITED"}},
      {"window_without_limits",
       [](Call& c) {
         c.options.mask = FOVEA_MASK_WINDOW_TOP_LEFT;
         c.options.mask_left = c.options.mask_right = FOVEA_UNLIMITED;
       },
       {"`mask`", "mask_left and mask_right of FOVEA_UNLIMITED", "is FOVEA_MASK_NONE"}},
      {"two_as_has_scale", [](Call& c) { c.options.has_scale = 2; }, {"`has_scale`", "got:    2", "0 or 1"}},
      {"two_as_irreproducible",
       [](Call& c) { c.options.irreproducible = -1; },
       {"`irreproducible`", "got:    -1", "0 or 1"}},
      {"two_as_accumulate",
       [](Call& c) { c.backward.accumulate = 5; },
       {"`accumulate`", "got:    5", "0 or 1"},
       false,
       true},
      {"reserved_field", [](Call& c) { c.backward.reserved = 7; }, {"`reserved`", "got:    7"}, false, true},
  };
}

std::vector<Refusal> refusals_of_tensors() {
  return {
      {"rank_3", [](Call& c) { c.q_view.rank = 3; }, {"`q`", "got:    3", "rank 4"}},
      {"rank_0", [](Call& c) { c.v_view.rank = 0; }, {"`v`", "got:    0", "rank 4"}},
      {"sizes_overflow",
       [](Call& c) { c.k_view.sizes[0] = c.k_view.sizes[1] = INT64_C(1) << 40; },
       {"`k`", "1099511627776", "elements"}},
      {"negative_size", [](Call& c) { c.v_view.sizes[2] = -3; }, {"`v`", "-3", "0 or more"}},
      {"null_struct_q",
       [](Call& c) { c.forward.q = c.backward.q = nullptr; },
       {"`q`", "null", "the address of a struct"}},
      {"null_struct_out", [](Call& c) { c.forward.out = c.backward.out = nullptr; }, {"`out`", "null"}},
      {"null_struct_lse", [](Call& c) { c.backward.lse = nullptr; }, {"`lse`", "null"}, false, true},
      {"null_data", [](Call& c) { c.q_view.data = nullptr; }, {"`q`", "null", "24 elements"}, true, true, true},
      {"null_data_of_an_optional_tensor", [](Call& c) { c.lse_view.data = nullptr; }, {"`lse`", "null"}},
      {"null_data_of_a_gradient",
       [](Call& c) { c.dk_view.data = nullptr; },
       {"`dk`", "null", "or a null struct"},
       false,
       true},
      {"negative_stride", [](Call& c) { c.q_view.strides[2] = -4; }, {"`q`", "-4", "0 or more"}, true, true, true},
      {"buffer_too_small",
       [](Call& c) { c.v_view.buffer_bytes = 95; },
       {"`v`", "95 bytes", "96 bytes"},
       true,
       true,
       true},
      {"negative_buffer", [](Call& c) { c.v_view.buffer_bytes = -2; }, {"`v.buffer_bytes`", "-2", "or more"}},
      {"device_index", [](Call& c) { c.k_view.device_index = 1; }, {"`k`", "cpu:1", "cpu:0"}, true, true, true},
  };
}

std::vector<Refusal> refusals_of_options() {
  return {
      {"scale_nan",
       [](Call& c) {
         c.options.has_scale = 1;
         c.options.scale = std::numeric_limits<double>::quiet_NaN();
       },
       {"`scale`", "nan", "finite"}},
      {"workspace_misaligned",
       [](Call& c) {
         c.options.workspace = {reinterpret_cast<void*>(8), 64};
       },
       {"`workspace`", "64 bytes"},
       true,
       true,
       true},
      {"negative_workspace",
       [](Call& c) {
         c.options.workspace = {nullptr, -1};
       },
       {"`workspace`", "-1 bytes"},
       true,
       true,
       true},
      {"workspace_over_a_tensor",
       [](Call& c) {
         const auto address = reinterpret_cast<std::uintptr_t>(c.v.data());
         c.options.workspace = {reinterpret_cast<void*>(address / 64 * 64), 64 + 64};
       },
       {"`workspace`", "shares memory with", "128 bytes"},
       true,
       true,
       true},
      {"Unknown_implementation",
       [](Call& c) { c.options.implementation = "refrence"; },
       {"`implementation`", "refrence", "did you mean `reference`?"},
       true,
       true,
       true},
      {"thread_pool_without_function",
       [](Call& c) { c.options.thread_pool = &c.thread_pool; },
       {"`thread_pool`", "null", "a function"}},
      {"Negative_threads", [](Call& c) { c.options.threads = -4; }, {"`threads`", "-4"}, true, true, true},
  };
}

class CRefusal : public testing::TestWithParam<Refusal> {};

TEST_P(CRefusal, NamesTheArgumentAndWritesNothing) {
  const Refusal& refusal = GetParam();
  for (const bool backward : {false, true}) {
    if (!(backward ? refusal.backward : refusal.forward)) continue;
    Call call;
    refusal.spoil(call);
    const fovea_status status = backward ? fovea_attention_backward(&call.backward, &call.options)
                                         : fovea_attention_forward(&call.forward, &call.options);
    EXPECT_EQ(status, FOVEA_INVALID_ARGUMENT);
    for (const char* word : refusal.words)
      EXPECT_NE(std::strstr(fovea_last_error(), word), nullptr) << word << "\n" << fovea_last_error();
    for (const char* word : {"\n  got:    ", "\n  wanted: ", "\n  hint:   "})
      EXPECT_NE(std::strstr(fovea_last_error(), word), nullptr) << word << "\n" << fovea_last_error();
    if (refusal.has_line) {
      const std::string line =
          std::string("\n  problem: op=attention pass=") + (backward ? "bwd" : "fwd") + " b=1 hq=2 ";
      EXPECT_NE(std::strstr(fovea_last_error(), line.c_str()), nullptr) << fovea_last_error();
    }
    EXPECT_TRUE(call.outputs_untouched());
    Call valid;
    EXPECT_EQ(fovea_attention_forward(&valid.forward, nullptr), FOVEA_OK) << fovea_last_error();
  }
}

const auto name_of = [](const auto& test) { return std::string(test.param.name); };
INSTANTIATE_TEST_SUITE_P(Structs, CRefusal, testing::ValuesIn(refusals_of_structs()), name_of);
INSTANTIATE_TEST_SUITE_P(Values, CRefusal, testing::ValuesIn(refusals_of_values()), name_of);
INSTANTIATE_TEST_SUITE_P(Tensors, CRefusal, testing::ValuesIn(refusals_of_tensors()), name_of);
INSTANTIATE_TEST_SUITE_P(Options, CRefusal, testing::ValuesIn(refusals_of_options()), name_of);

fovea_problem valid_problem() {
  return {.struct_size = sizeof(fovea_problem),
          .batch = 1,
          .heads_q = 2,
          .heads_kv = 2,
          .len_q = 3,
          .len_k = 3,
          .dim_qk = 4,
          .dim_v = 4,
          .scale = 0.5};
}

TEST(CApi, ProblemFieldsAreChecked) {
  std::int64_t bytes = 77;
  fovea_problem problem = valid_problem();
  EXPECT_EQ(fovea_workspace_bytes(&problem, nullptr, &bytes), FOVEA_OK);
  bytes = 77;
  const auto refused = [&](auto spoil, const char* word) {
    problem = valid_problem();
    spoil(problem);
    EXPECT_EQ(fovea_workspace_bytes(&problem, nullptr, &bytes), FOVEA_INVALID_ARGUMENT) << word;
    EXPECT_NE(std::strstr(fovea_last_error(), word), nullptr) << fovea_last_error();
    EXPECT_EQ(bytes, 77);
  };
  refused([](fovea_problem& p) { p.struct_size = offsetof(fovea_problem, skip_dk); }, "`problem`");
  refused([](fovea_problem& p) { p.pass = 2; }, "`pass`");
  refused([](fovea_problem& p) { p.mask = -1; }, "`mask`");
  refused([](fovea_problem& p) { p.mask = FOVEA_MASK_WINDOW, p.mask_left = -1; }, "`mask_left`");
  refused([](fovea_problem& p) { p.dtype = 7; }, "`dtype`");
  refused([](fovea_problem& p) { p.result_dtype = 7; }, "`result_dtype`");
  refused([](fovea_problem& p) { p.device_kind = 2; }, "`device_kind`");
  refused([](fovea_problem& p) { p.skip_dv = 3; }, "`skip_dv`");
  refused([](fovea_problem& p) { p.unaligned = -1; }, "`unaligned`");
  refused([](fovea_problem& p) { p.reserved = 1; }, "`reserved`");
  refused([](fovea_problem& p) { p.len_q = -1; }, "`len_q`");
  refused([](fovea_problem& p) { p.heads_kv = 3; }, "heads_kv 3");
  EXPECT_EQ(fovea_workspace_bytes(nullptr, nullptr, &bytes), FOVEA_INVALID_ARGUMENT);
  problem = valid_problem();
  EXPECT_EQ(fovea_workspace_bytes(&problem, nullptr, nullptr), FOVEA_INVALID_ARGUMENT);
  EXPECT_EQ(fovea_explain(&problem, nullptr, nullptr, 10, nullptr), FOVEA_INVALID_ARGUMENT);
}

TEST(CApi, DescribeFillsTheProblem) {
  Call call;
  fovea_problem problem = {sizeof(fovea_problem)};
  ASSERT_EQ(fovea_describe_backward(&call.backward, nullptr, &problem), FOVEA_OK) << fovea_last_error();
  EXPECT_EQ(problem.pass, FOVEA_BACKWARD);
  EXPECT_EQ(problem.heads_q, 2);
  EXPECT_EQ(problem.len_k, 3);
  EXPECT_EQ(problem.scale, 0.5);
  problem.struct_size = 4;
  EXPECT_EQ(fovea_describe_backward(&call.backward, nullptr, &problem), FOVEA_INVALID_ARGUMENT);
}

TEST(CApi, MergeRefusesNullLists) {
  Call call;
  const fovea_tensor* outs[] = {&call.out_view, nullptr};
  EXPECT_EQ(fovea_merge_partials(nullptr, nullptr, 1, &call.out_view, &call.lse_view), FOVEA_INVALID_ARGUMENT);
  EXPECT_EQ(fovea_merge_partials(outs, outs, 2, &call.out_view, &call.lse_view), FOVEA_INVALID_ARGUMENT);
  EXPECT_EQ(fovea_merge_partials(outs, outs, 0, &call.out_view, &call.lse_view), FOVEA_INVALID_ARGUMENT);
  EXPECT_TRUE(call.outputs_untouched());
}

TEST(CApi, LastErrorIsPerThread) {
  EXPECT_EQ(fovea_attention_forward(nullptr, nullptr), FOVEA_INVALID_ARGUMENT);
  const std::string here = fovea_last_error();
  std::string there = "not set";
  std::thread([&there] { there = fovea_last_error(); }).join();
  EXPECT_EQ(there, "");
  EXPECT_EQ(here, fovea_last_error());
}

TEST(CApi, FailedAllocationIsAStatus) {
  Call call;
  std::int64_t bytes = 0;
  fovea_problem problem = valid_problem();
  for (size_t i = 0; i < fovea_implementation_count(); ++i) {
    const char* name = fovea_implementation_name(i);
    if (fovea_workspace_bytes(&problem, name, &bytes) != FOVEA_OK || bytes == 0) continue;
    fovea::core::release_cached_memory();
    fovea::core::fail_allocation(1);
    call.options.implementation = name;
    EXPECT_EQ(fovea_attention_forward(&call.forward, &call.options), FOVEA_OUT_OF_MEMORY) << name;
    EXPECT_TRUE(call.outputs_untouched()) << name;
    fovea::core::fail_allocation(0);
  }
}

}  // namespace
