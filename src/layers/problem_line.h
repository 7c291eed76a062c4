// The problem lines of layers, an operation for each kind:
//   op=mha_fused pass=fwd b=2 hq=12 lq=2048 d=64 e=768 dtype=bf16 mask=none bias=no scale=0.125 device=cpu
//   op=gqa pass=bwd b=2 hq=32 hkv=8 lq=2048 lk=2048 d=64 dv=64 e=2048 ekv=2048 dtype=bf16 mask=causal cross=no bias=no
//   accumulate=no scale=0.125 device=cuda
//   op=mla pass=fwd b=2 hq=32 lq=2048 lk=2048 d=128 dv=128 e=4096 ekv=4096 latent=512 latent_kv=512 dtype=bf16 ..
//   op=gqa pass=fwd .. bias=no rope=halves theta=10000 rope_dim=64 pos=0 pos_k=0 qk_norm=yes eps=1e-06 ..
//   op=mla pass=fwd b=1 hq=128 .. d=192 dv=128 e=7168 .. latent=1536 latent_kv=512 d_shared=64 .. latent_norm=yes ..
// e is the width of x and y, ekv the width of x_kv. cross=yes: x_kv is given. d_shared: columns of the shared rotary
// key. Only lines with gradients say whether they accumulate.
#pragma once

#include "core/problem_line.h"
#include "fovea/layers.h"

namespace fovea::layers {

const core::KeyTable& layer_keys(LayerKind kind);

// pass=e2e is a forward problem that saves. All gradients are wanted.
LayerProblem problem_of(const core::LineValues& values);

std::string line_of(const LayerProblem& problem);

}  // namespace fovea::layers
