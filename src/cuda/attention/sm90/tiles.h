// The tiles of the forward kernel, one for each width of heads.
#pragma once

#include "cuda/attention/sm90/parameters.h"

namespace fovea::cuda::sm90 {

struct Forward64 {
  static constexpr ForwardTile kTile{.dim_qk = 64,
                                     .dim_v = 64,
                                     .keys = 128,
                                     .warpgroups = 3,
                                     .q_stages = 2,
                                     .kv_stages = 2,
                                     .turns = false};
};

struct Forward128 {
  static constexpr ForwardTile kTile{.dim_qk = 128,
                                     .dim_v = 128,
                                     .keys = 128,
                                     .warpgroups = 2,
                                     .q_stages = 2,
                                     .kv_stages = 2,
                                     .turns = true};
};

// Latent attention: 192 columns of q and k, 128 of v.
struct Forward192With128 {
  static constexpr ForwardTile kTile{.dim_qk = 192,
                                     .dim_v = 128,
                                     .keys = 112,
                                     .warpgroups = 2,
                                     .q_stages = 1,
                                     .kv_stages = 2,
                                     .turns = true};
};

struct Forward192 {
  static constexpr ForwardTile kTile{.dim_qk = 192,
                                     .dim_v = 192,
                                     .keys = 96,
                                     .warpgroups = 2,
                                     .q_stages = 1,
                                     .kv_stages = 2,
                                     .turns = false};
};

struct Forward256 {
  static constexpr ForwardTile kTile{.dim_qk = 256,
                                     .dim_v = 256,
                                     .keys = 80,
                                     .warpgroups = 2,
                                     .q_stages = 1,
                                     .kv_stages = 2,
                                     .turns = false};
};

}  // namespace fovea::cuda::sm90
