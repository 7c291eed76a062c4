// The interface of a target: plain argument structs and one table of functions. No inline functions and no std
// templates here: each target compiles this header for its own instruction set, and the linker would keep only one of
// the copies.
#pragma once

#include <stdint.h>

#include "cpu/kernels/element.h"
#include "cpu/kernels/model_kernels.h"

namespace fovea::cpu {

// The rows of one (batch, key head). Query row r is position r / group of query head r % group, of the group of heads
// that read this key head. For keys, group is 1. Strides count elements.
struct InputRows {
  const void* data;  // null if the tensor is absent
  Element element;
  int64_t head_stride;
  int64_t row_stride;
};

struct OutputRows {
  void* data;
  Element element;
  int64_t head_stride;
  int64_t row_stride;
};

// The values that all tasks of one call share. The scale is split into sign and magnitude. A scale of 0 has sign 0 and
// magnitude 1, so that kernels never multiply 0 by infinity.
struct Shape {
  int64_t group;  // query heads per key head
  int64_t len_q, len_k, dim_qk, dim_v;
  int64_t window_begin, window_end;  // position i sees keys j with max(0, i + begin) <= j < min(len_k, i + end)
  float scale;                       // multiplies dq and dk
  float sign;                        // queries are multiplied by it
  float scale_hi, scale_lo;          // the magnitude rounded to fp32, and the rounding error
  float log2_scale, log2_scale_lo;   // the same of the magnitude times log2(e)
};

// Tells whether the caller has cancelled; polled once per key block.
struct CancelFlag {
  bool (*raised)(const void* flag);
  const void* flag;
};

// Packs one block of K and V into the order in which the products read them.
struct PackTask {
  const Shape* shape;
  InputRows k, v;
  int64_t first_key;  // of the block of kKeyBlock keys
  void* packed_k;
  void* packed_v;
};

struct ForwardTask {
  const Shape* shape;
  InputRows q, k, v;
  OutputRows out, lse;
  const void* packed_k;  // all blocks of this key head; null: the task packs each block itself
  const void* packed_v;
  int64_t first_row, rows;  // among the group * len_q query rows
  void* scratch;            // forward_scratch_bytes
  CancelFlag cancel;
};

// Forward of all rows of a sequence, at most few_rows, over one chunk of its keys.
struct FewQueriesTask {
  const Shape* shape;
  InputRows q, k, v;
  int64_t first_key, keys;
  bool far;        // K and V are not in the caches: the next rows are prefetched
  float* partial;  // few_partial_bytes
  void* scratch;   // few_scratch_bytes
  CancelFlag cancel;
};

// Adds the partials of a sequence's chunks in order and writes its rows.
struct CombineTask {
  const Shape* shape;
  float* partials;  // [chunks], each few_partial_bytes
  int64_t chunks;
  OutputRows out, lse;
  void* scratch;  // few_scratch_bytes
};

// Packs one tile of query_tile query rows for the backward tasks that share it.
struct QueryPackTask {
  const Shape* shape;
  InputRows q, out, dout, lse;
  InputRows delta;    // null data: rowsum(dout * out)
  bool sums_delta;    // delta is wanted and not given
  int64_t first_row;  // a multiple of query_tile
  void* packed;       // backward_tile_bytes
  void* scratch;      // query_pack_scratch_bytes
};

struct BackwardTask {
  const Shape* shape;
  InputRows q, k, v, out, dout, lse;
  InputRows delta;          // null data: rowsum(dout * out)
  int64_t first_key, keys;  // the task's chunk; first_key is a multiple of chunk_step
  OutputRows dq, dk, dv;    // null data: not wanted
  void* packed;             // all query tiles of the sequence; null: the task packs them itself
  float* dq_partial;        // [tile][dq_tile_floats], this chunk's unscaled partial of dQ; null: the task writes dq
  bool accumulate;
  void* scratch;  // backward_scratch_bytes
  CancelFlag cancel;
};

// Adds the chunks' partials of dq in order and writes the rows of one query tile.
struct ReduceTask {
  const Shape* shape;
  const float* partials;   // of this tile and the first chunk
  int64_t partial_stride;  // floats from one chunk's partial to the next
  int64_t chunks;
  const int64_t* chunk_begins;  // [chunks + 1], keys
  int64_t first_row;
  OutputRows dq;
  bool accumulate;
  void* scratch;  // reduce_scratch_bytes
};

// Packs rows of a or columns of b as panels of product_rows rows or product_columns columns (micro-panels of BLIS). A
// panel is [steps][rows or columns]. A step is product_pairs elements along K; zeros pad the steps to a multiple of 4.
struct PanelTask {
  InputRows from;   // begins at the first element to pack
  bool along_rows;  // K is contiguous in memory; otherwise the panel's rows or columns are
  bool of_b;
  int64_t count;         // rows of a, or columns of b
  int64_t depth;         // elements along K
  void* to;              // where the first panel's first step goes
  int64_t panel_stride;  // operands (of 4 bytes) from one panel to the next
};

// c = alpha * a b + beta * c, a [rows, depth], b [depth, columns], both packed. Sums are fp32, in the order of K. beta
// = 0 does not read c. `next`: panels that the next product reads; they are prefetched.
struct ProductTask {
  const void *a, *b;  // the first panels
  int64_t rows, columns, depth;
  float alpha, beta;
  float* c;
  int64_t c_stride;
  const void* next = nullptr;
  int64_t next_bytes = 0;
};

// to = factor * from + beta * to + bias, row by row; beta = 0 does not read `to`.
struct ConvertTask {
  InputRows from;  // null data: zeros
  OutputRows to;
  InputRows bias;  // one row for all; null data: none
  int64_t rows, columns;
  float factor, beta;
};

// sums[columns] = the sum of the rows.
struct ColumnSumTask {
  InputRows from;
  int64_t rows, columns;
  float* sums;
};

struct Kernels {
  int lanes;
  int query_tile;       // queries of one register tile
  int key_block;        // keys of one block, in forward
  int backward_block;   // in backward
  int tile_rows;        // keys (or head dimensions) of one register tile
  bool bf16_dot;        // takes only bf16 and uses the bf16 dot-product instruction
  bool tile_registers;  // forward and backward use AMX's, which the system must have permitted; few_queries does not

