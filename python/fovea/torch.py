"""Attention as an operator of PyTorch: with autograd, under autocast, torch.compile and torch.vmap.

The module is imported by name: `import fovea.torch`. It also enters "fovea" in PyTorch's registry of flash attention;
activate() and stats() are those of fovea.torch_registry.
"""

import operator
from typing import Any

import torch

from fovea import _core
from fovea.calls import Align, Layout, Window
from fovea.errors import Unsupported
from fovea.frameworks import framework_of
from fovea.torch_registry import activate as activate, stats as stats

_library = torch.library.Library("fovea", "DEF")
_WORDS = "bool causal, int? left, int? right, str? align, float? scale, str layout"
_library.define(f"attention(Tensor q, Tensor k, Tensor v, {_WORDS}) -> (Tensor out, Tensor lse)")
_library.define(f"attention_backward(Tensor dout, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, {_WORDS}) -> "
                "(Tensor dq, Tensor dk, Tensor dv)")


def _words(causal, left, right, align, scale, layout):
    window = None if left is None and right is None else (left, right)
    return causal, window, align, scale, layout, None, 0, None


# Without the checks of fovea.attention: PyTorch hands no negative view to an operator, and autograd records the call.
def _forward(q, k, v, *words):
    return _core.forward((q, k, v, None, None, None), framework_of(q, "q"), _words(*words))


def _backward(dout, q, k, v, out, lse, *words):
    return _core.backward((dout, q, k, v, out, lse, True, True, True), framework_of(q, "q"), _words(*words))


for _device in ("CPU", "CUDA"):
    _library.impl("attention", _forward, _device)
    _library.impl("attention_backward", _backward, _device)


def check_devices(tensors, names):
    """Meta tensors beside others would make a result without values."""
    for name, one in zip(names, tensors):
        if one is not None and one.device != tensors[0].device:
            raise ValueError(f"{name}: got a tensor on {one.device}; wanted {tensors[0].device}, where {names[0]} is")


@torch.library.register_fake("fovea::attention", lib=_library)
def _(q, k, v, causal, left, right, align, scale, layout):
    check_devices((q, k, v), "qkv")
    batch, heads, length = q.shape[:3] if layout == "bhld" else (q.shape[0], q.shape[2], q.shape[1])
    return q.new_empty((*q.shape[:3], v.shape[3])), q.new_empty((batch, heads, length), dtype=torch.float32)


@torch.library.register_fake("fovea::attention_backward", lib=_library)
def _(dout, q, k, v, out, lse, *words):
    return tuple(one.new_empty(one.shape) for one in (q, k, v))


def refuse_second_derivative(*_):
    raise Unsupported("fovea.torch: attention has no second derivative; wanted no create_graph=True, and one transform "
                      "of torch.func that differentiates", "unsupported")


def dense(dout):
    """With columns side by side."""
    return dout if dout.stride(-1) == 1 else dout.contiguous()  # the gradient of a sum is a broadcast


def gradient_of_result(dout):
    """As the library reads it. A second derivative is refused."""
    if torch.is_grad_enabled():
        refuse_second_derivative()
    return dense(dout)


def folded(tensor, dim, count):
    """With the dimension that vmap maps, or `count` copies, as part of the batch."""
    tensor = tensor.expand(count, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
    tensor = tensor.flatten(0, 1)
    return tensor if tensor.stride(-1) == 1 else tensor.contiguous()


def _register_vmap(operator, tensors):
    """The first arguments of the operator are `tensors` tensors with a batch."""
    @torch.library.register_vmap(f"fovea::{operator}", lib=_library)
    def _(info, dims, *arguments):
        inputs = [folded(*one, info.batch_size) for one in zip(arguments[:tensors], dims)]
        results = getattr(torch.ops.fovea, operator)(*inputs, *arguments[tensors:])
        batch = inputs[0].shape[0] // info.batch_size
        return tuple(one.unflatten(0, (info.batch_size, batch)) for one in results), (0,) * len(results)


_register_vmap("attention", 3)
_register_vmap("attention_backward", 6)


_PLAIN = frozenset((torch.Tensor, torch.nn.Parameter))
_modes, _profiled = torch._C._len_torch_dispatch_stack, torch.autograd._profiler_enabled
_is_negative = torch.Tensor.is_neg


def _is_direct(*tensors):
    """Whether the kernel may be called without PyTorch's dispatcher, which takes as long as the rest of a short call.
    Not where a compiler, a mode, the profiler or a subclass of tensors wants to see the operator, or where the
    dispatcher makes a copy of a negative view."""
    return (_PLAIN.issuperset(map(type, tensors)) and not torch.compiler.is_compiling() and not _modes()
            and not _profiled() and (tensors[0].is_cuda or tensors[0].is_cpu) and not any(map(_is_negative, tensors)))


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, words):
        forward = _forward if _is_direct(q, k, v) else torch.ops.fovea.attention.default
        out, lse = forward(q, k, v, *words)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.words = words
        ctx.mark_non_differentiable(lse)
        ctx.set_materialize_grads(False)  # zeros of lse
        return out, lse

    @staticmethod
    def backward(ctx, dout, _):
        if dout is None:
            return None, None, None, None
        tensors = gradient_of_result(dout), *ctx.saved_tensors
        backward = _backward if _is_direct(*tensors) else torch.ops.fovea.attention_backward.default
        return *backward(*tensors, *ctx.words), None


