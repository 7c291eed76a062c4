"""The implementation "fovea" in PyTorch's registry of flash attention.

    import fovea.torch
    torch.nn.attention.activate_flash_attention_impl("fovea")

PyTorch's scaled_dot_product_attention chooses a back end for each call. While "fovea" is active, the kernels of the
back end FLASH_ATTENTION are this library's: on the CPU, and on CUDA if the library has kernels for the GPU. What they
do not take runs in PyTorch's own kernels.
"""

import collections

import torch
import torch.nn.attention

import fovea
from fovea.errors import Error, InvalidArgument, Unsupported

_TYPES = (torch.float32, torch.float16, torch.bfloat16)
_PYTORCH_HAS_REGISTRY = (hasattr(torch.nn.attention, "register_flash_attention_impl")
                         and hasattr(torch.library, "get_kernel"))
_calls = collections.Counter()


def stats() -> dict[str, int]:
    """How many kernels ran here, as "fovea", and how many were PyTorch's own, by reason. Each pass is one kernel."""
    return dict(_calls)


def activate() -> None:
    """activate_flash_attention_impl("fovea") of torch.nn.attention. PyTorch without a registry is an Unsupported."""
    if not _PYTORCH_HAS_REGISTRY:
        raise Unsupported(f"fovea.torch.activate: got PyTorch {torch.__version__}; wanted one that has "
                          "torch.nn.attention.register_flash_attention_impl and torch.library.get_kernel",
                          "unsupported")
    torch.nn.attention.activate_flash_attention_impl("fovea")


class _LeftToPyTorch(Exception):
    """A call that PyTorch's own kernel takes; the text is the reason."""


class _Kernel:
    """A kernel for one operator and device. PyTorch's own is looked up before this one replaces it."""

    def __init__(self, function, operator, device):
        self._function, self._own = function, torch.library.get_kernel(f"aten::{operator}", device)

    def __call__(self, keys, *arguments, **more):
        try:
            results = self._function(*arguments, **more)
        except (_LeftToPyTorch, Unsupported, InvalidArgument) as refused:
            _calls[f"PyTorch: {refused.problem if isinstance(refused, Error) else refused}"] += 1
            return self._own.call_boxed(keys, *arguments, **more)
        _calls["fovea"] += 1
        return results


def _check(query, key, value, dropout_p, attn_mask=None):
    if attn_mask is not None:
        raise _LeftToPyTorch("attn_mask")
    if dropout_p != 0:
        raise _LeftToPyTorch("dropout_p")
    if query.dtype not in _TYPES:
        raise _LeftToPyTorch(str(query.dtype))
    if any(one.stride(-1) != 1 for one in (query, key, value)):
        raise _LeftToPyTorch("columns that are not side by side")


def _forward(query, key, value, lse, causal, align, scale):
    # As PyTorch's own: the result lies in memory as the query does.
    out = torch.empty_like(query, requires_grad=False)
    return fovea.attention(query.detach(), key.detach(), value.detach(), out=out, lse=lse, causal=causal,
                           align=align if causal else None, scale=scale)


def _backward(grad_out, tensors, gradients, causal, align, scale):
    if grad_out.stride(-1) != 1:  # such as the gradient of a sum
        grad_out = grad_out.contiguous()
    inputs = (one.detach() for one in (grad_out, *tensors))
    return fovea.attention_backward(*inputs, **gradients, causal=causal, align=align if causal else None, scale=scale)


def _cpu_forward(query, key, value, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    _check(query, key, value, dropout_p, attn_mask)
    batch, heads, length, _ = query.shape
    lse = torch.empty((batch, length, heads), dtype=torch.float32, device="cpu").transpose(1, 2)
    return _forward(query, key, value, lse, is_causal, "top_left", scale)


def _cpu_backward(grad_out, query, key, value, out, logsumexp, dropout_p, is_causal, *, attn_mask=None, scale=None):
    _check(query, key, value, dropout_p, attn_mask)
    gradients = {name: torch.empty_permuted(one.shape, (0, 2, 1, 3), dtype=one.dtype, device="cpu")
                 for name, one in (("dq", query), ("dk", key), ("dv", value))}
    return _backward(grad_out, (query, key, value, out, logsumexp), gradients, is_causal, "top_left", scale)


# causal_lower_right of torch.nn.attention.bias calls this operator with unequal lengths; else they are equal.
def _cuda_forward(query, key, value, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    _check(query, key, value, dropout_p)
    if return_debug_mask:
        raise _LeftToPyTorch("return_debug_mask")
    out, lse = _forward(query, key, value, None, is_causal, "bottom_right", scale)
    # The state of the random numbers for dropout, which there is none of.
    seed = torch.zeros(2, dtype=torch.uint64, device=query.device)
    offset = torch.zeros((), dtype=torch.uint64, device=query.device)
    return out, lse, None, None, query.shape[2], key.shape[2], seed, offset, query.new_empty(0)


def _cuda_backward(grad_out, query, key, value, out, logsumexp, cum_seq_q, cum_seq_k, max_q, max_k, dropout_p,
                   is_causal, philox_seed, philox_offset, *, scale=None):
    _check(query, key, value, dropout_p)
    gradients = {name: torch.empty_like(one, requires_grad=False)
                 for name, one in (("dq", query), ("dk", key), ("dv", value))}
    return _backward(grad_out, (query, key, value, out, logsumexp), gradients, is_causal, "bottom_right", scale)


_KERNELS = {"CPU": {"_scaled_dot_product_flash_attention_for_cpu": _cpu_forward,
                    "_scaled_dot_product_flash_attention_for_cpu_backward": _cpu_backward},
            "CUDA": {"_scaled_dot_product_flash_attention": _cuda_forward,
                     "_scaled_dot_product_flash_attention_backward": _cuda_backward}}


class _Handle:
    """What the registry keeps while the implementation is active."""

    def __init__(self):
        self._library = torch.library.Library("aten", "IMPL")
        runs_on = {device.upper() for device, _, missing in fovea.implementations().values() if not missing}
        if not torch.backends.cuda.is_built():
            runs_on.discard("CUDA")
        for device in runs_on:
            for operator, function in _KERNELS[device].items():
                self._library.impl(operator, _Kernel(function, operator, device), device, with_keyset=True)

    def remove(self):
        self._library = None  # PyTorch's own kernels are then the first again


if _PYTORCH_HAS_REGISTRY:
    torch.nn.attention.register_flash_attention_impl("fovea", register_fn=_Handle)
