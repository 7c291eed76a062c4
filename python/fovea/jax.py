"""Attention in JAX: under jit, grad and vmap, on the CPU and on NVIDIA GPUs.

The module is imported by name: `import fovea.jax`. XLA calls the library on its own threads, by its typed FFI.
"""

import functools
from typing import Any

import jax
import numpy

import fovea
from fovea import _core
from fovea.calls import Align, Layout, Window
from fovea.errors import Unsupported

for _target, _platform, _handler in _core.xla_handlers():
    jax.ffi.register_ffi_target(_target, _handler, platform=_platform)


def _stand_in(array, name):
    """One row, seen everywhere, with the shape and type of an array, which has no values while JAX traces."""
    dtype = getattr(array, "dtype", None)
    if getattr(dtype, "name", None) not in ("float32", "float16", "bfloat16"):
        got = type(array).__qualname__ if dtype is None else f"an array of {dtype}, shape {array.shape}"
        raise TypeError(f"{name}: got {got}; wanted an array of float32, float16 or bfloat16")
    return numpy.broadcast_to(numpy.empty(array.shape[-1:], dtype), array.shape)


@functools.partial(jax.custom_jvp, nondiff_argnums=(0, 1, 2))
def _call(target, results, attributes, *arrays):
    """A function of the library. Dimensions that vmap puts before the batch join it there."""
    results = [jax.ShapeDtypeStruct(*one) for one in results]
    return tuple(jax.ffi.ffi_call(target, results, vmap_method="broadcast_all")(*arrays, **dict(attributes)))


@_call.defjvp
def _(*_):
    raise Unsupported("fovea.jax: attention has no second derivative; wanted one grad or vjp", "unsupported")


def _out_and_lse(attributes, q, k, v):
    bhld = dict(attributes)["layout"] == "bhld"
    batch, heads, length = q.shape[:3] if bhld else (q.shape[0], q.shape[2], q.shape[1])
    results = ((*q.shape[:3], v.shape[3]), q.dtype), ((batch, heads, length), numpy.float32)
    return _call("fovea_attention", results, attributes, q, k, v)


def _forward(attributes, *inputs):
    results = _out_and_lse(attributes, *inputs)
    return results, (*inputs, *results)


def _backward(attributes, saved, cotangents):
    results = tuple((one.shape, one.dtype) for one in saved[:3])
    return _call("fovea_attention_backward", results, attributes, cotangents[0], *saved)


_attention = jax.custom_vjp(_out_and_lse, nondiff_argnums=(0,))
_attention.defvjp(_forward, _backward)
_compiled = jax.jit(_attention, static_argnums=0)  # so that a call outside jit is traced once


def attention(q: jax.Array, k: jax.Array, v: jax.Array, *, causal: bool = False, window: Window | None = None,
              align: Align | None = None, scale: float | None = None, layout: Layout = "bhld",
              return_lse: bool = False) -> Any:
    """fovea.attention for arrays of JAX: the result, or (out, lse) with return_lse.

    q, k, v: (batch, heads, length, columns) with layout="bhld", (batch, length, heads, columns) with "blhd", in
        float32, float16 or bfloat16.
    causal, window, align, scale: as in fovea.attention; under jit they are constants, not traced.

    lse is float32, (batch, heads, length), and has no gradient. A second derivative is refused. Shapes, types and other
    arguments are checked while JAX traces: TypeError, or an Error as from fovea.attention. What fails later is an error
    of XLA with the library's message.
    """
    words = {"causal": causal, "window": window, "align": align, "scale": scale, "layout": layout}
    fovea.explain(*(_stand_in(one, name) for one, name in zip((q, k, v), "qkv")), **words)
    left, right = (None, None) if window is None else window
    given = (("align", str, align), ("layout", str, layout), ("left", numpy.int64, left),
             ("right", numpy.int64, 0 if causal else right), ("scale", numpy.float64, scale))
    attributes = tuple((name, of(value)) for name, of, value in given if value is not None)
    out, lse = _compiled(attributes, q, k, v)
    return (out, jax.lax.stop_gradient(lse)) if return_lse else out
