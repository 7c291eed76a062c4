"""The operators of torch_layers.py: calls of layers, with autograd and the transforms of torch.func."""

import torch

from fovea import _core
from fovea.errors import Unsupported
from fovea.frameworks import framework_of
from fovea.torch import check_devices, dense, folded, gradient_of_result, refuse_second_derivative

_PROJECTIONS = ("qkv", "q_down", "q", "kv_down", "k", "v", "out")
NAMES = ("x", "x_kv", *(f"{one}.{part}" for one in _PROJECTIONS for part in ("weight", "bias")),
          "q_norm", "k_norm", "q_latent_norm", "kv_latent_norm")

_library = torch.library.Library("fovea", "FRAGMENT")
_WORDS = ("str kind, int heads, int heads_kv, float? theta, str pairs, int columns, float epsilon, bool causal, "
          "int? left, int? right, str? align, float? scale")
_library.define(f"layer(Tensor?[] tensors, bool saves, {_WORDS}) -> (Tensor y, Tensor saved)")
_library.define("layer_step(Tensor?[] tensors, Tensor(a!)? cache_k, Tensor(b!)? cache_v, Tensor(c!)? cache_latent, "
                f"SymInt cached, {_WORDS}) -> Tensor y")
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
    return {name: _view(one) for name, one in zip(NAMES, tensors, strict=True) if one is not None}


def _empty_result(tensors):
    x, out = tensors[0], tensors[NAMES.index("out.weight")]
    return x.new_empty((*x.shape[:2], out.shape[0]))


def _forward(tensors, saves, *words):
    y = _empty_result(tensors)
    saved = _core.layer_forward(_views(tensors) | {"y": _view(y)}, *_words(tensors, *words), saves, 0)
    return y, y.new_empty(0, dtype=torch.uint8) if saved is None else saved


def _step(tensors, k, v, latent, cached, *words):
    y = _empty_result(tensors)
    cache = {f"cache.{name}": _view(one) for name, one in (("k", k), ("v", v), ("latent", latent)) if one is not None}
    _core.layer_forward(_views(tensors) | cache | {"y": _view(y)}, *_words(tensors, *words), False, cached)
    return y


def _backward(dy, tensors, wanted, saved, *words):
    gradients = [torch.empty_like(one, requires_grad=False, memory_format=torch.contiguous_format) if asked else None
                 for one, asked in zip(tensors, wanted)]
    _core.layer_backward(_views(tensors) | {"dy": _view(dy)}, _views(gradients), (saved.data_ptr(), saved.numel()),
                         *_words(tensors, *words))
    return [one for one in gradients if one is not None]


for _device in ("CPU", "CUDA"):
    _library.impl("layer", _forward, _device)
    _library.impl("layer_step", _step, _device)
    _library.impl("layer_backward", _backward, _device)


@torch.library.register_fake("fovea::layer", lib=_library)
def _(tensors, saves, *words):
    check_devices(tensors, NAMES)
    y, count = _empty_result(tensors), 0
    if saves:
        views = _views(tensors) | {"y": _view(y)}
        shapes = {name: tuple(int(size) for size in one.shape) for name, one in views.items()}
        dtype, device = str(y.dtype).removeprefix("torch."), y.device.index if y.device.type == "cuda" else -1
        count = _core.layer_bytes_to_save(shapes, dtype, device, _words(tensors, *words)[1])
    return y, y.new_empty(count, dtype=torch.uint8)


@torch.library.register_fake("fovea::layer_step", lib=_library)
def _(tensors, k, v, latent, cached, *words):
    check_devices((*tensors, k, v, latent), (*NAMES, "cache.k", "cache.v", "cache.latent"))
    return _empty_result(tensors)


@torch.library.register_fake("fovea::layer_backward", lib=_library)
def _(dy, tensors, wanted, saved, *words):
    return [one.new_empty(one.shape) for one, asked in zip(tensors, wanted) if asked]


class _Layer(torch.autograd.Function):
    @staticmethod
    def forward(ctx, words, saves, *tensors):
        y, saved = torch.ops.fovea.layer(tensors, saves, *words)
        _MappedLayer.setup_context(ctx, (words, saves, *tensors), (y, saved))
        return y, saved

    @staticmethod
    def backward(ctx, dy, _):
        saved, *tensors = ctx.saved_tensors
        wanted = list(ctx.needs_input_grad[2:])
        results = iter(torch.ops.fovea.layer_backward(gradient_of_result(dy), tensors, wanted, saved, *ctx.words))
        return None, None, *(next(results) if asked else None for asked in wanted)


def _refuse_map(what):
    raise Unsupported(f"fovea.torch_layers: torch.vmap: got {what}; wanted x and x_kv alone, outside torch.func.grad",
                      "unsupported")


class _LayerGradients(torch.autograd.Function):
    """torch.func differentiates with create_graph=True, so only the derivative of this is a second one."""

    backward = staticmethod(refuse_second_derivative)

    @staticmethod
    def forward(dy, saved, wanted, words, *tensors):
        return tuple(torch.ops.fovea.layer_backward(dy, tensors, wanted, saved, *words))

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def vmap(*_):
        _refuse_map("gradients of each element")


class _MappedLayer(_Layer):
    """The form that torch.vmap and torch.func transform. PyTorch takes tens of microseconds longer to call it."""

    @staticmethod
    def forward(words, saves, *tensors):
        return torch.ops.fovea.layer(tensors, saves, *words)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.words, _, *tensors = inputs
        ctx.save_for_backward(output[1], *tensors)
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, dy, _):
        saved, *tensors = ctx.saved_tensors
        wanted = list(ctx.needs_input_grad[2:])
        results = iter(_LayerGradients.apply(dense(dy), saved, wanted, ctx.words, *tensors))
        return None, None, *(next(results) if asked else None for asked in wanted)

    @staticmethod
    def vmap(info, dims, words, saves, *tensors):
        """The dimension that is mapped becomes part of the batch."""
        mapped = [name for name, dim in zip(NAMES[2:], dims[4:]) if dim is not None]
        if mapped:
            _refuse_map(f"{', '.join(mapped)} for each element")
        rows = [None if one is None else folded(one, dim, info.batch_size) for one, dim in zip(tensors[:2], dims[2:4])]
        y, saved = _MappedLayer.apply(words, saves, *rows, *tensors[2:])
        return (y.unflatten(0, (info.batch_size, -1)), saved), (0, None)


def _records_gradients(tensors):
    return torch.is_grad_enabled() and any(one is not None and one.requires_grad for one in tensors)


def layer(words, tensors):
    """The result, recorded by autograd if something needs a gradient."""
    saves = _records_gradients(tensors)
    function = _MappedLayer if torch._C._are_functorch_transforms_active() else _Layer
    return function.apply(words, saves, *tensors)[0]


def step(words, tensors, cache):
    """The result for the tokens behind those in the cache, which gets theirs."""
    transformed = torch._C._are_functorch_transforms_active()
    if transformed or _records_gradients(tensors):
        where = "torch.func or torch.vmap" if transformed else "autograd"
        raise Unsupported(f"fovea.torch_layers: cache: got a call under {where}; wanted one under torch.no_grad() "
                          "alone", "unsupported")
    y = torch.ops.fovea.layer_step(tensors, cache.k, cache.v, cache.latent, cache.length, *words)
    cache.length += y.shape[1]
    return y
