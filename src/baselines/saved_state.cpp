// The header of the saved state and its fingerprint.
#include "baselines/saved_state.h"

#include <bit>
#include <cstring>
#include <string>

#include "attention/problem_line.h"
#include "core/check.h"

namespace fovea::baselines {
namespace {

constexpr std::uint64_t kMagic = 0x3153424f52504146;  // FAPROBS1, little endian

struct Header {
  std::uint64_t magic;
  std::uint64_t fingerprint;
};

}  // namespace

// FNV-1a.
std::uint64_t fingerprint_of(const AttentionProblem& p, std::string_view implementation) {
  std::uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&hash](std::uint64_t byte) { hash = (hash ^ (byte & 0xff)) * 0x100000001b3; };
  for (const char letter : implementation) add(static_cast<unsigned char>(letter));
  for (const std::int64_t value :
       {p.batch, p.heads_q, p.heads_kv, p.len_q, p.len_k, p.dim_qk, p.dim_v, static_cast<std::int64_t>(p.dtype),
        static_cast<std::int64_t>(p.mask.alignment), p.mask.left, p.mask.right, std::bit_cast<std::int64_t>(p.scale)}) {
    for (int shift = 0; shift < 64; shift += 8) add(static_cast<std::uint64_t>(value) >> shift);
  }
  return hash;
}

std::int64_t saved_bytes(const AttentionProblem& p) {
  return kSavedHeaderBytes + p.batch * p.heads_q * p.len_q * p.len_k * size_of(p.dtype);
}

void* saved_probabilities(const Buffer& saved) { return static_cast<char*>(saved.data) + kSavedHeaderBytes; }

void invalidate_saved_header(const Buffer& saved) { std::memset(saved.data, 0, kSavedHeaderBytes); }

void write_saved_header(const AttentionProblem& problem, std::string_view implementation, const Buffer& saved) {
  const Header header{kMagic, fingerprint_of(problem, implementation)};
  invalidate_saved_header(saved);
  std::memcpy(saved.data, &header, sizeof header);
}

void check_saved_header(const AttentionProblem& problem, std::string_view implementation, const Buffer& saved) {
  Header header{};
  std::memcpy(&header, saved.data, sizeof header);
  if (header.magic == kMagic && header.fingerprint == fingerprint_of(problem, implementation)) return;
  refuse_saved(problem, implementation, header.magic == kMagic);
}

void refuse_saved(const AttentionProblem& problem, std::string_view implementation, bool of_another) {
  core::fail({.status = Status::invalid_argument,
              .call = "attention_backward",
              .argument = "saved",
              .problem = of_another ? "the state was saved by the forward of another problem"
                                    : "the buffer holds no saved state",
              .got = of_another ? "another fingerprint of sizes, type, mask, scale and implementation" : "no header",
              .wanted = "what the forward of `" + std::string(implementation) + "` saved for this problem",
              .hint = "leave `saved` out to recompute the probabilities",
              .line = core::line_of(problem)});
}

}  // namespace fovea::baselines
