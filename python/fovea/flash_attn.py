"""Functions with the names and arguments of the package flash-attn (version 2), by this library.

Tensors are (batch, length, heads, columns). Causal masks and windows align at the bottom right, as there from 2.1 on.
What the kernels do not do is refused by name. Results are always reproducible, so `deterministic` changes nothing.
"""

from typing import Any, Sequence

import torch

from fovea.errors import Unsupported
from fovea.torch import attention, check_scale, check_tensors, sides_of


def _window(window_size, causal):
    """-1 is no limit there. causal limits the right side."""
    left, right = (None if side == -1 else side for side in sides_of(window_size, "window_size", -1))
    return (left, 0 if causal else right)


def _unbound(packed, name, count):
    check_tensors((packed,), (name,))
    if packed.dim() != 5 or packed.shape[2] != count:
        raise ValueError(f"{name}: got shape {tuple(packed.shape)}; wanted (batch, length, {count}, heads, columns)")
    return packed.unbind(2)


def flash_attn_func(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout_p: float = 0.0,
                    softmax_scale: float | None = None, causal: bool = False,
                    window_size: Sequence[int] = (-1, -1), softcap: float = 0.0,
                    alibi_slopes: torch.Tensor | None = None, deterministic: bool = False,
                    return_attn_probs: bool = False) -> Any:
    """Attention with autograd: the result, (batch, length, heads, columns). k and v may have fewer heads than q.

    With return_attn_probs also lse, (batch, heads, length), and None in place of the probabilities, which are never
    stored.
    """
    for name, value in (("dropout_p", dropout_p), ("softcap", softcap)):
        if value != 0:
            raise Unsupported(f"fovea.flash_attn: {name}: got {value}; wanted 0", "unsupported")
    if alibi_slopes is not None:
        raise Unsupported("fovea.flash_attn: alibi_slopes: got a value; wanted None", "unsupported")
    check_scale(softmax_scale, "softmax_scale")
    window = _window(window_size, causal)
    masked = window != (None, None)
    out, lse = attention(q, k, v, window=window if masked else None, align="bottom_right" if masked else None,
                         scale=softmax_scale, layout="blhd", return_lse=True)
    return (out, lse, None) if return_attn_probs else out


def flash_attn_kvpacked_func(q: torch.Tensor, kv: torch.Tensor, *arguments: Any, **more: Any) -> Any:
    """flash_attn_func of keys and values in one tensor: (batch, length, 2, heads, columns)."""
    return flash_attn_func(q, *_unbound(kv, "kv", 2), *arguments, **more)


def flash_attn_qkvpacked_func(qkv: torch.Tensor, *arguments: Any, **more: Any) -> Any:
    """flash_attn_func of queries, keys and values in one tensor: (batch, length, 3, heads, columns)."""
    return flash_attn_func(*_unbound(qkv, "qkv", 3), *arguments, **more)
