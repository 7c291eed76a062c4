"""Attention as an operator of PyTorch: with autograd, under autocast, torch.compile and torch.vmap.

The module is imported by name: `import fovea.torch`. It also enters "fovea" in PyTorch's registry of flash attention;
activate() and stats() are those of fovea.torch_registry.
"""

import torch

import fovea
from fovea.errors import Unsupported
from fovea.torch_registry import activate as activate, stats as stats

_library = torch.library.Library("fovea", "DEF")
_WORDS = "bool causal, int? left, int? right, str? align, float? scale, str layout"
_library.define(f"attention(Tensor q, Tensor k, Tensor v, {_WORDS}) -> (Tensor out, Tensor lse)")
_library.define(f"attention_backward(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, {_WORDS}) -> "
                "(Tensor dq, Tensor dk, Tensor dv)")


def _arguments(causal, left, right, align, scale, layout):
    window = None if left is None and right is None else (left, right)
    return {"causal": causal, "window": window, "align": align, "scale": scale, "layout": layout}


def _detached(tensors):
    return [one.detach() if one.requires_grad else one for one in tensors]


def _forward(q, k, v, *words):
    return fovea.attention(*_detached((q, k, v)), **_arguments(*words))


def _backward(dout, q, k, v, out, lse, *words):
    return fovea.attention_backward(*_detached((dout, q, k, v, out, lse)), **_arguments(*words))


for _device in ("CPU", "CUDA"):
    _library.impl("attention", _forward, _device)
    _library.impl("attention_backward", _backward, _device)


@torch.library.register_fake("fovea::attention", lib=_library)
def _(q, k, v, causal, left, right, align, scale, layout):
    batch, heads, length = q.shape[:3] if layout == "bhld" else (q.shape[0], q.shape[2], q.shape[1])
    return q.new_empty((*q.shape[:3], v.shape[3])), q.new_empty((batch, heads, length), dtype=torch.float32)


@torch.library.register_fake("fovea::attention_backward", lib=_library)
def _(dout, q, k, v, out, lse, *words):
    return tuple(one.new_empty(one.shape) for one in (q, k, v))


def gradient_of_result(dout):
    """With columns side by side. A second derivative is refused."""
    if torch.is_grad_enabled():
        raise Unsupported("fovea.torch: attention has no second derivative; wanted no create_graph=True",
                          "unsupported")
    return dout if dout.stride(-1) == 1 else dout.contiguous()  # the gradient of a sum is a broadcast


def _folded(tensor, dim, count):
    """With the dimension that vmap maps, or `count` copies, as part of the batch."""
    tensor = tensor.expand(count, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
    tensor = tensor.flatten(0, 1)
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _register_vmap(operator, tensors):
    """The first arguments of the operator are `tensors` tensors with a batch."""
    @torch.library.register_vmap(f"fovea::{operator}", lib=_library)
    def _(info, dims, *arguments):
        folded = [_folded(*one, info.batch_size) for one in zip(arguments[:tensors], dims)]
        results = getattr(torch.ops.fovea, operator)(*folded, *arguments[tensors:])
        batch = folded[0].shape[0] // info.batch_size
        return tuple(one.unflatten(0, (info.batch_size, batch)) for one in results), (0,) * len(results)


_register_vmap("attention", 3)
_register_vmap("attention_backward", 6)


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, *words):
        out, lse = torch.ops.fovea.attention(q, k, v, *words)
        _MappedAttention.setup_context(ctx, (q, k, v, *words), (out, lse))
        return out, lse

    @staticmethod
    def backward(ctx, dout, _):
        dout = gradient_of_result(dout)
        gradients = torch.ops.fovea.attention_backward(dout, *ctx.saved_tensors, *ctx.words)
        return *gradients, *[None] * len(ctx.words)


class _MappedAttention(_Attention):
    """The form that vmap can map. PyTorch takes tens of microseconds longer to call it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(q, k, v, *words):
        return torch.ops.fovea.attention(q, k, v, *words)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:3], *output)
        ctx.words = inputs[3:]
        ctx.mark_non_differentiable(output[1])


def sides_of(window):
    """(left, right) of a window, None where there is no limit."""
    if window is None:
        return None, None
    if not isinstance(window, (tuple, list)) or len(window) != 2:
        raise TypeError(f"window: got {window!r}; wanted a pair (left, right)")
    return window


def cast(tensors):
    """Tensors, of which some may be None; under autocast in its type."""
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return [None if one is None else one.to(dtype) for one in tensors]


def attention(q, k, v, *, causal=False, window=None, align=None, scale=None, layout="bhld", return_lse=False):
    """fovea.attention with autograd: the result, or (out, lse) with return_lse. lse has no gradient.

    A second derivative is refused. Under autocast q, k and v are cast to its type. The dimension that torch.vmap maps
    becomes part of the batch; an input without it is copied for each element.
    """
    left, right = sides_of(window)
    if scale is not None and not isinstance(scale, (int, float)):
        raise TypeError(f"scale: got {scale!r}; wanted a number, or None for 1 / sqrt(columns of q)")
    # Also without gradients: the operator alone would drop the tangents of forward mode, which the function refuses.
    function = _MappedAttention if torch._C._are_functorch_transforms_active() else _Attention
    out, lse = function.apply(*cast((q, k, v)), causal, left, right, align, scale, layout)
    return (out, lse) if return_lse else out


def scaled_dot_product_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None,
                                 enable_gqa=False):
    """torch.nn.functional.scaled_dot_product_attention, by this library.

    A mask of the caller and dropout are refused. is_causal aligns at the top left, as there. Unequal numbers of heads
    need enable_gqa.
    """
    if attn_mask is not None:
        raise Unsupported("fovea.torch: attn_mask: got a tensor; wanted None. Causal masks and windows are arguments "
                          "of fovea.torch.attention", "unsupported")
    if dropout_p != 0:
        raise Unsupported(f"fovea.torch: dropout_p: got {dropout_p}; wanted 0", "unsupported")
    dims = [one.dim() for one in (query, key, value)]
    if min(dims) < 3:
        raise ValueError(f"query, key, value: got {dims} dimensions; wanted 3 or more")
    heads = query.shape[-3], key.shape[-3]
    if not enable_gqa and heads[0] != heads[1]:
        raise ValueError(f"key: got {heads[1]} heads, query has {heads[0]}; wanted as many, or enable_gqa=True")
    leading = query.shape[:-3]
    tensors = [one.reshape(-1, *one.shape[-3:]) for one in (query, key, value)]
    out = attention(*tensors, causal=is_causal, align="top_left" if is_causal else None, scale=scale)
    return out.reshape(*leading, *out.shape[1:])