  int64_t (*packed_k_bytes)(const Shape&);  // per key block
  int64_t (*packed_v_bytes)(const Shape&);
  int64_t (*forward_scratch_bytes)(const Shape&, int64_t rows, bool packs_itself);

  int64_t chunk_step;                            // a chunk of backward begins at a multiple of so many keys
  int64_t (*backward_tile_bytes)(const Shape&);  // of one packed query tile
  int64_t (*dq_tile_floats)(const Shape&);
  int64_t (*query_pack_scratch_bytes)(const Shape&);
  int64_t (*backward_scratch_bytes)(const Shape&, int64_t keys, bool own_tiles, bool own_dq);
  int64_t (*reduce_scratch_bytes)(const Shape&);

  int64_t few_rows;                            // the most query rows of a sequence that few_queries takes
  int64_t few_chunk_step;                      // a chunk has a multiple of so many keys
  int64_t (*few_partial_bytes)(const Shape&);  // per chunk of keys
  int64_t (*few_scratch_bytes)(const Shape&);
  bool (*few_queries)(const FewQueriesTask&);  // false: cancelled
  void (*combine_partials)(const CombineTask&);

  void (*pack)(const PackTask&);
  bool (*forward)(const ForwardTask&);  // false: cancelled
  void (*pack_query_tile)(const QueryPackTask&);
  bool (*backward)(const BackwardTask&);
  void (*reduce_dq)(const ReduceTask&);

  int product_rows, product_columns;  // of a panel of a, of b
  int product_pairs;                  // elements along K in an operand of 4 bytes
  int64_t product_depth;              // KC: the most elements along K of one product
  void (*pack_panels)(const PanelTask&);
  void (*product)(const ProductTask&);
  void (*convert)(const ConvertTask&);
  void (*sum_columns)(const ColumnSumTask&);

  ModelKernels model;
};

extern const Kernels kScalarKernels;
extern const Kernels kAvx2Kernels;
extern const Kernels kAvx512Kernels;
extern const Kernels kAvx512Bf16Kernels;
extern const Kernels kAmxKernels;

}  // namespace fovea::cpu
