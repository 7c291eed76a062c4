"""Attention layers as modules of PyTorch: projections, attention and the output projection in one call.

x and the result are (batch, length, width). The weights are those of torch.nn.Linear modules, so a state dict of the
same names and shapes loads. All are on the CPU or on one GPU, in float32, float16 or bfloat16. Gradients go to x, x_kv
and all parameters; a second derivative is refused.
"""

import typing

import torch
from torch.nn import Linear, RMSNorm

from fovea import _core
from fovea.frameworks import framework_of
from fovea.torch import cast, gradient_of_result, sides_of

_PROJECTIONS = ("qkv", "q_down", "q", "kv_down", "k", "v", "out")
_NAMES = ("x", "x_kv", *(f"{one}.{part}" for one in _PROJECTIONS for part in ("weight", "bias")),
          "q_norm", "k_norm", "q_latent_norm", "kv_latent_norm")

_library = torch.library.Library("fovea", "FRAGMENT")
_WORDS = ("str kind, int heads, int heads_kv, float? theta, str pairs, int columns, float epsilon, bool causal, "
          "int? left, int? right, str? align, float? scale")
_library.define(f"layer(Tensor?[] tensors, bool saves, {_WORDS}) -> (Tensor y, Tensor saved)")
_library.define(f"layer_backward(Tensor dy, Tensor?[] tensors, bool[] wanted, Tensor saved, {_WORDS}) -> Tensor[]")


def _words(tensors, kind, heads, heads_kv, theta, pairs, columns, epsilon, causal, left, right, align, scale):
    framework = framework_of(tensors[0], "x")
    window = None if left is None and right is None else (left, right)
    attention = (causal, window, align, scale, "bhld", None, 0, None)
    return framework, (kind, heads, heads_kv, None if theta is None else (theta, pairs, columns), epsilon, attention)


def _view(tensor):
    """As the library has it: (batch, 1, length, width), (1, 1, rows, columns) or (1, 1, 1, columns)."""
    tensor = tensor.detach()
    return tensor[:, None] if tensor.dim() == 3 else tensor[(None,) * (4 - tensor.dim())]


def _views(tensors):
    return {name: _view(one) for name, one in zip(_NAMES, tensors, strict=True) if one is not None}


def _empty_result(tensors):
    x, out = tensors[0], tensors[_NAMES.index("out.weight")]
    return x.new_empty((*x.shape[:2], out.shape[0]))


def _forward(tensors, saves, *words):
    y = _empty_result(tensors)
    saved = _core.layer_forward(_views(tensors) | {"y": _view(y)}, *_words(tensors, *words), saves)
    return y, y.new_empty(0, dtype=torch.uint8) if saved is None else saved


def _backward(dy, tensors, wanted, saved, *words):
    gradients = [torch.empty_like(one, requires_grad=False, memory_format=torch.contiguous_format) if asked else None
                 for one, asked in zip(tensors, wanted)]
    _core.layer_backward(_views(tensors) | {"dy": _view(dy)}, _views(gradients), (saved.data_ptr(), saved.numel()),
                         *_words(tensors, *words))
    return [one for one in gradients if one is not None]


for _device in ("CPU", "CUDA"):
    _library.impl("layer", _forward, _device)
    _library.impl("layer_backward", _backward, _device)


@torch.library.register_fake("fovea::layer", lib=_library)
def _(tensors, saves, *words):
    y, count = _empty_result(tensors), 0
    if saves:
        views = _views(tensors) | {"y": _view(y)}
        shapes = {name: tuple(int(size) for size in one.shape) for name, one in views.items()}
        dtype, device = str(y.dtype).removeprefix("torch."), -1 if y.device.type == "cpu" else y.device.index
        count = _core.layer_bytes_to_save(shapes, dtype, device, _words(tensors, *words)[1])
    return y, y.new_empty(count, dtype=torch.uint8)


@torch.library.register_fake("fovea::layer_backward", lib=_library)
def _(dy, tensors, wanted, saved, *words):
    return [one.new_empty(one.shape) for one, asked in zip(tensors, wanted) if asked]


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, words, saves, *tensors):
        y, saved = torch.ops.fovea.layer(tensors, saves, *words)
        ctx.save_for_backward(saved, *tensors)
        ctx.words = words
        return y

    @staticmethod
    def backward(ctx, dy):
        saved, *tensors = ctx.saved_tensors
        wanted = list(ctx.needs_input_grad[2:])
        results = iter(torch.ops.fovea.layer_backward(gradient_of_result(dy), tensors, wanted, saved, *ctx.words))
        return None, None, *(next(results) if asked else None for asked in wanted)


class Rotary(typing.NamedTuple):
    """Rotary embedding of q and k. Row i is at position i."""

    theta: float = 10000.0
    pairs: str = "halves"  # columns i and i + n / 2, as in Llama; or "interleaved": 2 i and 2 i + 1
    columns: int = 0  # of each head, from its first on; 0: all


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
        if rotary is not None and rotary.pairs not in ("halves", "interleaved"):
            raise ValueError(f'rotary: got pairs {rotary.pairs!r}; wanted "halves" or "interleaved"')
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

    def forward(self, x, x_kv=None):
        """(batch, length, width) to the same; keys and values come from x_kv, (batch, keys, width_kv), if given."""
        for name, one in (("x", x), ("x_kv", x_kv)):
            if one is not None and one.dim() != 3:
                raise ValueError(f"{name}: got shape {tuple(one.shape)}; wanted (batch, length, width)")
        parameters = self._parameters_by_name()
        tensors = cast([x, x_kv, *(parameters.get(name) for name in _NAMES[2:])])
        saves = torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in tensors)
        return _Layer.apply(self._words, saves, *tensors)


class FusedMultiHeadAttention(AttentionLayer):
    """One projection makes q, k and v. Loads the state dict of torch.nn.MultiheadAttention(width, heads).

    in_proj_weight: (3 width, width), rows of q, of k, of v. out_proj.weight: (width, width).
    """

    def __init__(self, width, heads, *, bias=True, device=None, dtype=None, **more):
        super().__init__("mha_fused", heads, heads, **more)
        theirs = torch.nn.MultiheadAttention(width, heads, bias=bias, device=device, dtype=dtype)
        self.in_proj_weight, self.out_proj = theirs.in_proj_weight, theirs.out_proj
        self.register_parameter("in_proj_bias", theirs.in_proj_bias)

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
        columns = width // heads if columns is None else columns
        columns_v = columns if columns_v is None else columns_v
        width_kv = width if width_kv is None else width_kv
        self.q_proj = Linear(width, heads * columns, bias, device, dtype)
        self.k_proj = Linear(width_kv, heads_kv * columns, bias, device, dtype)
        self.v_proj = Linear(width_kv, heads_kv * columns_v, bias, device, dtype)
        self.o_proj = Linear(heads * columns_v, width, bias, device, dtype)
        self.q_norm = self._norm(columns, norm, device, dtype)
        self.k_norm = self._norm(columns, norm, device, dtype)

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

    def _parts(self):
        parts = {"q_down": self.q_a_proj, "q": self.q_b_proj, "kv_down": self.kv_a_proj_with_mqa, "k": self.k_b_proj,
                 "v": self.v_b_proj, "out": self.o_proj}
        if self.q_a_layernorm is None:
            return parts
        return parts | {"q_latent_norm": self.q_a_layernorm, "kv_latent_norm": self.kv_a_layernorm}
