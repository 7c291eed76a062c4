"""Attention of Hugging Face transformers by this library: `import fovea.hf`, then attn_implementation="fovea".

    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="fovea")

Causal masks run here, also with a sliding window, and with keys of earlier tokens in a cache. What the kernels do not
take, such as padding, dropout or a position bias, goes to "sdpa"; calls() counts both kinds.
"""

import collections
import functools
import inspect

import torch
from torch.utils._pytree import tree_map_only
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import (causal_mask_function, prepare_padding_mask, sdpa_mask,
                                        sliding_window_causal_mask_function, sliding_window_overlay)

import fovea.torch
from fovea.errors import InvalidArgument, Unsupported

_OTHER_MASK = "a mask that is not plainly causal"
# torch.compile compiles a second time when a name is new, so the common ones are there from the start.
_calls = collections.Counter({"fovea": 0, f"sdpa: {_OTHER_MASK}": 0})
_COUNTED_IF_COMPILED = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 15)  # 2.11 compiles for every count


def calls() -> dict[str, int]:
    """How many calls ran here, as "fovea", and to "sdpa", by reason; compiled ones from PyTorch 2.15 on."""
    return {name: count for name, count in _calls.items() if count}


def _count(name):
    if _COUNTED_IF_COMPILED or not torch.compiler.is_compiling():
        _calls[name] += 1


class _CausalMask(torch.Tensor):
    """A mask for keys whose last is the last query's own. Each row sees `window` keys, or None for all up to its own.

    It has no memory. attention_forward reads `window`; any operation on the tensor gets the mask of "sdpa" instead.
    """

    @staticmethod
    def __new__(cls, shape, device, window, make):
        mask = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=torch.bool, device=device)
        mask.window, mask._make, mask._made = window, make, None
        return mask

    def made(self):
        if self._made is None:
            self._made = self._make()
        return self._made

    __torch_function__ = torch._C._disabled_torch_function_impl  # which would make results of this class

    @classmethod
    def __torch_dispatch__(cls, operator, types, arguments=(), more=None):
        arguments, more = tree_map_only(cls, cls.made, (arguments, more or {}))
        return operator(*arguments, **more)


def _closure(function, like):
    """What a function of transformers has captured, if the one that made it also made `like`."""
    if getattr(function, "__code__", None) is not like.__code__:
        return {}
    return inspect.getclosurevars(function).nonlocals


def _window_of(mask_function):
    """The keys that each row sees, None for all up to its own; 0 for masks of another form."""
    if mask_function is causal_mask_function:
        return None
    parts = _closure(mask_function, sliding_window_causal_mask_function(1)).get("mask_functions", ())
    if len(parts) != 2 or parts[1] is not causal_mask_function:
        return 0
    return _closure(parts[0], sliding_window_overlay(1)).get("sliding_window", 0)


def _has_padding(attention_mask, kv_length, kv_offset):
    padding = prepare_padding_mask(attention_mask, kv_length, kv_offset)
    return padding is not None and not padding[:, kv_offset:kv_offset + kv_length].all()


def _mask_or_none(make, batch_size, q_length, kv_length, q_offset=0, kv_offset=0, mask_function=causal_mask_function,
                  attention_mask=None, device="cpu", **_):
    window = _window_of(mask_function)
    # A static cache has a tensor of the GPU as q_offset, which nobody reads here.
    if (window == 0 or isinstance(q_offset, torch.Tensor) or q_offset + q_length != kv_offset + kv_length
            or _has_padding(attention_mask, kv_length, kv_offset)):
        return make()
    if q_length in (1, kv_length) and (window is None or kv_length <= window):
        return None
    return _CausalMask((batch_size, 1, q_length, kv_length), device, window, make)


def make_mask(*, allow_is_causal_skip=True, **arguments):
    """The mask function of transformers: None where "sdpa" needs no mask, or a mask of (batch, 1, queries, keys)."""
    make = functools.partial(sdpa_mask, allow_is_causal_skip=allow_is_causal_skip, **arguments)
    if not allow_is_causal_skip or torch.compiler.is_compiling():  # the compiler does not follow the rest
        return make()
    return _mask_or_none(make, **arguments)


def _reason_for_sdpa(query, key, attention_mask, dropout, more):
    if dropout != 0:
        return "dropout"
    if more.get("position_bias") is not None:
        return "position_bias"
    if query.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        return str(query.dtype)
    if isinstance(attention_mask, _CausalMask):
        lengths = query.shape[2], key.shape[2]
        return "" if attention_mask.shape[2:] == lengths else "a mask of other lengths"
    return _OTHER_MASK if attention_mask is not None else ""


def _attention(module, query, key, value, mask, scaling, is_causal):
    if mask is not None:
        arguments = {"causal": True, "align": "bottom_right",
                     "window": None if mask.window is None else (mask.window - 1, None)}
    else:
        if is_causal is None:
            is_causal = getattr(module, "is_causal", True)
        is_causal = bool(is_causal) and query.shape[2] > 1  # one query sees all keys, as with "sdpa"
        arguments = {"causal": is_causal, "align": "top_left" if is_causal else None}
    tensors = (one.transpose(1, 2) for one in (query, key, value))
    return fovea.torch.attention(*tensors, **arguments, scale=scaling, layout="blhd")


def attention_forward(module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None, **more):
    """The attention function of transformers: (batch, heads, length, columns) to (batch, length, heads, columns)."""
    for name in ("softcap", "s_aux"):  # "sdpa" refuses the first and would ignore the second
        if more.get(name) is not None:
            raise Unsupported(f"fovea.hf: {name}: got a value; wanted None", "unsupported")
    reason = _reason_for_sdpa(query, key, attention_mask, dropout, more)
    if not reason:
        try:
            out = _attention(module, query, key, value, attention_mask, scaling, is_causal)
            _count("fovea")
            return out, None
        except (Unsupported, InvalidArgument) as refused:
            reason = refused.problem
    _count(f"sdpa: {reason}")
    if isinstance(attention_mask, _CausalMask):
        attention_mask = attention_mask.made()
    return sdpa_attention_forward(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling,
                                  is_causal=is_causal, **more)


AttentionInterface.register("fovea", attention_forward)
AttentionMaskInterface.register("fovea", make_mask)