class _Gradients(torch.autograd.Function):
    """torch.func differentiates with create_graph=True, so only the derivative of this is a second one."""

    generate_vmap_rule = True
    backward = staticmethod(refuse_second_derivative)

    @staticmethod
    def forward(*arguments):
        return torch.ops.fovea.attention_backward(*arguments)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass


class _MappedAttention(torch.autograd.Function):
    """The form that torch.vmap and torch.func transform. PyTorch takes tens of microseconds longer to call it."""

    generate_vmap_rule = True

    @staticmethod
    def forward(q, k, v, *words):
        return torch.ops.fovea.attention(q, k, v, *words)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs[:3], *output)
        ctx.words = inputs[3:]
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, dout, _):
        return *_Gradients.apply(dense(dout), *ctx.saved_tensors, *ctx.words), *[None] * len(ctx.words)


def check_tensors(tensors, names):
    for name, one in zip(names, tensors):
        if not isinstance(one, torch.Tensor):
            raise TypeError(f"{name}: got {type(one).__qualname__}; wanted a tensor of PyTorch")


def check_scale(scale, name="scale"):
    if scale is not None and not isinstance(scale, (int, float)):
        raise TypeError(f"{name}: got {scale!r}; wanted a number, or None for 1 / sqrt(columns of q)")


def _fits_int64(number):
    """Also of types other than int that count as integers, such as numpy.int64."""
    try:
        number = number if isinstance(number, (int, torch.SymInt)) else operator.index(number)
    except TypeError:
        return False
    return abs(number) < 2 ** 63


def sides_of(window, name="window", no_limit=None):
    """(left, right) of a window; `no_limit` is the word of a side without one."""
    if window is None and no_limit is None:
        return None, None
    if not isinstance(window, (tuple, list)) or len(window) != 2:
        raise TypeError(f"{name}: got {window!r}; wanted a pair (left, right)")
    if not all(side is None or _fits_int64(side) for side in window):
        raise TypeError(f"{name}: got {window!r}; wanted two numbers of keys, left and right of the row's own; "
                        f"{no_limit} is no limit")
    return window


def cast(tensors):
    """Tensors, of which some may be None; under autocast in its type."""
    device = tensors[0].device.type
    if device == "meta" or not torch.is_autocast_enabled(device):  # which knows no meta tensors
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return [None if one is None else one.to(dtype) for one in tensors]


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *, causal: bool = False, window: Window | None = None,
              align: Align | None = None, scale: float | None = None, layout: Layout = "bhld",
              return_lse: bool = False) -> Any:
    """fovea.attention with autograd: the result, or (out, lse) with return_lse. lse has no gradient.

    q, k, v: (batch, heads, length, columns) with layout="bhld", (batch, length, heads, columns) with "blhd", in
        float32, float16 or bfloat16. The other arguments and the errors are those of fovea.attention.

    A second derivative is refused. Under autocast q, k and v are cast to its type. The dimension that torch.vmap maps
    becomes part of the batch; an input without it is copied for each element.
    """
    if not (isinstance(q, torch.Tensor) and isinstance(k, torch.Tensor) and isinstance(v, torch.Tensor)):
        check_tensors((q, k, v), "qkv")  # a loop, which takes longer
    left, right = sides_of(window)
    check_scale(scale)
    # Also without gradients: the operator alone would drop the tangents of forward mode, which the function refuses.
    words = causal, left, right, align, scale, layout
    if torch._C._are_functorch_transforms_active():
        out, lse = _MappedAttention.apply(*cast((q, k, v)), *words)
    else:
        out, lse = _Attention.apply(*cast((q, k, v)), words)
    return (out, lse) if return_lse else out


def scaled_dot_product_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
                                 attn_mask: torch.Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False,
                                 scale: float | None = None, enable_gqa: bool = False) -> torch.Tensor:
    """torch.nn.functional.scaled_dot_product_attention, by this library.

    query, key, value: (..., heads, length, columns), in float32, float16 or bfloat16. A mask of the caller and dropout
    are refused. is_causal aligns at the top left, as there. Unequal numbers of heads need enable_gqa.
    """
    if attn_mask is not None:
        raise Unsupported("fovea.torch: attn_mask: got a tensor; wanted None. Causal masks and windows are arguments "
                          "of fovea.torch.attention", "unsupported")
    if dropout_p != 0:
        raise Unsupported(f"fovea.torch: dropout_p: got {dropout_p}; wanted 0", "unsupported")
    check_tensors((query, key, value), ("query", "key", "value"))
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
