// The projections of each kind of layer: which there are, what they read, their sizes.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "fovea/layers.h"

namespace fovea::layers {

// The members of PerProjection, in their order.
enum class Slot : std::uint8_t { qkv, q_down, q, kv_down, k, v, out };
inline constexpr std::size_t kSlots = 7;
inline constexpr std::array<Slot, kSlots> kAllSlots = {Slot::qkv, Slot::q_down, Slot::q,  Slot::kv_down,
                                                       Slot::k,   Slot::v,      Slot::out};

std::string_view name_of(Slot slot);

template <class T>
T& at(PerProjection<T>& all, Slot slot) {
  constexpr T PerProjection<T>::*kMembers[kSlots] = {
      &PerProjection<T>::qkv, &PerProjection<T>::q_down, &PerProjection<T>::q,  &PerProjection<T>::kv_down,
      &PerProjection<T>::k,   &PerProjection<T>::v,      &PerProjection<T>::out};
  return all.*kMembers[static_cast<std::size_t>(slot)];
}
template <class T>
const T& at(const PerProjection<T>& all, Slot slot) {
  return at(const_cast<PerProjection<T>&>(all), slot);
}

// What a projection reads: an input of the layer, the result of another projection, or attention's.
enum class Source : std::uint8_t { x, x_kv, q_latent, kv_latent, attention };
inline constexpr std::size_t kSources = 5;

std::string_view name_of(Source source);

struct Step {
  Slot slot;
  Source source;
  bool of_keys;  // its rows are those of x_kv
  std::int64_t columns_in, columns_out;
};

// Saturates, so that sizes made by hand can be checked afterwards.
constexpr std::int64_t columns_of(std::int64_t heads, std::int64_t dim) {
  std::int64_t columns = 0;
  return __builtin_mul_overflow(heads, dim, &columns) ? INT64_MAX : columns;
}

constexpr std::int64_t plus(std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

// Rows of a step for each batch element. With a cache, keys of new tokens only; but k and v of mla are made from all
// latents.
std::int64_t len_of(const LayerProblem& problem, const Step& step);

// Whether the projection writes into the cache. Where one makes q, k and v, a pass copies k and v there.
bool writes_cache(const LayerProblem& problem, Slot slot);

// In the order in which forward runs them; attention runs before the last one, out. Projections that read the same
// source are neighbours.
using Steps = std::vector<Step>;
Steps steps_of(const LayerProblem& problem);

// Per kind of layer, without out.
Steps fused_steps(const LayerProblem& problem);
Steps separate_steps(const LayerProblem& problem);
Steps latent_steps(const LayerProblem& problem);

}  // namespace fovea::layers
