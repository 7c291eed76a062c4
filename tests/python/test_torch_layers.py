"""fovea.torch_layers: each kind against its formula, operators, state dicts, refusals."""

import copy

import pytest
import torch

import fovea
from fovea import torch_layer_calls
from fovea.torch_layers import (FusedMultiHeadAttention, GroupedQueryAttention, MultiHeadAttention,
                                MultiHeadLatentAttention, MultiQueryAttention, Rotary)
from process_memory import leaks_nothing
from torch_answers import DEVICES, assert_close

WIDTH, LENGTH = 48, 37


def latent(**more):
    return MultiHeadLatentAttention(WIDTH, 4, 40, 24, columns=24, columns_v=16, **more)


# The layer, and the length and width of x_kv.
CASES = {
    "fused, bias, causal": (lambda: FusedMultiHeadAttention(WIDTH, 4, causal=True), None),
    "fused, rotary": (lambda: FusedMultiHeadAttention(WIDTH, 4, bias=False, rotary=Rotary(pairs="interleaved")), None),
    "mha, window": (lambda: MultiHeadAttention(WIDTH, 4, window=(5, 0)), None),
    "mha, bias, rotary": (lambda: MultiHeadAttention(WIDTH, 4, bias=True, rotary=Rotary(100.0, columns=8)), None),
    "gqa, rotary, norm": (lambda: GroupedQueryAttention(WIDTH, 4, 2, causal=True, norm=True, rotary=Rotary()), None),
    "gqa, cross": (lambda: GroupedQueryAttention(WIDTH, 4, 2, width_kv=40, causal=True, align="bottom_right"),
                   (50, 40)),
    "mqa, columns, scale": (lambda: MultiQueryAttention(WIDTH, 3, columns=24, columns_v=8, causal=True, scale=0.3),
                            None),
    "mla": (lambda: latent(causal=True), None),
    "mla, no norm": (lambda: latent(norm=False), None),
    "mla, DeepSeek": (lambda: latent(shared=8, rotary=Rotary(pairs="interleaved"), causal=True), None),
}


def heads_of(rows, count):
    return rows.unflatten(-1, (count, -1)).transpose(1, 2)


def rotated(heads, theta, pairs, columns):
    """The first `columns` of each head, or all."""
    if theta is None:
        return heads
    columns = columns or heads.shape[-1]
    half = columns // 2
    angles = torch.arange(heads.shape[2], dtype=torch.float64)[:, None] * theta ** (-torch.arange(half) / half).double()
    cos, sin = (one.to(heads.device, heads.dtype) for one in (angles.cos(), angles.sin()))
    first, rest = heads[..., :columns], heads[..., columns:]
    a, b = (first[..., :half], first[..., half:]) if pairs == "halves" else (first[..., ::2], first[..., 1::2])
    turned = a * cos - b * sin, a * sin + b * cos
    first = torch.cat(turned, -1) if pairs == "halves" else torch.stack(turned, -1).flatten(-2)
    return torch.cat((first, rest), -1)


def projected(layer, x, x_kv):
    """q, k and v by head, normalised and rotated; and the output projection."""
    kind, heads, heads_kv, *rotary = layer._words[:6]
    if kind == "mha_fused":
        q, k, v = torch.nn.functional.linear(x, layer.in_proj_weight, layer.in_proj_bias).chunk(3, -1)
        return *(rotated(heads_of(one, heads), *rotary) for one in (q, k)), heads_of(v, heads), layer.out_proj
    if kind != "mla":
        q, k = heads_of(layer.q_proj(x), heads), heads_of(layer.k_proj(x_kv), heads_kv)
        if layer.q_norm is not None:
            q, k = layer.q_norm(q), layer.k_norm(k)
        return rotated(q, *rotary), rotated(k, *rotary), heads_of(layer.v_proj(x_kv), heads_kv), layer.o_proj
    rows_q, rows_kv = layer.q_a_proj(x), layer.kv_a_proj_with_mqa(x_kv)
    columns = layer.k_b_proj.in_features
    rows_kv, shared = rows_kv[..., :columns], rows_kv[..., columns:]
    if layer.q_a_layernorm is not None:
        rows_q, rows_kv = layer.q_a_layernorm(rows_q), layer.kv_a_layernorm(rows_kv)
    q = heads_of(layer.q_b_proj(rows_q), heads)
    k, v = (heads_of(one(rows_kv), heads) for one in (layer.k_b_proj, layer.v_b_proj))
    if shared.shape[-1]:
        shared = rotated(heads_of(shared, 1), *rotary).expand(-1, heads, -1, -1)
        q = torch.cat((q[..., :-shared.shape[-1]], rotated(q[..., -shared.shape[-1]:], *rotary)), -1)
        k = torch.cat((k, shared), -1)
    return q, k, v, layer.o_proj


