"""The implementation "fovea" in PyTorch's registry: what runs here, what PyTorch's own kernels take."""

import pytest
import torch
import torch.nn.attention.bias
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

import fovea
import fovea.torch
from fovea import torch_registry
from process_memory import leaks_nothing
from torch_answers import DEVICES, assert_close

if not torch_registry._PYTORCH_HAS_REGISTRY:
    pytest.skip("PyTorch without a registry of flash attention", allow_module_level=True)
from torch.nn.attention import restore_flash_attention_impl

CPU = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
CUDA = torch.ops.aten._scaled_dot_product_flash_attention


@pytest.fixture
def active():
    """Counts of the calls since."""
    fovea.torch.activate()
    before = fovea.torch.stats()
    yield lambda: {name: count - before.get(name, 0) for name, count in fovea.torch.stats().items()
                   if count != before.get(name, 0)}
    if torch.nn.attention.current_flash_attention_impl():
        restore_flash_attention_impl()


def tensors(device="cpu", dtype=torch.float32, heads=(4, 4), lengths=(20, 20), columns=16):
    generator = torch.Generator().manual_seed(0)
    shapes = [(2, heads[0], lengths[0], columns)] + [(2, heads[1], lengths[1], columns)] * 2
    return [torch.randn(one, generator=generator).to(device, dtype).requires_grad_() for one in shapes]


def answers(inputs, backend=SDPBackend.FLASH_ATTENTION, **arguments):
    """The result of SDPA, and the gradients for a random gradient of the result."""
    with sdpa_kernel(backend):
        out = functional.scaled_dot_product_attention(*inputs, **arguments)
    dout = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).to(out.device, out.dtype)
    return out.detach(), *torch.autograd.grad(out, inputs, dout)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("arguments", [{}, {"is_causal": True}, {"scale": 0.5}, {"enable_gqa": True}], ids=str)
def test_sdpa_runs_here(active, device, dtype, arguments):
    if device == "cuda" and dtype == torch.float32:
        pytest.skip("PyTorch's flash attention has no fp32 on CUDA")
    inputs = tensors(device, dtype, heads=(4, 2) if "enable_gqa" in arguments else (4, 4))
    results = answers(inputs, **arguments)
    assert active() == {"fovea": 2}
    doubles = [one.detach().double().requires_grad_() for one in inputs]
    assert_close(results, answers(doubles, SDPBackend.MATH, **arguments), answers(inputs, SDPBackend.MATH, **arguments),
                 (2, 3, 3, 3))
    assert active() == {"fovea": 2}


def test_causal_on_unequal_lengths_is_top_left(active):
    inputs = tensors(lengths=(20, 33))
    results = answers(inputs, is_causal=True)
    assert active() == {"fovea": 2}
    doubles = [one.detach().double().requires_grad_() for one in inputs]
    assert_close(results, answers(doubles, SDPBackend.MATH, is_causal=True),
                 answers(inputs, SDPBackend.MATH, is_causal=True), (2, 3, 3, 3))


@pytest.mark.parametrize("change, arguments, reason", [
    ({}, {"attn_mask": torch.ones(20, 20, dtype=torch.bool).tril()}, "attn_mask"),
    ({"dtype": torch.float64}, {"is_causal": True}, "torch.float64"),
    ({"columns": 5000}, {"is_causal": True}, "head dimension out of range")], ids=lambda one: str(one)[:20])
def test_other_calls_run_in_pytorchs_own_kernels(active, change, arguments, reason):
    inputs = tensors(**change)
    results = answers(inputs, **arguments)
    assert active() == {f"PyTorch: {reason}": 2}
    restore_flash_attention_impl()
    assert all(torch.equal(*pair) for pair in zip(results, answers(inputs, **arguments)))
    assert active() == {f"PyTorch: {reason}": 2}


def test_dropout_is_left_to_pytorch(active):
    with pytest.raises(RuntimeError, match="dropout"):  # of PyTorch's own kernel for the CPU
        CPU(*tensors(), 0.1)
    assert active() == {"PyTorch: dropout_p": 1}


@pytest.mark.parametrize("inputs", [tensors(), tensors(lengths=(20, 33)),
                                    [one.transpose(1, 2) for one in tensors()]], ids=["plain", "unequal", "views"])
def test_results_lie_in_memory_as_pytorchs_own(inputs):
    def results():
        out, lse = CPU(*inputs)
        return out, lse, *torch.autograd.grad(out, inputs, torch.ones_like(out))
    own = results()
    fovea.torch.activate()
    here = results()
    restore_flash_attention_impl()
    for one, other in zip(here, own):
        assert (one.shape, one.stride(), one.dtype) == (other.shape, other.stride(), other.dtype)
        assert torch.allclose(one, other, atol=1e-5)


