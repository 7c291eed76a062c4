// What `fovea train` reads and writes: the text and its sequences, the trigram model, hashes, safetensors.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "program/output_file.h"
#include "program/train/text.h"
#include "program/weights/safetensors.h"
#include "program/weights/sha256.h"
#include "run_program.h"

namespace fovea::program {
namespace {

using tests::Folder;
using tests::read_text;
using tests::write_text;

std::string sha256_of(const std::string& text, std::size_t piece) {
  Sha256 sha256;
  for (std::size_t i = 0; i < text.size(); i += piece) sha256.add(text.data() + i, std::min(piece, text.size() - i));
  return sha256.hex();
}

TEST(Sha256, MatchesPublishedDigests) {
  EXPECT_EQ(sha256_of("", 1), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256_of("abc", 3), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  for (const std::size_t piece : {1, 7, 64, 100, 1000000})
    EXPECT_EQ(sha256_of(std::string(1000000, 'a'), piece),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
  // Messages whose padding ends a block exactly, or needs one more.
  EXPECT_EQ(sha256_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

Text text_of(const std::vector<std::string>& contents, std::int64_t context) {
  const Folder folder;
  for (std::size_t i = 0; i < contents.size(); ++i) write_text(folder / std::to_string(i), contents[i]);
  return program::read_text(folder / ".", context);
}

std::string counted(int from, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += static_cast<char>(from + i);
  return text;
}

TEST(Text, HoldsOutTheLastTenthOfEachFile) {
  const Text text = text_of({counted(0, 50), counted(100, 25), "tiny"}, 5);
  ASSERT_EQ(text.files.size(), 2u) << "the third is too short for a sample";
  EXPECT_EQ(text.files[0].held_out_from, 45);
  EXPECT_EQ(text.files[1].held_out_from, 23);
  EXPECT_EQ(text.training_bytes, 68);
  EXPECT_EQ(text.held_out_bytes, 7);
  EXPECT_EQ(text.sha256, sha256_of(counted(0, 50) + counted(100, 25), 10));
}

TEST(Text, SamplesComeFromEveryPlaceOfTheTrainingBytesOnly) {
  const Text text = text_of({counted(0, 50), counted(100, 25)}, 5);
  std::map<std::int32_t, int> first;
  for (std::uint64_t step = 0; step < 400; ++step) {
    const Sequences some = training_sequences(text, 5, 3, 7, step);
    ASSERT_EQ(some.tokens.size(), 15u);
    for (std::size_t i = 0; i < some.tokens.size(); ++i) {
      EXPECT_EQ(some.targets[i], some.tokens[i] + 1) << "the byte that follows, of the same file";
      EXPECT_TRUE(some.targets[i] < 45 || (some.targets[i] >= 100 && some.targets[i] < 123)) << some.targets[i];
    }
    for (std::size_t i = 0; i < some.tokens.size(); i += 5) ++first[some.tokens[i]];
  }
  EXPECT_EQ(first.size(), 40u + 18u) << "every place";
  for (const auto& [place, count] : first) EXPECT_LT(count, 60) << place << " is drawn far too often";
  EXPECT_EQ(training_sequences(text, 5, 3, 7, 9).tokens, training_sequences(text, 5, 3, 7, 9).tokens);
  EXPECT_NE(training_sequences(text, 5, 3, 7, 9).tokens, training_sequences(text, 5, 3, 8, 9).tokens);
}

TEST(Text, EveryHeldOutByteCountsOnce) {
  for (const std::int64_t length : {1, 2, 5, 8}) {
    const Text text = text_of({counted(0, 90), counted(100, 25)}, length);
    const HeldOut held_out = held_out_sequences(text, length, 4);
    ASSERT_EQ(held_out.counts.size() % static_cast<std::size_t>(4 * length), 0u);
    ASSERT_EQ(held_out.counts.size(), held_out.sequences.targets.size());
    std::map<std::int32_t, int> counted_targets;
    for (std::size_t i = 0; i < held_out.counts.size(); ++i) {
      EXPECT_EQ(held_out.sequences.targets[i], held_out.sequences.tokens[i] + 1);
      if (held_out.counts[i]) ++counted_targets[held_out.sequences.targets[i]];
    }
    EXPECT_EQ(static_cast<std::int64_t>(counted_targets.size()), text.held_out_bytes);
    for (const auto& [target, count] : counted_targets) {
      EXPECT_EQ(count, 1) << target;
      EXPECT_TRUE((target >= 81 && target < 90) || (target >= 123 && target < 125)) << target;
    }
  }
}

// The same by searching the text, for a text of one file.
double searched_loss(const std::string& text, std::size_t held_out_from) {
  const std::string training = text.substr(0, held_out_from);
  const auto smoothed = [&](const std::string& context, char byte, double lower) {
    std::map<char, int> following;
    int total = 0;
    for (std::size_t i = 2; i < training.size(); ++i) {
      if (training.substr(i - context.size(), context.size()) == context) ++following[training[i]], ++total;
    }
    const auto different = static_cast<double>(following.size());
    return total == 0 ? lower : (following[byte] + different * lower) / (total + different);
  };
  double loss = 0;
  for (std::size_t i = held_out_from; i < text.size(); ++i) {
    double p = 1.0 / 256;
    for (const std::size_t length : {0, 1, 2}) p = smoothed(text.substr(i - length, length), text[i], p);
    loss -= std::log(p);
  }
  return loss / static_cast<double>(text.size() - held_out_from);
}

TEST(Text, TrigramModelCountsAndSmooths) {
  std::string text;
  for (int i = 0; i < 300; ++i) text += "abcadbz"[(i * i + i / 7) % 7];
  text += "new bytes";
  const Text one = text_of({text}, 8);
  EXPECT_NEAR(trigram_loss(one), searched_loss(text, static_cast<std::size_t>(one.files[0].held_out_from)), 1e-12);
}

TEST(Safetensors, ReadsBackWhatItWrote) {
  const Folder folder;
  const std::string path = folder / "a.safetensors";
  const std::vector<float> matrix{1, -2, 3.5f, 4, 5, 6}, vector{7};
  write_safetensors(path, {{"note", "\"quoted\""}}, {{"m", {2, 3}, matrix}, {"v", {1}, vector}, {"none", {0, 4}, {}}});
  const SafetensorsFile file(path);
  EXPECT_EQ(file.tensors().size(), 3u);
  EXPECT_EQ(file.metadata().at("note"), "\"quoted\"");
  std::vector<float> to(6);
  file.read("m", {2, 3}, to);
  EXPECT_EQ(to, matrix);
  EXPECT_THROW(file.read("m", {3, 2}, to), SafetensorsError);
  EXPECT_THROW(file.read("w", {2, 3}, to), SafetensorsError);
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
  const std::string bytes = read_text(path);
  EXPECT_EQ(static_cast<unsigned char>(bytes[0]) % 8, 0) << "the tensors begin on 8 bytes";
}

TEST(Safetensors, RefusesEveryDamage) {
  const Folder folder;
  const std::string path = folder / "a.safetensors";
  const std::vector<float> values{1, 2, 3, 4};
  write_safetensors(path, {}, {{"a", {2}, std::span(values).first(2)}, {"b", {2}, std::span(values).last(2)}});
  const std::string whole = read_text(path);
  for (std::size_t length = 0; length < whole.size(); ++length) {
    write_text(path, whole.substr(0, length));
    EXPECT_THROW(SafetensorsFile{path}, SafetensorsError) << "cut to " << length;
  }
  const std::size_t data = whole.size() - 16;
  for (std::size_t i = data; i < whole.size(); ++i) {
    std::string changed = whole;
    changed[i] ^= 4;
    write_text(path, changed);
    EXPECT_THROW(SafetensorsFile{path}, SafetensorsError) << "changed at " << i;
  }
  for (const auto& [from, to] : {std::pair<std::string, std::string>{"\"F32\"", "12345"},
                                 {"F32", "F16"},
                                 {"[2]", "[3]"},
                                 {"[0,8]", "[0,9]"},
                                 {"[8,16]", "[0,8] "},
                                 {"[0,8]", "[8,0]"},
                                 {"[0,8]", "\"0,8"},
                                 {"shape", "shipe"},
                                 {"__metadata__\":{", "__metadata__\":3"}}) {
    std::string changed = whole;
    ASSERT_NE(changed.find(from), std::string::npos) << from;
    changed.replace(changed.find(from), from.size(), to);
    write_text(path, changed);
    EXPECT_THROW(SafetensorsFile{path}, SafetensorsError) << to;
  }
  EXPECT_THROW(SafetensorsFile{folder / "missing"}, SafetensorsError);
  EXPECT_THROW(write_safetensors(folder / "no/such/folder", {}, {}), OutputLost);
}

}  // namespace
}  // namespace fovea::program