def formula(layer, x, x_kv=None):
    q, k, v, out = projected(layer, x, x if x_kv is None else x_kv)
    k, v = (one.repeat_interleave(q.shape[1] // one.shape[1], 1) for one in (k, v))
    causal, left, right, align, scale = layer._words[7:]
    distance = torch.arange(k.shape[2])[None, :] - torch.arange(q.shape[2])[:, None]
    distance = (distance - (k.shape[2] - q.shape[2] if align == "bottom_right" else 0)).to(x.device)
    seen = distance <= (0 if causal else k.shape[2] if right is None else right)
    seen &= distance >= (-k.shape[2] if left is None else -left)
    scores = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    weights = scores.masked_fill(~seen, -torch.inf).softmax(-1)
    return out((weights @ v).transpose(1, 2).flatten(2))


def inputs_of(other, device="cpu", dtype=torch.float32):
    generator = torch.Generator().manual_seed(1)
    shapes = [(2, LENGTH, WIDTH)] + ([] if other is None else [(2, *other)])
    return [torch.randn(one, generator=generator).to(device, dtype).requires_grad_() for one in shapes]


def answers(call, layer, inputs):
    """The result, and the gradients of inputs and parameters for a random gradient of the result."""
    y = call(*inputs)
    dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(2)).to(y.device, y.dtype)
    return y.detach(), *torch.autograd.grad(y, (*inputs, *layer.parameters()), dy)


def made(case, device="cpu", dtype=torch.float32):
    torch.manual_seed(0)
    make, other = CASES[case]
    return make().to(device, dtype), inputs_of(other, device, dtype)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("case", CASES)
def test_results_and_gradients_are_the_formula(device, dtype, case):
    layer, inputs = made(case, device, dtype)
    results = answers(layer, layer, inputs)
    double, doubles = copy.deepcopy(layer).double(), [one.detach().double().requires_grad_() for one in inputs]
    exact = answers(lambda *one: formula(double, *one), double, doubles)
    plain = answers(lambda *one: formula(layer, *one), layer, inputs)
    assert_close(results, exact, plain, [2] + [3] * (len(results) - 1))


@pytest.mark.parametrize("bias", [True, False])
def test_the_state_dict_of_pytorchs_module(bias):
    theirs = torch.nn.MultiheadAttention(WIDTH, 4, bias=bias, batch_first=True)
    layer = FusedMultiHeadAttention(WIDTH, 4, bias=bias)
    layer.load_state_dict(theirs.state_dict())
    theirs.load_state_dict(layer.state_dict())
    x, = inputs_of(None)
    assert torch.allclose(layer(x), theirs(x, x, x)[0], atol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", ["fused, bias, causal", "gqa, cross", "mla, DeepSeek"])
def test_compiled_without_a_break_to_the_same_bits(device, case):
    layer, inputs = made(case, device)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    pairs = zip(answers(compiled, layer, inputs), answers(layer, layer, inputs), strict=True)
    assert all(torch.equal(*pair) for pair in pairs)


def tensors_of(layer, inputs):
    parameters = layer._parameters_by_name()
    tensors = [*inputs, *[None] * (2 - len(inputs)), *(parameters.get(name) for name in torch_layer_calls.NAMES[2:])]
    return [None if one is None else one.detach() for one in tensors]


@pytest.mark.parametrize("case", CASES)
def test_gradients_by_differences(case):
    layer, inputs = made(case)
    inputs = [one.detach()[:1, :4].requires_grad_() for one in inputs]
    # In fp32: steps of 10^-2 leave 10^-4 of truncation, and rounding of 10^-7 / 10^-2.
    assert torch.autograd.gradcheck(layer, inputs, eps=1e-2, atol=1e-3, rtol=1e-2, nondet_tol=0.0)


@pytest.mark.parametrize("case", CASES)
def test_opcheck(case):
    layer, inputs = made(case)
    tensors = tensors_of(layer, inputs)
    torch.library.opcheck(torch.ops.fovea.layer.default, (tensors, False, *layer._words))
    # Without comparing results: nobody writes the bytes between the tensors in `saved`.
    torch.library.opcheck(torch.ops.fovea.layer.default, (tensors, True, *layer._words),
                          test_utils=("test_schema", "test_faketensor"))
    y, saved = torch.ops.fovea.layer(tensors, True, *layer._words)
    wanted = [one is not None for one in tensors]
    torch.library.opcheck(torch.ops.fovea.layer_backward.default, (y, tensors, wanted, saved, *layer._words))


def test_without_gradients_nothing_is_saved():
    layer, inputs = made("gqa, rotary, norm")
    with torch.no_grad():
        y = layer(*inputs)
    assert not y.requires_grad and torch.equal(y, layer(*inputs))


def test_frozen_parameters_get_no_gradient():
    layer, inputs = made("mha, window")
    layer(*inputs).sum().backward()
    wanted = layer.v_proj.weight.grad
    layer.zero_grad()
    layer.q_proj.requires_grad_(False)
    layer(inputs[0].detach()).sum().backward()
    assert layer.q_proj.weight.grad is None and torch.equal(layer.v_proj.weight.grad, wanted)


def test_autocast():
    layer, inputs = made("gqa, cross")
    with torch.autocast("cpu", torch.bfloat16):
        y = layer(*inputs)
    assert y.dtype == torch.bfloat16
    y.sum().backward()
    assert all(one.grad.dtype == torch.float32 for one in (*inputs, *layer.parameters()))


def test_a_cache_under_autocast():
    layer, (x,) = made("gqa, rotary, norm")
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        cache = layer.new_cache(2, LENGTH)
        y = torch.cat([layer(part, cache=cache) for part in x.split([30, 7], 1)], 1)
    assert y.dtype == cache.k.dtype == torch.bfloat16
    assert torch.allclose(y.float(), layer(x), atol=0.05)


def test_an_empty_batch():
    layer, inputs = made("fused, bias, causal")
    y = layer(inputs[0][:0])
    y.sum().backward()
    assert y.shape == (0, LENGTH, WIDTH) and (layer.in_proj_weight.grad == 0).all()


def test_a_second_derivative_is_refused():
    layer, inputs = made("mla")
    with pytest.raises(fovea.Unsupported, match="no second derivative"):
        torch.autograd.grad(layer(*inputs).sum(), inputs, create_graph=True)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case", ["fused, bias, causal", "mha, window", "gqa, rotary, norm", "mqa, columns, scale",
                                  "mla", "mla, DeepSeek"])
