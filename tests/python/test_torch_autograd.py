"""fovea.torch: gradients, operators, autocast, torch.compile."""

import numpy
import pytest
import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

import fovea
import fovea.torch
from process_memory import leaks_nothing
from torch_answers import DEVICES, assert_close


def tensors(device="cpu", dtype=torch.float32, length=20, heads=(4, 4, 4), requires_grad=True):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, count, length, 16, generator=generator).to(device, dtype).requires_grad_(requires_grad)
            for count in heads]


def gradients(function, inputs):
    """The result, and the gradients for a random gradient of the result."""
    out = function(*inputs)
    dout = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out.device, out.dtype)
    return out, *torch.autograd.grad(out, inputs, dout)


def sdpa(*inputs, **more):
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return functional.scaled_dot_product_attention(*inputs, **more)


def fused(q, k, v, is_causal, scale, enable_gqa):
    """By PyTorch's fused kernels, which take columns in eights, and on GPUs in fp32 no groups."""
    if enable_gqa:
        k, v = (one.repeat_interleave(q.shape[1] // k.shape[1], 1) for one in (k, v))
    padded = (functional.pad(one, (0, -one.shape[3] % 8)) for one in (q, k, v))
    out = functional.scaled_dot_product_attention(*padded, is_causal=is_causal, scale=scale or q.shape[3] ** -0.5)
    return out[..., :v.shape[3]]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("arguments", [{}, {"is_causal": True}, {"scale": 0.5}, {"enable_gqa": True}], ids=str)
def test_the_drop_in_is_sdpa(device, dtype, arguments):
    inputs = tensors(device, dtype, heads=(4, 2, 2) if arguments.get("enable_gqa") else (4, 4, 4))
    doubles = [one.detach().double().requires_grad_() for one in inputs]
    results = gradients(lambda *qkv: fovea.torch.scaled_dot_product_attention(*qkv, **arguments), inputs)
    assert_close(results, gradients(lambda *qkv: sdpa(*qkv, **arguments), doubles),
                 gradients(lambda *qkv: sdpa(*qkv, **arguments), inputs))


def grid():
    """Type, device, batch, lengths and columns, as PyTorch tests its own SDPA. The largest are for GPUs.

    With few queries in fp32 the plain evaluation's error is a matter of luck (docs/numerics.md), so they are left to
    `fovea verify`, which measures it in several ways.
    """
    lengths = [(1, (143, 127)), (1, (143, 579)), (1, (579, 4))]
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        few = [] if dtype == torch.float32 else [(8, (4, 4)), (2, (4, 579))]
        for device in DEVICES:
            large = [(1, (2048, 127)), (1, (2048, 2048))] if device == "cuda" else []
            yield from ((dtype, device, *one, columns) for one in lengths + few + large for columns in (8, 203, 256))


@pytest.mark.parametrize("heads", [(4, 4), (10, 2)], ids=["mha", "gqa"])
@pytest.mark.parametrize("is_causal", [False, True], ids=["plain", "causal"])
@pytest.mark.parametrize("scale", [None, "l1"])
@pytest.mark.parametrize("dtype, device, batch, lengths, columns", list(grid()))
def test_grid(dtype, device, batch, lengths, columns, scale, is_causal, heads):
    generator = torch.Generator().manual_seed(0)
    shapes = [(batch, heads[number > 0], lengths[number > 0], columns) for number in range(3)]
    inputs = [torch.randn(one, generator=generator).to(device, dtype).requires_grad_() for one in shapes]
    doubles = [one.detach().double().requires_grad_() for one in inputs]
    arguments = {"is_causal": is_causal, "scale": None if scale is None else 1 / columns, "enable_gqa": heads[1] == 2}
    results = gradients(lambda *qkv: fovea.torch.scaled_dot_product_attention(*qkv, **arguments), inputs)
    exact = gradients(lambda *qkv: sdpa(*qkv, **arguments), doubles)
    # The separate steps and PyTorch's fused kernel, whose larger error counts. Separate steps have no error in the
    # gradient of a row with one key; fused ones subtract two equal sums that were rounded differently.
    evaluations = [gradients(lambda *qkv: function(*qkv, **arguments), inputs)
                   for function in (sdpa, fused)]
    plain = [max(both, key=lambda one: (one - wanted).abs().max()) for *both, wanted in zip(*evaluations, exact)]
    assert_close(results, exact, plain)


def test_dimensions_before_the_heads():
    q, k, v = tensors()
    wanted = fovea.torch.scaled_dot_product_attention(q, k, v)
    assert torch.equal(fovea.torch.scaled_dot_product_attention(q[0], k[0], v[0]), wanted[0])
    assert torch.equal(fovea.torch.scaled_dot_product_attention(*(one[:, None] for one in (q, k, v))), wanted[:, None])


def test_windows_layouts_and_lse():
    q, k, v = tensors()
    out, lse = fovea.torch.attention(q, k, v, causal=True, window=(5, None), return_lse=True)
    wanted, wanted_lse = fovea.attention(q.detach(), k.detach(), v.detach(), causal=True, window=(5, None))
    assert torch.equal(out, wanted) and torch.equal(lse, wanted_lse) and not lse.requires_grad
    views = [one.transpose(1, 2) for one in (q, k, v)]
    blhd = fovea.torch.attention(*views, causal=True, window=(5, 0), layout="blhd")
    assert torch.equal(blhd.transpose(1, 2), out)


def test_gradients_by_differences():
    inputs = tensors(length=5)
    # In fp32: steps of 10^-2 leave 10^-4 of truncation, and rounding of 10^-7 / 10^-2.
    assert torch.autograd.gradcheck(lambda *qkv: fovea.torch.attention(*qkv, causal=True), inputs, eps=1e-2, atol=1e-3,
                                    rtol=1e-2, nondet_tol=0.0)


def test_opcheck():
    inputs = tensors(requires_grad=False)
    words = (True, None, None, None, None, "bhld")
    torch.library.opcheck(torch.ops.fovea.attention.default, (*inputs, *words))
    out, lse = torch.ops.fovea.attention(*inputs, *words)
    torch.library.opcheck(torch.ops.fovea.attention_backward.default, (out, *inputs, out, lse, *words))


@pytest.mark.parametrize("device", DEVICES)
def test_compiled_without_a_break_to_the_same_bits(device):
    inputs = tensors(device)

    def function(q, k, v):
        return fovea.torch.attention(q, k, v, causal=True)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    assert all(torch.equal(*pair) for pair in zip(gradients(compiled, inputs), gradients(function, inputs)))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dims", [(0, 0, 0), (1, 0, -1), (0, None, None), (None, 0, None)], ids=str)
def test_vmap(device, dims):
    """The same bits as one call after the other; gradients of inputs that are not mapped are sums."""
    inputs = [one.detach() for one in tensors(device, heads=(4, 2, 2))]
    inputs = [one if dim is None else torch.stack([one, -one, 2 * one], dim) for one, dim in zip(inputs, dims)]
    inputs = [one.requires_grad_() for one in inputs]

    def function(q, k, v):
        return fovea.torch.attention(q, k, v, causal=True)

    def one_by_one(*inputs):
        singles = [[one] * 3 if dim is None else one.unbind(dim) for one, dim in zip(inputs, dims)]
        return torch.stack([function(*(one.contiguous() for one in single)) for single in zip(*singles)])
    results, wanted = gradients(torch.vmap(function, dims), inputs), gradients(one_by_one, inputs)
    for result, other, dim in zip(results, wanted, (0, *dims), strict=True):
        assert torch.equal(result, other) if dim is not None else torch.allclose(result, other, atol=1e-5)


def test_vmap_of_a_vmap_and_of_lse():
    q, k, v = (torch.stack([one, -one]) for one in tensors(requires_grad=False))
    _, lse = fovea.torch.attention(q[1], k[1], v[1], return_lse=True)
    mapped = torch.vmap(lambda *qkv: fovea.torch.attention(*qkv, return_lse=True)[1])
    assert torch.equal(mapped(q, k, v)[1], lse)
    assert torch.equal(torch.vmap(mapped)(*(one[None] for one in (q, k, v)))[0, 1], lse)


def test_torch_func_differentiates_once():
    inputs = tensors()
    wanted = torch.autograd.grad(fovea.torch.attention(*inputs, causal=True).sum(), inputs)
    inputs = [one.detach() for one in inputs]

    def function(*qkv):
        return fovea.torch.attention(*qkv, causal=True).sum()
    gradients = torch.func.grad(function, (0, 1, 2))
    assert all(torch.equal(*pair) for pair in zip(gradients(*inputs), wanted))
    mapped = torch.vmap(gradients)(*(one[:, None] for one in inputs))  # of each element of the batch
    assert all(torch.equal(one[:, 0], other) for one, other in zip(mapped, wanted))
    with pytest.raises(fovea.Unsupported, match="no second derivative.*one transform of torch.func"):
        torch.func.grad(lambda q: gradients(q, *inputs[1:])[0].sum())(inputs[0])


@pytest.mark.parametrize("device", DEVICES)
def test_who_looks_at_calls_sees_the_operators(device):
    """A call without the dispatcher gives the same bits."""
    class Names(TorchDispatchMode):
        def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
            names.append(str(operator))
            return operator(*args, **(kwargs or {}))

    names, inputs = [], tensors(device)
    direct = gradients(fovea.torch.attention, inputs)
    with Names():
        under_mode = gradients(fovea.torch.attention, inputs)
    with torch.profiler.profile() as profile:
        profiled = gradients(fovea.torch.attention, inputs)
    for one, *others in zip(direct, under_mode, profiled):
        assert all(torch.equal(one, other) for other in others)
    for seen in (names, [one.key.replace("::", ".") for one in profile.key_averages()]):
        assert {"fovea.attention", "fovea.attention_backward"} <= {name.removesuffix(".default") for name in seen}


def test_negative_views():
    """The dispatcher makes copies of them."""
    k, v = tensors()[1:]
    q = torch.view_as_complex(torch.randn(*k.shape, 2)).conj().imag.requires_grad_()
    assert q.is_neg()
    copy = q.detach().resolve_neg().contiguous().requires_grad_()
    for one, other in zip(gradients(fovea.torch.attention, (q, k, v)), gradients(fovea.torch.attention, (copy, k, v))):
        assert torch.equal(one, other)


def test_meta_tensors():
    inputs = [one.detach().to("meta").requires_grad_() for one in tensors()]
    results = gradients(lambda *qkv: fovea.torch.scaled_dot_product_attention(*qkv, is_causal=True), inputs)
    assert all(one.is_meta and one.shape == inputs[0].shape for one in results)
    q, k, v = tensors()
    with pytest.raises(ValueError, match="k: got a tensor on device meta; wanted cpu"):
        fovea.torch.attention(q, k.to("meta"), v)


def test_autocast():
    inputs = tensors()
    with torch.autocast("cpu", torch.bfloat16):
        out = fovea.torch.attention(*inputs)
    assert out.dtype == torch.bfloat16
    assert all(one.dtype == torch.float32 for one in torch.autograd.grad(out.sum(), inputs))


def test_a_second_derivative_is_refused():
    inputs = tensors()
    out = fovea.torch.attention(*inputs)
    with pytest.raises(fovea.Unsupported, match="no second derivative.*create_graph"):
        torch.autograd.grad(out.sum(), inputs, create_graph=True)


def test_forward_mode_is_refused():
    q, k, v = tensors(requires_grad=False)
    with torch.autograd.forward_ad.dual_level(), pytest.raises(NotImplementedError, match="forward mode"):
        fovea.torch.attention(torch.autograd.forward_ad.make_dual(q, torch.ones_like(q)), k, v)


@pytest.mark.parametrize("arguments, words", [({"attn_mask": torch.ones(20, 20, dtype=torch.bool)}, "attn_mask: got"),
                                              ({"dropout_p": 0.1}, "dropout_p: got 0.1")])
def test_the_drop_in_refuses(arguments, words):
    with pytest.raises(fovea.Unsupported, match=words):
        fovea.torch.scaled_dot_product_attention(*tensors(), **arguments)


@pytest.mark.parametrize("arguments", [{"window": (1, 2, 3)}, {"window": 3}, {"window": (1.5, 0)},
                                       {"window": (2 ** 63, 0)}, {"scale": "half"}], ids=str)
def test_arguments_of_another_type(arguments):
    with pytest.raises(TypeError, match=f"{next(iter(arguments))}: got .*wanted"):
        fovea.torch.attention(*tensors(), **arguments)


@pytest.mark.parametrize("other", [[1.0], numpy.ones((2, 4, 20, 16), numpy.float32), None],
                         ids=["list", "array", "None"])
def test_what_is_no_tensor(other):
    q, k, v = tensors()
    for position, (name, long_name) in enumerate((("q", "query"), ("k", "key"), ("v", "value"))):
        inputs = [q, k, v]
        inputs[position] = other
        with pytest.raises(TypeError, match=f"^{name}: got {type(other).__name__}; wanted a tensor"):
            fovea.torch.attention(*inputs)
        with pytest.raises(TypeError, match=f"^{long_name}: got {type(other).__name__}; wanted a tensor"):
            fovea.torch.scaled_dot_product_attention(*inputs)


def test_numbers_of_numpy():
    q, k, v = tensors()
    wanted = fovea.torch.attention(q, k, v, window=(3, 0))
    assert torch.equal(fovea.torch.attention(q, k, v, window=(numpy.int64(3), numpy.int32(0))), wanted)


def test_unequal_heads_need_enable_gqa():
    with pytest.raises(ValueError, match="key: got 2 heads, query has 4.*enable_gqa"):
        fovea.torch.scaled_dot_product_attention(*tensors(heads=(4, 2, 2)))


def test_ten_thousand_calls_leak_nothing():
    inputs = [one.requires_grad_() for one in torch.randn(3, 1, 1, 4, 8)]
    assert leaks_nothing(lambda: torch.autograd.grad(fovea.torch.attention(*inputs).sum(), inputs))