def test_a_forward_pass_here_has_a_backward_pass_there(active):
    inputs = tensors()
    out = functional.scaled_dot_product_attention(*inputs, is_causal=True)
    restore_flash_attention_impl()
    gradients = torch.autograd.grad(out, inputs, torch.ones_like(out))
    assert active() == {"fovea": 1}
    wanted = torch.autograd.grad(functional.scaled_dot_product_attention(*inputs, is_causal=True), inputs,
                                 torch.ones_like(out))
    assert all(torch.allclose(*pair, atol=1e-5) for pair in zip(gradients, wanted))


@pytest.mark.parametrize("device", DEVICES)
def test_compiled_to_the_same_bits(active, device):
    inputs = tensors(device, torch.bfloat16)
    compiled = torch.compile(functional.scaled_dot_product_attention, fullgraph=True, backend="aot_eager")
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        assert torch.equal(compiled(*inputs, is_causal=True), answers(inputs, is_causal=True)[0])
    assert active() == {"fovea": 3}


@pytest.mark.parametrize("inputs", [tensors(), tensors(lengths=(33, 20)), [one.transpose(1, 2) for one in tensors()]],
                         ids=["plain", "unequal", "views"])
def test_the_kernel_for_cuda_answers_as_pytorch_announces(inputs):
    """The function itself runs on the CPU too. Its causal mask aligns at the bottom right."""
    results = torch_registry._cuda_forward(*inputs, is_causal=True)
    meta = [one.detach().to("meta") for one in inputs]
    announced = CUDA(*meta, is_causal=True)
    dout = torch.ones_like(results[0])
    gradients = torch_registry._cuda_backward(dout, *inputs, *results[:6], 0.0, True, *results[6:8])
    shapes = [one.to("meta") for one in (*results[:2], *results[6:8])]
    more = torch.ops.aten._scaled_dot_product_flash_attention_backward(
        dout.to("meta"), *meta, *shapes[:2], None, None, *results[4:6], 0.0, True, *shapes[2:])
    for one, other in zip((*results, *gradients), (*announced, *more), strict=True):
        if isinstance(other, torch.Tensor):
            assert (one.shape, one.stride(), one.dtype) == (other.shape, other.stride(), other.dtype)
        else:
            assert one == other
    wanted, lse = fovea.attention(*(one.detach() for one in inputs), causal=True, align="bottom_right")
    assert torch.equal(results[0], wanted) and torch.equal(results[1], lse)


@pytest.mark.skipif(torch.version.cuda is None, reason="PyTorch without CUDA")
def test_kernels_for_cuda_are_replaced_where_this_library_has_some(monkeypatch):
    def kernel():
        words = torch._C._dispatch_dump("aten::_scaled_dot_product_flash_attention")
        return next(line for line in words.splitlines() if line.startswith("CUDA:"))
    own = kernel()
    monkeypatch.setattr(fovea, "implementations", lambda: {"cuda.any": ("cuda", True, "")})
    fovea.torch.activate()
    assert "torch_registry.py" in kernel() != own
    restore_flash_attention_impl()
    assert kernel() == own


@pytest.mark.skipif("cuda" not in DEVICES, reason="no GPU")
def test_dropout_on_cuda_runs_in_pytorchs_own_kernels(active):
    answers(tensors("cuda", torch.bfloat16), dropout_p=0.5)
    assert active() == {"PyTorch: dropout_p": 2}


@pytest.mark.skipif("cuda" not in DEVICES, reason="no GPU")
def test_causal_lower_right_on_cuda(active):
    inputs = tensors("cuda", torch.bfloat16, lengths=(20, 33))
    mask = torch.nn.attention.bias.causal_lower_right(20, 33)
    results = answers(inputs, attn_mask=mask)
    assert active() == {"fovea": 2}
    seen = torch.ones(20, 33, dtype=torch.bool, device="cuda").tril(13)
    doubles = [one.detach().double().requires_grad_() for one in inputs]
    assert_close(results, answers(doubles, SDPBackend.MATH, attn_mask=seen),
                 answers(inputs, SDPBackend.MATH, attn_mask=seen), (2, 3, 3, 3))


def test_pytorch_without_a_registry(monkeypatch):
    monkeypatch.setattr(torch_registry, "_PYTORCH_HAS_REGISTRY", False)
    with pytest.raises(fovea.Unsupported, match="activate: got PyTorch .*wanted one that has"):
        fovea.torch.activate()


def test_ten_thousand_calls_leak_nothing(active):
    inputs = [one.requires_grad_() for one in torch.randn(3, 1, 1, 4, 8)]
    assert leaks_nothing(lambda: torch.autograd.grad(functional.scaled_dot_product_attention(*inputs).sum(), inputs))
    assert set(active()) == {"fovea"}