def test_step_by_step_with_a_cache(device, case):
    layer, (x,) = made(case, device)
    cache = layer.new_cache(2, LENGTH + 3)
    with torch.no_grad():
        y = torch.cat([layer(part, cache=cache) for part in x.split([3, 17, 1, 12, 4], 1)], 1)
        exact = copy.deepcopy(layer).double()
        assert_close([y], [formula(exact, x.double())], [formula(layer, x)], [2])
        cache.length = 20  # forgets what came later
        assert torch.equal(layer(x[:, 20:21], cache=cache), y[:, 20:21])


@pytest.mark.parametrize("case", ["gqa, rotary, norm", "mla, DeepSeek"])
def test_a_step_as_an_operator(case):
    layer, (x,) = made(case)
    x = x.detach()
    caches = [layer.new_cache(2, LENGTH) for _ in range(2)]
    compiled = torch.compile(lambda x, cache: layer(x, cache=cache), fullgraph=True, backend="aot_eager")
    with torch.no_grad():
        for part in x.split(1, 1):
            assert torch.equal(compiled(part, caches[0]), layer(part, cache=caches[1]))
    cache = layer.new_cache(2, LENGTH)
    memory = [None if one is None else one.zero_() for one in (cache.k, cache.v, cache.latent)]
    torch.library.opcheck(torch.ops.fovea.layer_step.default,
                          (tensors_of(layer, [x[:, :3]]), *memory, 5, *layer._words_with_cache()))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("case, dims", [("fused, bias, causal", (1,)), ("gqa, cross", (0, 0)),
                                        ("gqa, cross", (0, None)), ("mla, DeepSeek", (0,))], ids=str)
