"""Attention layers as modules of PyTorch: projections, attention and the output projection in one call.

x and the result are (batch, length, width). The weights are those of torch.nn.Linear modules, so a state dict of the
same names and shapes loads. All are on the CPU or on one GPU, in float32, float16 or bfloat16. Gradients go to x, x_kv
and all parameters; a second derivative is refused.

Step by step, without gradients, a layer keeps keys and values of earlier tokens in a cache:

    cache = layer.new_cache(batch, capacity)
    y = layer(prompt, cache=cache)
    y = layer(next_tokens, cache=cache)
"""

import dataclasses
import typing

import torch
from torch.nn import Linear, RMSNorm

from fovea.torch import cast, check_scale, check_tensors, sides_of
from fovea.torch_layer_calls import NAMES, layer, step


# The weights that may read x, and x_kv: the first that a layer has does.
_OF_X, _OF_X_KV = ("qkv.weight", "q_down.weight", "q.weight"), ("kv_down.weight", "k.weight")


class Rotary(typing.NamedTuple):
    """Rotary embedding of q and k. Row i is at position i."""

    theta: float = 10000.0
    pairs: str = "halves"  # columns i and i + n / 2, as in Llama; or "interleaved": 2 i and 2 i + 1
    columns: int = 0  # of each head, from its first on; 0: all


@dataclasses.dataclass
class LayerCache:
    """Keys and values of earlier tokens. Calls with it append theirs and raise `length`.

    k: (batch, capacity, heads_kv columns), v: (batch, capacity, heads_kv columns_v), normalised and rotated. latent:
    in their place of MultiHeadLatentAttention, (batch, capacity, latent_kv + shared). length: tokens that count; a
    smaller one forgets the last tokens.
    """

    k: torch.Tensor | None = None
    v: torch.Tensor | None = None
    latent: torch.Tensor | None = None
    length: int = 0


def _check_counts(least=1, **counts):
    for name, count in counts.items():
        if not isinstance(count, int) or isinstance(count, bool) or count < least:
            raise ValueError(f"{name}: got {count!r}; wanted a whole number, {least} or more")


class AttentionLayer(torch.nn.Module):
    """What the layers share: their arguments by keyword, and the call.

    causal, window, align, scale: as fovea.attention has them; align only where x_kv may have another length.
    rotary: a Rotary, or None.
    norm: whether RMS norms are applied: to each head of q and k, or to the latents of MultiHeadLatentAttention.
    epsilon: of the norms.
    device, dtype: of the parameters.
    """

    def __init__(self, kind, heads, heads_kv, *, causal=False, window=None, align=None, scale=None, rotary=None,
                 epsilon=1e-6):
        super().__init__()
        self._epsilon = epsilon
        if rotary is not None and not isinstance(rotary, Rotary):
            raise TypeError(f"rotary: got {rotary!r}; wanted a Rotary, or None")
        if rotary is not None and rotary.pairs not in ("halves", "interleaved"):
            raise ValueError(f'rotary: got pairs {rotary.pairs!r}; wanted "halves" or "interleaved"')
        _check_counts(heads=heads, heads_kv=heads_kv)
        if not isinstance(epsilon, (int, float)) or not epsilon >= 0:
            raise ValueError(f"epsilon: got {epsilon!r}; wanted a number, 0 or more")
        check_scale(scale)
        theta, pairs, columns = rotary or Rotary(theta=None)
        self._words = (kind, heads, heads_kv, theta, pairs, columns, epsilon, causal, *sides_of(window), align, scale)

    def _norm(self, columns, wanted, device, dtype):
        return RMSNorm(columns, self._epsilon, device=device, dtype=dtype) if wanted else None

    def _parts(self):
        """The module, or weight and bias, of each projection and norm, by the library's names."""
        raise NotImplementedError

    def _parameters_by_name(self):
        parameters = {}
        for name, part in self._parts().items():
            if name.endswith("norm"):
                parameters[name] = part.weight
            else:
                weight_and_bias = (part.weight, part.bias) if isinstance(part, Linear) else part
                parameters[f"{name}.weight"], parameters[f"{name}.bias"] = weight_and_bias
        return parameters

    def _cache_columns(self):
        """The columns of each tensor of a cache."""
        raise NotImplementedError

    def new_cache(self, batch: int, capacity: int) -> LayerCache:
        """An empty LayerCache for `batch` sequences of up to `capacity` tokens.

        It has the parameters' device and type; under autocast the type of autocast.
        """
        like, = cast((self._parameters_by_name()["out.weight"][:0],))
        return LayerCache(**{name: like.new_empty((batch, capacity, columns))
                             for name, columns in self._cache_columns().items()})

    def _words_with_cache(self):
        """x holds the last tokens, so a mask aligns at the bottom right."""
        *words, causal, left, right, align, scale = self._words
        if align == "top_left":
            raise ValueError('align: got "top_left" with a cache; wanted "bottom_right" or None')
        masked = causal or left is not None or right is not None
        return *words, causal, left, right, "bottom_right" if masked else None, scale

    def forward(self, x: torch.Tensor, x_kv: torch.Tensor | None = None, *,
                cache: LayerCache | None = None) -> torch.Tensor:
        """(batch, length, width) to the same; keys and values come from x_kv, (batch, keys, width_kv), if given.

        With a LayerCache x holds the tokens behind those that are in it, which it sees too; nothing records gradients.
        """
        parameters = self._parameters_by_name()
        for name, one, projections in (("x", x, _OF_X), ("x_kv", x_kv, _OF_X_KV)):
            if one is not None or name == "x":
                check_tensors((one,), (name,))
                width = next((parameters[first].shape[1] for first in projections if first in parameters), "width")
                if one.dim() != 3 or width not in ("width", one.shape[2]):
                    raise ValueError(f"{name}: got shape {tuple(one.shape)}; wanted (batch, length, {width})")
        if cache is not None and not isinstance(cache, LayerCache):
            raise TypeError(f"cache: got {type(cache).__qualname__}; wanted a LayerCache, as new_cache makes it")
        tensors = cast([x, x_kv, *(parameters.get(name) for name in NAMES[2:])])
        return layer(self._words, tensors) if cache is None else step(self._words_with_cache(), tensors, cache)


