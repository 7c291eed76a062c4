// The ways in which the engine's plans run problems.
#pragma once

#include <string_view>

namespace fovea::cpu::kinds {

// Forward: where K and V are packed.
inline constexpr std::string_view kPackedByTasks = "packed by tasks", kPackedOnce = "packed once",
                                  kWaves = "waves";  // of sequences; also of backward
// Forward of few query rows.
inline constexpr std::string_view kFewQueries = "few queries", kFewQueriesInChunks = "few queries in chunks",
                                  kFewQueriesFar = "few queries, far keys";
// Backward.
inline constexpr std::string_view kWholeSequences = "whole sequences", kChunks = "chunks";
// The last tile of query rows, or the last block of keys, is not full.
inline constexpr std::string_view kQueryTail = "query tail", kKeyTail = "key tail";

inline constexpr std::string_view kOfForward[] = {kPackedByTasks,      kPackedOnce,    kWaves,     kFewQueries,
                                                  kFewQueriesInChunks, kFewQueriesFar, kQueryTail, kKeyTail};
inline constexpr std::string_view kOfBackward[] = {kWholeSequences, kChunks, kWaves, kQueryTail, kKeyTail};

}  // namespace fovea::cpu::kinds
