"""Your own kernel in Triton, on a GPU:
fovea bench --device cuda --impl examples/my_triton.py:attention,flash --problem "b=4 hq=16 lq=1k,4k d=64 dtype=bf16"
"""
import torch
import triton
import triton.language as tl


# One block of query rows against all keys in turn. A visible key j of row i has j <= i + shift.
@triton.jit
def attend(q, k, v, out, q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, out_batch, out_head,
           out_row, heads, group, len_q, len_k, dim_qk, dim_v, scale, shift, CAUSAL: tl.constexpr, DIM: tl.constexpr,
           DIM_V: tl.constexpr, ROWS: tl.constexpr, KEYS: tl.constexpr, PRECISION: tl.constexpr):
    batch, head = (tl.program_id(1) // heads).to(tl.int64), (tl.program_id(1) % heads).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    columns, columns_v = tl.arange(0, DIM), tl.arange(0, DIM_V)
    q += batch * q_batch + head * q_head
    k += batch * k_batch + head // group * k_head
    v += batch * v_batch + head // group * v_head
    out += batch * out_batch + head * out_head
    inside = rows[:, None] < len_q
    q_tile = tl.load(q + rows[:, None].to(tl.int64) * q_row + columns[None, :],
                     inside & (columns[None, :] < dim_qk), 0.0)
    largest = tl.full([ROWS], float("-inf"), tl.float32)
    total = tl.zeros([ROWS], tl.float32)
    sums = tl.zeros([ROWS, DIM_V], tl.float32)
    end = len_k
    if CAUSAL:
        end = tl.minimum(len_k, (tl.program_id(0) + 1) * ROWS + shift)
    for first in range(0, end, KEYS):
        keys = first + tl.arange(0, KEYS)
        k_tile = tl.load(k + keys[None, :].to(tl.int64) * k_row + columns[:, None],
                         (keys[None, :] < len_k) & (columns[:, None] < dim_qk), 0.0)
        v_tile = tl.load(v + keys[:, None].to(tl.int64) * v_row + columns_v[None, :],
                         (keys[:, None] < len_k) & (columns_v[None, :] < dim_v), 0.0)
        scores = tl.dot(q_tile, k_tile, input_precision=PRECISION) * scale
        visible = keys[None, :] < len_k
        if CAUSAL:
            visible = visible & (keys[None, :] <= rows[:, None] + shift)
        scores = tl.where(visible, scores, float("-inf"))
        raised = tl.maximum(largest, tl.max(scores, 1))
        base = tl.where(raised == float("-inf"), 0.0, raised)  # a row that has seen no key yet
        p, rescale = tl.exp(scores - base[:, None]), tl.exp(largest - base)
        sums = sums * rescale[:, None] + tl.dot(p.to(v_tile.dtype), v_tile, input_precision=PRECISION)
        total = total * rescale + tl.sum(p, 1)
        largest = raised
    result = sums / tl.where(total > 0, total, 1.0)[:, None]
    tl.store(out + rows[:, None].to(tl.int64) * out_row + columns_v[None, :], result.to(out.dtype.element_ty),
             inside & (columns_v[None, :] < dim_v))


def attention(q, k, v, mask, scale):  # torch tensors on the GPU: [batch, heads, length, dim], last dimension contiguous
    if mask.startswith("window"):
        raise NotImplementedError("no sliding windows")
    (batch, heads, len_q, dim_qk), (len_k, dim_v) = q.shape, v.shape[2:]
    out = torch.empty(batch, heads, len_q, dim_v, dtype=q.dtype, device=q.device)
    shift = len_k - len_q if mask == "causal_bottom_right" else 0
    dim, wide_v = (max(16, triton.next_power_of_2(n)) for n in (dim_qk, dim_v))
    rows, keys = (64, 64) if max(dim, wide_v) <= 128 and q.dtype != torch.float32 else (32, 32)
    attend[triton.cdiv(len_q, rows), batch * heads](
        q, k, v, out, *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *out.stride()[:3], heads, heads // k.shape[1],
        len_q, len_k, dim_qk, dim_v, scale, shift, mask != "none", dim, wide_v, rows, keys, "ieee")
    return out