class FusedMultiHeadAttention(AttentionLayer):
    """One projection makes q, k and v. Loads the state dict of torch.nn.MultiheadAttention(width, heads).

    in_proj_weight: (3 width, width), rows of q, of k, of v. out_proj.weight: (width, width).
    """

    def __init__(self, width, heads, *, bias=True, device=None, dtype=None, **more):
        super().__init__("mha_fused", heads, heads, **more)
        _check_counts(width=width)
        theirs = torch.nn.MultiheadAttention(width, heads, bias=bias, device=device, dtype=dtype)
        self.in_proj_weight, self.out_proj = theirs.in_proj_weight, theirs.out_proj
        self.register_parameter("in_proj_bias", theirs.in_proj_bias)

    def _cache_columns(self):
        return dict.fromkeys(("k", "v"), self.in_proj_weight.shape[1])

    def _parts(self):
        return {"qkv": (self.in_proj_weight, self.in_proj_bias), "out": self.out_proj}


class GroupedQueryAttention(AttentionLayer):
    """Separate projections; several query heads read one key head. Loads state dicts named as those of Llama.

    q_proj.weight: (heads columns, width). k_proj.weight: (heads_kv columns, width_kv). v_proj.weight: (heads_kv
    columns_v, width_kv). o_proj.weight: (width, heads columns_v). q_norm.weight, k_norm.weight: (columns).
    columns: of a head; width / heads by default. columns_v: as many by default. width_kv: of x_kv; width by default.
    """

    _kind = "gqa"

    def __init__(self, width, heads, heads_kv, *, columns=None, columns_v=None, width_kv=None, bias=False, norm=False,
                 device=None, dtype=None, **more):
        super().__init__(self._kind, heads, heads_kv, **more)
        _check_counts(width=width)
        if columns is None and width % heads != 0:
            raise ValueError(f"heads: got {heads}; wanted a divisor of width {width}, or columns")
        columns = width // heads if columns is None else columns
        columns_v = columns if columns_v is None else columns_v
        width_kv = width if width_kv is None else width_kv
        _check_counts(columns=columns, columns_v=columns_v, width_kv=width_kv)
        self.q_proj = Linear(width, heads * columns, bias, device, dtype)
        self.k_proj = Linear(width_kv, heads_kv * columns, bias, device, dtype)
        self.v_proj = Linear(width_kv, heads_kv * columns_v, bias, device, dtype)
        self.o_proj = Linear(heads * columns_v, width, bias, device, dtype)
        self.q_norm = self._norm(columns, norm, device, dtype)
        self.k_norm = self._norm(columns, norm, device, dtype)

    def _cache_columns(self):
        return {"k": self.k_proj.out_features, "v": self.v_proj.out_features}

    def _parts(self):
        parts = {"q": self.q_proj, "k": self.k_proj, "v": self.v_proj, "out": self.o_proj}
        return parts if self.q_norm is None else parts | {"q_norm": self.q_norm, "k_norm": self.k_norm}


