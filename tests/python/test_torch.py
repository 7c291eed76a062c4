"""Calls on tensors of PyTorch, on the CPU and on a GPU if there is one. CTest runs them where PyTorch is installed."""

import pytest
import torch

import fovea
import fovea.torch
from torch_answers import DEVICES, assert_close

TYPES = [torch.float32, torch.float16, torch.bfloat16]


def tensors(device, dtype, length=70):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, heads, length, 64, generator=generator).to(device, dtype) for heads in (4, 2, 2)]


def formula(inputs):
    """The result and the gradients of its sum, by PyTorch's plain evaluation in the inputs' type."""
    inputs = [one.detach().requires_grad_() for one in inputs]
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        out = torch.nn.functional.scaled_dot_product_attention(*inputs, is_causal=True, enable_gqa=True)
    out.sum().backward()
    return out.detach(), *(one.grad for one in inputs)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TYPES)
def test_results_are_those_of_sdpa(device, dtype):
    q, k, v = tensors(device, dtype)
    out, lse = fovea.attention(q, k, v, causal=True)
    assert out.dtype == dtype and lse.dtype == torch.float32 and out.device == lse.device == q.device
    gradients = fovea.attention_backward(torch.ones_like(out), q, k, v, out, lse, causal=True)
    assert all(one.dtype == dtype for one in gradients)
    assert_close((out, *gradients), formula([one.double() for one in (q, k, v)]), formula([q, k, v]))


@pytest.mark.parametrize("device", DEVICES)
def test_views_are_read_in_place(device):
    packed = torch.randn(2, 70, 3, 4, 64).to(device)  # q, k and v of a token side by side
    q, k, v = packed.unbind(2)
    out, lse = fovea.attention(q, k, v, layout="blhd")
    other, other_lse = fovea.attention(*(one.transpose(1, 2).contiguous() for one in (q, k, v)))
    assert torch.equal(out.transpose(1, 2), other) and torch.equal(lse, other_lse)


def test_a_tensor_that_requires_grad_is_refused():
    q, k, v = tensors("cpu", torch.float32)
    with pytest.raises(ValueError, match="q: the tensor requires grad.*detach"):
        fovea.attention(q.requires_grad_(), k, v)


@pytest.mark.parametrize("change, words", [(lambda q: q.double(), "torch.float64"), (lambda q: q.to("meta"), "meta"),
                                           (lambda q: q[0], "3 dimensions"),
                                           (torch._neg_view, "opposite sign.*resolve_neg")])
def test_other_tensors_are_refused(change, words):
    q, k, v = tensors("cpu", torch.float32)
    with pytest.raises((TypeError, ValueError), match=f"q: got .*{words}"):
        fovea.attention(change(q), k, v)


def test_a_view_of_the_opposite_sign():
    q, k, v = tensors("cpu", torch.float32)
    out, lse = fovea.attention(q, k, v)
    plan, view = fovea.Plan(q, k, v), torch._neg_view(q)
    for call, name in ((lambda: fovea.attention(q, k, v, out=view), "out"), (lambda: plan(view, k, v), "q"),
                       (lambda: fovea.attention_backward(view, q, k, v, out, lse), "dout")):
        with pytest.raises(ValueError, match=f"^{name}: got .*opposite sign.*resolve_neg"):
            call()
    assert torch.equal(fovea.torch.attention(view, k, v), fovea.attention(-q, k, v)[0])


@pytest.mark.skipif("cuda" not in DEVICES, reason="no GPU")
def test_a_graph_replays_the_same_bits():
    q, k, v = tensors("cuda", torch.bfloat16)
    wanted = fovea.attention(q, k, v, causal=True)[0]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out, _ = fovea.attention(q, k, v, causal=True)
    out.zero_()
    graph.replay()
    assert torch.equal(out, wanted)
