"""fovea.flash_attn: a grid of problems as in flash-attn's own tests, and its arguments."""

import pytest
import torch

import fovea
from fovea import flash_attn
from torch_answers import DEVICES, assert_close


def visible(len_q, len_k, causal, window, device):
    """[len_q, len_k]; the last row's own key is the last key."""
    distance = torch.arange(len_k)[None, :] - torch.arange(len_q)[:, None] - (len_k - len_q)
    left, right = window
    seen = torch.ones(len_q, len_k, dtype=torch.bool)
    if left != -1:
        seen &= distance >= -left
    if causal or right != -1:
        seen &= distance <= (0 if causal else right)
    return seen.to(device)


def formula(q, k, v, seen, dout):
    """(out, dq, dk, dv), every step in the type of the inputs; rows that see no key are 0."""
    inputs = [one.detach().requires_grad_() for one in (q, k, v)]
    q, k, v = (one.transpose(1, 2) for one in inputs)
    k, v = (one.repeat_interleave(q.shape[1] // one.shape[1], 1) for one in (k, v))
    scores = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).masked_fill(~seen, -torch.inf)
    out = (scores.softmax(-1).nan_to_num() @ v).transpose(1, 2)
    return out.detach(), *torch.autograd.grad(out, inputs, dout)


def grid():
    """Device, columns and lengths. On the CPU each number of columns has one pair of lengths, as all take minutes."""
    lengths = [(113, 203), (128, 217), (108, 256), (256, 512)]
    for number, dim in enumerate([32, 40, 59, 64, 96, 111, 128, 160, 192, 256]):
        yield "cpu", dim, lengths[number % 4]
        if "cuda" in DEVICES:
            yield from (("cuda", dim, one) for one in lengths)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("heads", [(6, 6), (6, 1), (6, 2)], ids=["mha", "mqa", "gqa"])
@pytest.mark.parametrize("mask", [(False, (-1, -1)), (True, (-1, -1)), (False, (20, 11)), (True, (20, -1))], ids=str)
@pytest.mark.parametrize("device, dim, lengths", list(grid()))
def test_grid(device, dtype, heads, mask, dim, lengths):
    """The result within twice, gradients within three times the error of a plain evaluation, and a rounding."""
    causal, window = mask
    generator = torch.Generator().manual_seed(0)
    queries, keys = (2, lengths[0], heads[0]), (2, lengths[1], heads[1])
    shapes = [queries, keys, keys, queries]
    q, k, v, dout = (torch.randn(*one, dim, generator=generator).to(device, dtype) for one in shapes)
    inputs = [one.requires_grad_() for one in (q, k, v)]
    out = flash_attn.flash_attn_func(*inputs, causal=causal, window_size=window)
    results = out.detach(), *torch.autograd.grad(out, inputs, dout)
    seen = visible(*lengths, causal, window, device)
    exact = formula(*(one.detach().double() for one in (q, k, v)), seen, dout.double())
    plain = formula(q, k, v, seen, dout)
    assert_close(results, exact, plain, (2, 3, 3, 3))


def test_packed_tensors_are_views():
    qkv = torch.randn(2, 70, 3, 4, 32)
    q, k, v = qkv.unbind(2)
    wanted = flash_attn.flash_attn_func(q, k, v, causal=True)
    assert torch.equal(flash_attn.flash_attn_qkvpacked_func(qkv, causal=True), wanted)
    assert torch.equal(flash_attn.flash_attn_kvpacked_func(q, qkv[:, :, 1:], 0.0, None, True), wanted)
    qkv.requires_grad_()
    gradient, = torch.autograd.grad(flash_attn.flash_attn_qkvpacked_func(qkv).sum(), qkv)
    assert gradient.shape == qkv.shape and gradient.isfinite().all()


def test_lse_is_returned():
    q, k, v = torch.randn(3, 1, 5, 2, 8)
    out, lse, none = flash_attn.flash_attn_func(q, k, v, return_attn_probs=True)
    assert none is None and lse.shape == (1, 2, 5) and lse.dtype == torch.float32
    scores = q.transpose(1, 2) @ k.transpose(1, 2).transpose(-1, -2) * 8 ** -0.5
    assert torch.allclose(lse, scores.logsumexp(-1), atol=1e-6)


@pytest.mark.parametrize("arguments", [{"dropout_p": 0.1}, {"softcap": 30.0}, {"alibi_slopes": torch.ones(2)}],
                         ids=str)
def test_what_is_missing_is_refused_by_name(arguments):
    q, k, v = torch.randn(3, 1, 5, 2, 8)
    with pytest.raises(fovea.Unsupported, match=f"{next(iter(arguments))}: got .*wanted"):
        flash_attn.flash_attn_func(q, k, v, **arguments)


@pytest.mark.parametrize("arguments", [{"window_size": 3}, {"window_size": None}, {"window_size": (1, 2, 3)},
                                       {"window_size": (1.5, 0)}, {"softmax_scale": "half"}], ids=str)
def test_arguments_of_another_type(arguments):
    q, k, v = torch.randn(3, 1, 5, 2, 8)
    with pytest.raises(TypeError, match=f"^{next(iter(arguments))}: got .*wanted"):
        flash_attn.flash_attn_func(q, k, v, **arguments)


def test_packed_tensors_of_another_shape():
    q, kv = torch.randn(1, 5, 2, 8), torch.randn(1, 5, 2, 2, 8)
    with pytest.raises(ValueError, match=r"^kv: got shape \(1, 5, 2, 8\); wanted \(batch, length, 2, heads, columns\)"):
        flash_attn.flash_attn_kvpacked_func(q, q)
    with pytest.raises(ValueError, match="^qkv: got shape .*; wanted .batch, length, 3"):
        flash_attn.flash_attn_qkvpacked_func(kv)
    with pytest.raises(TypeError, match="^kv: got list; wanted a tensor"):
        flash_attn.flash_attn_kvpacked_func(q, [kv])