class MultiHeadAttention(GroupedQueryAttention):
    """GroupedQueryAttention with as many key heads as query heads."""

    _kind = "mha"

    def __init__(self, width, heads, **more):
        super().__init__(width, heads, heads, **more)


class MultiQueryAttention(GroupedQueryAttention):
    """GroupedQueryAttention with one key head."""

    _kind = "mqa"

    def __init__(self, width, heads, **more):
        super().__init__(width, heads, 1, **more)


class MultiHeadLatentAttention(AttentionLayer):
    """q comes from one latent row per token, k and v from another (DeepSeek-V2, arXiv 2405.04434).

    q_a_proj.weight: (latent_q, width). q_b_proj.weight: (heads columns, latent_q). kv_a_proj_with_mqa.weight:
    (latent_kv + shared, width_kv). k_b_proj.weight: (heads (columns - shared), latent_kv). v_b_proj.weight: (heads
    columns_v, latent_kv). o_proj.weight: (width, heads columns_v). q_a_layernorm.weight: (latent_q).
    kv_a_layernorm.weight: (latent_kv). shared: columns of each key that all heads share; they are rotated, so rotary
    must be given. A state dict of DeepSeek has k and v of each head in turn in kv_b_proj.weight; it is split.
    """

    def __init__(self, width, heads, latent_q, latent_kv, *, columns, columns_v=None, shared=0, width_kv=None,
                 bias=False, norm=True, device=None, dtype=None, **more):
        super().__init__("mla", heads, heads, **more)
        columns_v = columns if columns_v is None else columns_v
        width_kv = width if width_kv is None else width_kv
        _check_counts(width=width, latent_q=latent_q, latent_kv=latent_kv, columns=columns, columns_v=columns_v,
                      width_kv=width_kv)
        _check_counts(0, shared=shared)
        self._columns = (columns - shared, columns_v)
        self.q_a_proj = Linear(width, latent_q, bias, device, dtype)
        self.q_b_proj = Linear(latent_q, heads * columns, bias, device, dtype)
        self.kv_a_proj_with_mqa = Linear(width_kv, latent_kv + shared, bias, device, dtype)
        self.k_b_proj = Linear(latent_kv, heads * (columns - shared), bias, device, dtype)
        self.v_b_proj = Linear(latent_kv, heads * columns_v, bias, device, dtype)
        self.o_proj = Linear(heads * columns_v, width, bias, device, dtype)
        self.q_a_layernorm = self._norm(latent_q, norm, device, dtype)
        self.kv_a_layernorm = self._norm(latent_kv, norm, device, dtype)
        self.register_load_state_dict_pre_hook(self._split_kv_b)

    @staticmethod
    def _split_kv_b(module, state, prefix, *_):
        for part in ("weight", "bias"):
            rows = state.pop(f"{prefix}kv_b_proj.{part}", None)
            if rows is not None:
                k, v = rows.unflatten(0, (-1, sum(module._columns))).split(module._columns, 1)
                state[f"{prefix}k_b_proj.{part}"], state[f"{prefix}v_b_proj.{part}"] = k.flatten(0, 1), v.flatten(0, 1)

    def _cache_columns(self):
        return {"latent": self.kv_a_proj_with_mqa.out_features}

    def _parts(self):
        parts = {"q_down": self.q_a_proj, "q": self.q_b_proj, "kv_down": self.kv_a_proj_with_mqa, "k": self.k_b_proj,
                 "v": self.v_b_proj, "out": self.o_proj}
        if self.q_a_layernorm is None:
            return parts
        return parts | {"q_latent_norm": self.q_a_layernorm, "kv_latent_norm": self.kv_a_layernorm}
