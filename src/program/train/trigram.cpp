// A trigram count model of bytes, which a trained model must beat.
#include <array>
#include <cmath>
#include <cstdint>
#include <unordered_map>

#include "program/train/text.h"

namespace fovea::program {
namespace {

// Counts of the bytes that follow each context of one length, and how many different ones do.
class Counts {
 public:
  void add(std::uint32_t context, unsigned char byte) {
    Context& one = contexts_[context];
    ++one.total;
    if (one.bytes[byte]++ == 0) ++one.different;
  }

  // (count + different * lower) / (total + different), or `lower` for a context that was never seen.
  double probability(std::uint32_t context, unsigned char byte, double lower) const {
    const auto found = contexts_.find(context);
    if (found == contexts_.end()) return lower;
    const Context& one = found->second;
    const auto different = static_cast<double>(one.different);
    return (static_cast<double>(one.bytes[byte]) + different * lower) / (static_cast<double>(one.total) + different);
  }

 private:
  struct Context {
    std::int64_t total = 0, different = 0;
    std::array<std::int64_t, 256> bytes{};
  };
  std::unordered_map<std::uint32_t, Context> contexts_;
};

}  // namespace

double trigram_loss(const Text& text) {
  Counts bytes, pairs, trigrams;
  const auto visit = [](const TextFile& file, std::int64_t first, std::int64_t end, auto use) {
    for (std::int64_t i = first; i < end; ++i) {
      const auto at = [&](std::int64_t n) {
        return static_cast<unsigned char>(file.bytes[static_cast<std::size_t>(n)]);
      };
      use(at(i), at(i - 1), static_cast<std::uint32_t>(at(i - 2)) << 8 | at(i - 1));
    }
  };
  for (const TextFile& file : text.files)
    visit(file, 2, file.held_out_from, [&](unsigned char byte, std::uint32_t one, std::uint32_t two) {
      bytes.add(0, byte), pairs.add(one, byte), trigrams.add(two, byte);
    });
  double loss = 0;
  for (const TextFile& file : text.files)
    visit(file, file.held_out_from, static_cast<std::int64_t>(file.bytes.size()),
          [&](unsigned char byte, std::uint32_t one, std::uint32_t two) {
            const double p1 = bytes.probability(0, byte, 1.0 / 256);
            const double p2 = pairs.probability(one, byte, p1);
            loss -= std::log(trigrams.probability(two, byte, p2));
          });
  return loss / static_cast<double>(text.held_out_bytes);
}

}  // namespace fovea::program
