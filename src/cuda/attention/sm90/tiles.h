// The tiles of the forward kernel, and their times on one H200. The times are fitted to preset h200-dense; those of
// tiles with one warpgroup are estimates (docs/kernels/sm90_forward_notebook.md, step 5).
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
                                     .turns = true,
                                     .stages_out = true};
  static constexpr ForwardTimes kTimes{.step = 1.41e-6, .tile = 1.95e-6, .uneven = 0.70e-6};
};

// For short sequences: of 128 rows fewer lie beyond the last query than of 192, and fewer pairs are masked.
struct Forward64ShortSequences {
  static constexpr ForwardTile kTile{.dim_qk = 64,
                                     .dim_v = 64,
                                     .keys = 128,
                                     .warpgroups = 2,
                                     .q_stages = 2,
                                     .kv_stages = 4,
                                     .turns = false,
                                     .stages_out = true};
  static constexpr ForwardTimes kTimes{.step = 1.08e-6, .tile = 1.93e-6, .uneven = 0.15e-6};
};

// For few query rows: reading K and V from memory bounds the call.
struct Forward64OneWarpgroup {
  static constexpr ForwardTile kTile{.dim_qk = 64,
                                     .dim_v = 64,
                                     .keys = 128,
                                     .warpgroups = 1,
                                     .q_stages = 2,
                                     .kv_stages = 4,
                                     .turns = false,
                                     .stages_out = true};
  static constexpr ForwardTimes kTimes{.step = 0.85e-6, .tile = 1.90e-6, .uneven = 0.20e-6};
};

struct Forward128 {
  static constexpr ForwardTile kTile{.dim_qk = 128,
                                     .dim_v = 128,
                                     .keys = 128,
                                     .warpgroups = 2,
                                     .q_stages = 2,
                                     .kv_stages = 2,
                                     .turns = false,
                                     .stages_out = true};
  static constexpr ForwardTimes kTimes{.step = 1.47e-6, .tile = 2.10e-6, .uneven = 0.50e-6};
};

// For few query rows: reading K and V from memory bounds the call.
struct Forward128OneWarpgroup {
  static constexpr ForwardTile kTile{.dim_qk = 128,
                                     .dim_v = 128,
                                     .keys = 128,
                                     .warpgroups = 1,
                                     .q_stages = 2,
                                     .kv_stages = 2,
                                     .turns = false,
                                     .stages_out = true};
  static constexpr ForwardTimes kTimes{.step = 1.03e-6, .tile = 1.90e-6, .uneven = 0.20e-6};
};

// Few query rows and short sequences: more thread blocks can share the keys.
struct Forward128OneWarpgroupShortSequences {
  static constexpr ForwardTile kTile{.dim_qk = 128,
                                     .dim_v = 128,
                                     .keys = 64,
                                     .warpgroups = 1,
                                     .q_stages = 2,
                                     .kv_stages = 4,
                                     .turns = false,
                                     .stages_out = true};
  static constexpr ForwardTimes kTimes{.step = 0.70e-6, .tile = 1.90e-6, .uneven = 0.20e-6};
};

// Latent attention: 192 columns of q and k, 128 of v.
struct Forward192With128 {
  static constexpr ForwardTile kTile{.dim_qk = 192,
                                     .dim_v = 128,
                                     .keys = 128,
                                     .warpgroups = 2,
                                     .q_stages = 1,
                                     .kv_stages = 2,
                                     .turns = true,
                                     .stages_out = false};
  static constexpr ForwardTimes kTimes{.step = 1.96e-6, .tile = 2.70e-6, .uneven = 0.50e-6};
};

struct Forward192 {
  static constexpr ForwardTile kTile{.dim_qk = 192,
                                     .dim_v = 192,
                                     .keys = 96,
                                     .warpgroups = 2,
                                     .q_stages = 1,
                                     .kv_stages = 2,
                                     .turns = false,
                                     .stages_out = false};
  static constexpr ForwardTimes kTimes{.step = 1.79e-6, .tile = 4.00e-6, .uneven = 0.50e-6};
};

struct Forward256 {
  static constexpr ForwardTile kTile{.dim_qk = 256,
                                     .dim_v = 256,
                                     .keys = 80,
                                     .warpgroups = 2,
                                     .q_stages = 1,
                                     .kv_stages = 2,
                                     .turns = false,
                                     .stages_out = false};
  static constexpr ForwardTimes kTimes{.step = 1.68e-6, .tile = 5.80e-6, .uneven = 0.10e-6};
};

// For short sequences: 512 keys are 8 tiles of 64, or 6.4 of 80.
struct Forward256ShortSequences {
  static constexpr ForwardTile kTile{.dim_qk = 256,
                                     .dim_v = 256,
                                     .keys = 64,
                                     .warpgroups = 2,
                                     .q_stages = 1,
                                     .kv_stages = 2,
                                     .turns = false,
                                     .stages_out = false};
  static constexpr ForwardTimes kTimes{.step = 1.37e-6, .tile = 6.20e-6, .uneven = 0.30e-6};
};

// For few query rows: reading K and V from memory bounds the call.
struct Forward256OneWarpgroup {
  static constexpr ForwardTile kTile{.dim_qk = 256,
                                     .dim_v = 256,
                                     .keys = 64,
                                     .warpgroups = 1,
                                     .q_stages = 1,
                                     .kv_stages = 2,
                                     .turns = false,
                                     .stages_out = true};
  static constexpr ForwardTimes kTimes{.step = 1.10e-6, .tile = 2.50e-6, .uneven = 0.20e-6};
};

}  // namespace fovea::cuda::sm90
