"""Attention of Hugging Face transformers by this library: `import fovea.hf`, then attn_implementation="fovea".

    model = AutoModelForCausalLM.from_pretrained(name, attn_implementation="fovea")

Masks are made as for "sdpa", which leaves plain causal ones to the attention function. What the kernels do not take,
such as padding, dropout or a position bias, goes to "sdpa"; calls() counts both kinds.
"""

import collections

from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

import fovea.torch
from fovea.errors import Unsupported

_calls = collections.Counter()


def calls():
    """How many calls ran here, as "fovea", and how many went to "sdpa", by reason."""
    return dict(_calls)


def _reason_for_sdpa(attention_mask, dropout, more):
    if attention_mask is not None:
        return "a mask that is not plainly causal"
    if dropout != 0:
        return "dropout"
    return "position_bias" if more.get("position_bias") is not None else ""


def attention_forward(module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None, **more):
    """The attention function of transformers: (batch, heads, length, columns) to (batch, length, heads, columns)."""
    for name in ("softcap", "s_aux"):  # "sdpa" refuses the first and would ignore the second
        if more.get(name) is not None:
            raise Unsupported(f"fovea.hf: {name}: got a value; wanted None", "unsupported")
    reason = _reason_for_sdpa(attention_mask, dropout, more)
    _calls[f"sdpa: {reason}" if reason else "fovea"] += 1
    if reason:
        return sdpa_attention_forward(module, query, key, value, attention_mask, dropout=dropout, scaling=scaling,
                                      is_causal=is_causal, **more)
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    is_causal = bool(is_causal) and query.shape[2] > 1  # one query sees all keys, as with "sdpa"
    out = fovea.torch.attention(*(one.transpose(1, 2) for one in (query, key, value)), causal=is_causal,
                                align="top_left" if is_causal else None, scale=scaling, layout="blhd")
    return out, None


AttentionInterface.register("fovea", attention_forward)
AttentionMaskInterface.register("fovea", sdpa_mask)
