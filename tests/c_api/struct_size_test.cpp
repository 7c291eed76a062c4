// Structs of callers with an older or a newer header: what is read of them, and what is written into them.
#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "c_api/sized_struct.h"
#include "fovea/error.h"
#include "fovea/fovea.h"

namespace {

// One struct in three versions, each with a field more. The library is of the second.
struct First {
  std::size_t struct_size;
  std::int64_t a;
};
struct Second {
  std::size_t struct_size;
  std::int64_t a, b;
};
struct Third {
  std::size_t struct_size;
  std::int64_t a, b, c;
};
constexpr fovea::c_api::StructSizes kSizes = {sizeof(First), sizeof(Second)};

template <class Given>
Second read(const Given& given) {
  Second known{};
  fovea::c_api::read_bytes(&given, &known, kSizes, "thing", "call");
  return known;
}

template <class Given>
void write(const Second& answer, Given& given) {
  fovea::c_api::write_bytes(&answer, &given, kSizes, "thing", "call");
}

template <class Call>
std::string refusal_of(Call call) {
  try {
    call();
  } catch (const fovea::Error& error) {
    EXPECT_EQ(error.status(), fovea::Status::invalid_argument);
    return error.what();
  }
  return "";
}

TEST(StructSize, FieldsThatAnOlderCallerLacksAreZero) {
  const struct {
    First given = {sizeof(First), 5};
    std::int64_t behind = -1;  // no part of the struct
  } caller;
  const Second known = read(caller.given);
  EXPECT_EQ(known.struct_size, sizeof(Second));
  EXPECT_EQ(known.a, 5);
  EXPECT_EQ(known.b, 0);
}

TEST(StructSize, NewerCallerIsAcceptedIfItsNewFieldsAreZero) {
  EXPECT_EQ(read(Third{sizeof(Third), 5, 6, 0}).b, 6);
  const std::string text = refusal_of([] { read(Third{sizeof(Third), 5, 6, 7}); });
  for (const char* word : {"`thing`", "got:    32 bytes", "wanted: 24 bytes", "newer"})
    EXPECT_NE(text.find(word), std::string::npos) << text;
}

TEST(StructSize, SizesOfNoVersionAreRefused) {
  for (const std::size_t size : {std::size_t{0}, sizeof(First) - 1, std::size_t{4097}, SIZE_MAX}) {
    const Second given = {size, 1, 2};
    EXPECT_NE(refusal_of([&] { read(given); }).find(std::to_string(size) + " bytes"), std::string::npos);
    Second filled = {size, 1, 2};
    EXPECT_NE(refusal_of([&] { write({sizeof(Second), 8, 9}, filled); }), "");
    EXPECT_EQ(filled.a, 1);
  }
}

TEST(StructSize, OlderCallersStructIsNotOverrun) {
  struct {
    First given = {sizeof(First), 5};
    std::int64_t behind = -1;
  } caller;
  write({sizeof(Second), 8, 0}, caller.given);
  EXPECT_EQ(caller.given.struct_size, sizeof(First));
  EXPECT_EQ(caller.given.a, 8);
  EXPECT_EQ(caller.behind, -1);
}

TEST(StructSize, AnswerThatDoesNotFitIsRefusedBeforeItIsWritten) {
  First given = {sizeof(First), 5};
  const std::string text = refusal_of([&] { write({sizeof(Second), 8, 9}, given); });
  EXPECT_NE(text.find("got:    16 bytes"), std::string::npos) << text;
  EXPECT_EQ(given.a, 5);
}

TEST(StructSize, FieldsThatOnlyTheCallerKnowsBecomeZero) {
  Third given = {sizeof(Third), -1, -1, -1};
  write({sizeof(Second), 8, 9}, given);
  EXPECT_EQ(given.struct_size, sizeof(Third));
  EXPECT_EQ(given.a, 8);
  EXPECT_EQ(given.b, 9);
  EXPECT_EQ(given.c, 0);
}

// The limit that fovea.h tells, and the refusal beyond it.
TEST(StructSize, ZerosBehindTheKnownFieldsAreAcceptedUpTo4096Bytes) {
  struct Largest {
    Second known = {4096, 8, 9};
    std::array<std::byte, 4096 - sizeof(Second)> zeros = {};
  };
  static_assert(sizeof(Largest) == 4096);
  EXPECT_EQ(read(Largest{}).b, 9);
  Largest filled;
  write({sizeof(Second), 1, 2}, filled);
  EXPECT_EQ(filled.known.b, 2);
  const std::string text = refusal_of([] { read(Second{4097, 8, 9}); });
  for (const char* word : {"got:    4097 bytes", "wanted: 16 to 4096 bytes; 24 bytes in version"})
    EXPECT_NE(text.find(word), std::string::npos) << text;
}

// A public struct with bytes behind it that no version of it has yet.
template <class Struct>
struct Newer {
  Struct known = {sizeof(Newer)};
  std::array<std::int64_t, 3> unknown = {};
};

TEST(StructSize, EveryFunctionTakesStructsOfANewerHeader) {
  std::array<float, 4> in = {1, 1, 1, 1}, out = {};
  Newer<fovea_tensor> q, answer;
  answer.unknown.fill(-1);
  ASSERT_EQ(fovea_init_dense_tensor(&q.known, in.data(), FOVEA_FP32, 1, 1, 2, 2), FOVEA_OK) << fovea_last_error();
  ASSERT_EQ(fovea_init_dense_tensor(&answer.known, out.data(), FOVEA_FP32, 1, 1, 2, 2), FOVEA_OK);
  EXPECT_EQ(answer.known.struct_size, sizeof answer);
  EXPECT_EQ(answer.unknown[2], 0);
  Newer<fovea_options> options;
  Newer<fovea_forward_tensors> tensors;
  tensors.known.q = tensors.known.k = tensors.known.v = &q.known;
  tensors.known.out = &answer.known;
  EXPECT_EQ(fovea_attention_forward(&tensors.known, &options.known), FOVEA_OK) << fovea_last_error();
  EXPECT_EQ(out[3], 1);
  Newer<fovea_problem> problem;
  problem.unknown.fill(-1);
  EXPECT_EQ(fovea_describe_forward(&tensors.known, &options.known, &problem.known), FOVEA_OK) << fovea_last_error();
  EXPECT_EQ(problem.known.len_k, 2);
  EXPECT_EQ(problem.unknown[2], 0);
  options.unknown[2] = 1;
  EXPECT_EQ(fovea_attention_forward(&tensors.known, &options.known), FOVEA_INVALID_ARGUMENT);
  EXPECT_NE(std::strstr(fovea_last_error(), "`options`"), nullptr) << fovea_last_error();
}

TEST(StructSize, InitRefusesImpossibleTensors) {
  fovea_tensor tensor = {sizeof tensor};
  const auto refused = [&](std::int32_t dtype, std::int64_t length, const char* word) {
    EXPECT_EQ(fovea_init_dense_tensor(&tensor, nullptr, dtype, 1, 2, length, 4), FOVEA_INVALID_ARGUMENT);
    EXPECT_NE(std::strstr(fovea_last_error(), word), nullptr) << fovea_last_error();
    EXPECT_EQ(tensor.rank, 0);
  };
  refused(3, 5, "`dtype`");
  refused(FOVEA_FP32, -1, "-1");
  refused(FOVEA_FP32, INT64_MAX, "elements");
  EXPECT_EQ(fovea_init_dense_tensor(nullptr, nullptr, FOVEA_FP32, 1, 1, 1, 1), FOVEA_INVALID_ARGUMENT);
  tensor.struct_size = 8;
  refused(FOVEA_FP32, 5, "8 bytes");
}

}  // namespace