def test_vmap(device, case, dims):
    """The results of one call after the other; gradients of what is not mapped are sums."""
    layer, inputs = made(case, device)
    inputs = [one.detach() if dim is None else torch.stack([one, -one, 2 * one], dim).detach()
              for one, dim in zip(inputs, dims)]
    inputs = [one.requires_grad_() for one in inputs]

    def one_by_one(*inputs):
        singles = [[one] * 3 if dim is None else one.unbind(dim) for one, dim in zip(inputs, dims)]
        return torch.stack([layer(*single) for single in zip(*singles)])
    results, wanted = answers(torch.vmap(layer, dims), layer, inputs), answers(one_by_one, layer, inputs)
    assert all(torch.allclose(*pair, rtol=1e-4, atol=1e-5) for pair in zip(results, wanted, strict=True))


def test_torch_func():
    layer, (x,) = made("gqa, rotary, norm")
    parameters = {name: one.detach() for name, one in layer.named_parameters()}

    def loss(parameters, x):
        return torch.func.functional_call(layer, parameters, (x,)).square().sum()
    gradients = torch.func.grad(loss)(parameters, x.detach())
    wanted = torch.autograd.grad(layer(x).square().sum(), layer.parameters())
    assert all(torch.equal(*pair) for pair in zip(gradients.values(), wanted, strict=True))
    with pytest.raises(fovea.Unsupported, match="no second derivative"):
        torch.func.grad(lambda x: torch.func.grad(loss, 1)(parameters, x).sum())(x.detach())
    with pytest.raises(fovea.Unsupported, match="torch.vmap: got gradients of each element; wanted"):
        torch.vmap(torch.func.grad(loss), (None, 0))(parameters, x.detach()[None])
    mapped = {name: torch.stack([one, one]) for name, one in parameters.items()}
    with pytest.raises(fovea.Unsupported, match="torch.vmap: got q.weight, .* for each element; wanted"):
        torch.vmap(loss, (0, None))(mapped, x.detach())


def test_meta_tensors():
    layer, inputs = made("gqa, cross", "meta")
    y, *gradients = answers(layer, layer, [one.detach().requires_grad_() for one in inputs])
    assert y.shape == (2, LENGTH, WIDTH) and all(one.is_meta for one in (y, *gradients))


def test_ten_thousand_calls_leak_nothing():
    layer, x = MultiHeadAttention(8, 1, causal=True), torch.randn(1, 4, 8)
    parameters, cache = list(layer.parameters()), layer.new_cache(1, 4)

    def call():
        torch.autograd.grad(layer(x).sum(), parameters)
        cache.length = 0
        with torch.no_grad():
            layer(x, cache=cache)
    assert leaks_nothing(call)


@torch.no_grad()
def step(x, capacity, **more):
    layer = MultiHeadAttention(WIDTH, 4, causal=True, **more)
    return layer(x, cache=layer.new_cache(1, capacity))


