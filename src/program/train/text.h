// The bytes that `fovea train` learns: the files of a folder, the last tenth of each held out.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fovea::program {

struct TextFile {
  std::string name;
  std::string bytes;
  std::int64_t held_out_from = 0;  // bytes before it are for training
};

struct Text {
  std::vector<TextFile> files;  // in the order of their names
  std::string sha256;           // of all bytes, file after file
  std::int64_t training_bytes = 0, held_out_bytes = 0;
};

// Reads a file, or the regular files of a folder (no links, no folders). A file without a whole training sample of
// `context` + 1 bytes is left out. Throws Error(invalid_argument) if nothing remains or something cannot be read.
Text read_text(const std::string& path, std::int64_t context);

// Sequences of equal length, each token beside the one that follows it.
struct Sequences {
  std::vector<std::int32_t> tokens, targets;
};

// `count` sequences for a training step, at places that depend on these numbers only. Every place of the training bytes
// is equally likely.
Sequences training_sequences(const Text& text, std::int64_t length, std::int64_t count, std::uint64_t seed,
                             std::uint64_t step);

// Sequences that hold each held-out byte once as a target that counts, after at least `length` / 2 bytes of context
// where a file has them. Padded with repeated sequences, whose targets do not count, to a multiple of `batch`.
struct HeldOut {
  Sequences sequences;
  std::vector<bool> counts;  // per target
};
HeldOut held_out_sequences(const Text& text, std::int64_t length, std::int64_t batch);

// The mean loss in nats a byte of the held-out bytes under a trigram model: counts of the training bytes, smoothed by
// the method C of Witten and Bell (IEEE Trans. Information Theory 37, 1991) over trigrams, pairs, bytes, and 1/256.
double trigram_loss(const Text& text);

}  // namespace fovea::program
