// The RMS norms and the rotary embedding of a layer: which there are, their sizes, where their results lie.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fovea/layers.h"
#include "heads/row_pass.h"
#include "layers/projections.h"

namespace fovea::layers {

// The members of PerNorm, in their order.
enum class Norm : std::uint8_t { q, k, q_latent, kv_latent };
inline constexpr std::size_t kNorms = 4;
inline constexpr std::array<Norm, kNorms> kAllNorms = {Norm::q, Norm::k, Norm::q_latent, Norm::kv_latent};

std::string_view name_of(Norm norm);

template <class T>
T& at(PerNorm<T>& all, Norm norm) {
  constexpr T PerNorm<T>::*kMembers[kNorms] = {&PerNorm<T>::q, &PerNorm<T>::k, &PerNorm<T>::q_latent,
                                               &PerNorm<T>::kv_latent};
  return all.*kMembers[static_cast<std::size_t>(norm)];
}
template <class T>
const T& at(const PerNorm<T>& all, Norm norm) {
  return at(const_cast<PerNorm<T>&>(all), norm);
}

// Columns of the rows that it normalises; 0 if the layer cannot have it.
std::int64_t columns_of(const LayerProblem& problem, Norm norm);

// The columns of the rows of q, or of k, that are rotated. In DeepSeek's form k has none: its shared key is rotated.
std::optional<heads::Rotation> rotation_of(const LayerProblem& problem, Norm rows);
std::optional<heads::Rotation> rotation_of_shared_key(const LayerProblem& problem);

// Whether the rows that attention or the next projections read lie beside those that were projected, which backward of
// a norm needs. Else a pass writes over what it reads.
bool has_own_memory(const LayerProblem& problem, Norm rows);

// "q: RMS norm, rotary embedding" of each pass of forward that differs from doing nothing.
std::vector<std::string> row_passes_of(const LayerProblem& problem);

}  // namespace fovea::layers