@pytest.mark.parametrize("call, exception, words", [
    (lambda: MultiHeadAttention(WIDTH, 4)(torch.ones(3, WIDTH)), ValueError, "x: got shape .3, 48.*wanted .batch"),
    (lambda: MultiHeadAttention(WIDTH, 4)(torch.ones(1, 3, 40)), ValueError, "x: got shape .1, 3, 40.*length, 48"),
    (lambda: MultiHeadAttention(WIDTH, 4, width_kv=16)(*[torch.ones(1, 3, WIDTH)] * 2), ValueError,
     "x_kv: got shape .1, 3, 48.*length, 16"),
    (lambda: MultiHeadLatentAttention(WIDTH, 4, 40, -1, columns=24), ValueError,
     "latent_kv: got -1; wanted a whole number, 1 or more"),
    (lambda: latent(shared=-8), ValueError, "shared: got -8; wanted a whole number, 0 or more"),
    (lambda: MultiHeadAttention(WIDTH, True), ValueError, "heads: got True; wanted"),
    (lambda: MultiHeadAttention(WIDTH, 4, epsilon="a"), ValueError, "epsilon: got 'a'; wanted a number, 0 or more"),
    (lambda: MultiHeadAttention(WIDTH, 4)(torch.ones(1, 3, WIDTH).double()), TypeError, "x: got .*float64"),
    (lambda: MultiHeadAttention(WIDTH, 4).bfloat16()(torch.ones(1, 3, WIDTH)), fovea.InvalidArgument, "bf16"),
    (lambda: FusedMultiHeadAttention(WIDTH, 4)(*[torch.ones(1, 3, WIDTH)] * 2), fovea.InvalidArgument, "x_kv"),
    (lambda: MultiHeadAttention(WIDTH, 4, rotary=Rotary(pairs="all")), ValueError, "rotary: got pairs 'all'"),
    (lambda: MultiHeadAttention(WIDTH, 4, window=3), TypeError, "window: got 3"),
    (lambda: latent(shared=8)(torch.ones(1, 3, WIDTH)), fovea.InvalidArgument, "rotary"),
    (lambda: MultiHeadAttention(WIDTH, 4, rotary=True), TypeError, "rotary: got True; wanted a Rotary"),
    (lambda: MultiHeadAttention(WIDTH, 4, scale="half"), TypeError, "scale: got 'half'; wanted"),
    (lambda: MultiHeadAttention(WIDTH, 0), ValueError, "heads: got 0; wanted"),
    (lambda: MultiHeadAttention(WIDTH + 1, 2), ValueError, "heads: got 2; wanted a divisor of width"),
    (lambda: GroupedQueryAttention(WIDTH, 4, 2.0), ValueError, "heads_kv: got 2.0; wanted"),
    (lambda: MultiHeadAttention(WIDTH, 4)([1.0]), TypeError, "x: got list; wanted a tensor"),
    (lambda: MultiHeadAttention(WIDTH, 4, device="meta")(torch.ones(1, 3, WIDTH)), ValueError,
     "q.weight: got a tensor on meta; wanted cpu, where x is"),
    (lambda: MultiHeadAttention(WIDTH, 4)(torch.ones(1, 3, WIDTH), cache=latent().new_cache(1, 9)), fovea.Unsupported,
     "cache: got a call under autograd; wanted .*no_grad"),
    (lambda: torch.vmap(lambda x: step(x, 9), randomness="same")(torch.ones(1, 1, 3, WIDTH)), fovea.Unsupported,
     "cache: got a call under .*vmap; wanted .*no_grad"),
    (lambda: step(torch.ones(1, 3, WIDTH), 2), fovea.InvalidArgument, "cache.length.*(.|\n)*3 new ones"),
    (lambda: step(torch.ones(2, 3, WIDTH), 9), fovea.InvalidArgument, "cache.k"),
    (lambda: step(torch.ones(1, 3, WIDTH), 9, align="top_left"), ValueError, "align: got \"top_left\" with a cache"),
    (lambda: MultiHeadAttention(WIDTH, 4)(torch.ones(1, 3, WIDTH), cache=3), TypeError, "cache: got int; wanted")])
def test_refusals(call, exception, words):
    with pytest.raises(exception, match=words):
        call()
