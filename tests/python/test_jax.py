"""fovea.jax under jit, grad and vmap, on the CPU and on a GPU if JAX has one. CTest runs it where JAX is installed."""

import os
import pathlib
import shutil
import subprocess
import sys

import numpy
import pytest

import fovea
import formulas

jax = pytest.importorskip("jax")
import fovea.jax  # noqa: E402, without JAX there is nothing to import

TESTS = pathlib.Path(__file__).resolve().parent
DEVICES = ["cpu"] + (["gpu"] if jax.default_backend() == "gpu" else [])


def placed(arrays, device="cpu"):
    return [jax.device_put(one, jax.devices(device)[0]) for one in arrays]


def transposed(arrays):
    """(batch, length, heads, columns)."""
    return [one.swapaxes(1, 2) for one in arrays]


def same(results, others):
    return all(numpy.array_equal(one, other) for one, other in zip(results, others, strict=True))


def all_results(inputs, dout, **arguments):
    """(out, lse, dq, dk, dv)."""
    def function(*qkv):
        return fovea.jax.attention(*qkv, return_lse=True, **arguments)
    (out, lse), gradients_of = jax.vjp(function, *inputs)
    return out, lse, *gradients_of((dout, jax.numpy.zeros_like(lse)))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", formulas.TYPES)
@pytest.mark.parametrize("layout", ["bhld", "blhd"])
@pytest.mark.parametrize("mask", formulas.MASKS)
def test_forward_and_gradients_are_the_formulas(device, dtype, layout, mask):
    arguments, lengths, seen = formulas.MASKS[mask]
    p = formulas.problem(dtype, lengths=lengths, visible=formulas.window(lengths, **seen) if seen else None)
    *inputs, dout = placed((*p.inputs, p.dout), device)
    if layout == "blhd":
        *inputs, dout = transposed((*inputs, dout))
    results = jax.jit(lambda *arrays: all_results(arrays[:3], arrays[3], layout=layout, **arguments))(*inputs, dout)
    assert all(one.devices() == {jax.devices(device)[0]} for one in results)
    results = [numpy.asarray(one) for one in results]
    assert [one.dtype for one in results] == [dtype, numpy.float32, dtype, dtype, dtype]
    if layout == "blhd":
        results = [one if number == 1 else one.swapaxes(1, 2) for number, one in enumerate(results)]
    for one, exact, plain in zip(results, formulas.answers(p), formulas.plain_answers(p), strict=True):
        assert one.shape == exact.shape
        formulas.assert_close(one, exact, plain)


@pytest.mark.parametrize("dtype", formulas.TYPES)
@pytest.mark.parametrize("arguments", [{}, {"causal": True, "scale": 0.3}, {"window": (9, 4), "scale": 0}], ids=str)
def test_the_bits_are_those_of_numpy_arrays(dtype, arguments):
    p = formulas.problem(dtype)
    out, lse = fovea.attention(*p.inputs, **arguments)
    wanted = out, lse, *fovea.attention_backward(p.dout, *p.inputs, out, lse, **arguments)
    assert same(all_results(placed(p.inputs), placed([p.dout])[0], **arguments), wanted)


@pytest.mark.parametrize("device", DEVICES)
def test_jit_changes_no_bit(device):
    p = formulas.problem(lengths=(300, 300))
    *inputs, dout = placed((*p.inputs, p.dout), device)
    eager = all_results(inputs, dout, causal=True)
    compiled = jax.jit(lambda *arrays: all_results(arrays[:3], arrays[3], causal=True))
    assert same(compiled(*inputs, dout), eager) and same(compiled(*inputs, dout), eager)


def test_grad():
    p = formulas.problem()

    def loss(q, k, v):
        return (fovea.jax.attention(q, k, v, causal=True) * p.dout).sum()
    out, lse = fovea.attention(*p.inputs, causal=True)
    wanted = fovea.attention_backward(p.dout, *p.inputs, out, lse, causal=True)
    inputs = placed(p.inputs)
    assert same(jax.jit(jax.grad(loss, argnums=(0, 1, 2)))(*inputs), wanted)
    assert same(jax.grad(jax.checkpoint(loss), argnums=(0, 1, 2))(*inputs), wanted)
    assert same([jax.grad(loss, argnums=1)(*inputs)], wanted[1:2])


def test_lse_has_no_gradient():
    p = formulas.problem()
    gradient = jax.grad(lambda q: fovea.jax.attention(q, *p.inputs[1:], return_lse=True)[1].sum())(p.q)
    assert (gradient == 0).all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("layout", ["bhld", "blhd"])
def test_vmap_is_a_loop(device, layout):
    many = [formulas.problem(seed=seed) for seed in range(3)]
    *inputs, dout = placed((numpy.stack(arrays) for arrays in zip(*((*p.inputs, p.dout) for p in many))), device)

    def function(q, k, v, dout):
        return all_results((q, k, v), dout, layout=layout, window=(9, 4), align="top_left")
    if layout == "blhd":
        *inputs, dout = (one.swapaxes(2, 3) for one in (*inputs, dout))
    loop = [function(*arrays) for arrays in zip(*inputs, dout)]
    assert same(jax.jit(jax.vmap(function))(*inputs, dout), [numpy.stack(one) for one in zip(*loop)])
    # The same keys for all, another axis, and vmap in vmap.
    q, k, v = inputs
    loop = numpy.stack([fovea.jax.attention(one, k[0], v[0], layout=layout) for one in q])
    shared = jax.vmap(lambda one: fovea.jax.attention(one, k[0], v[0], layout=layout), in_axes=1, out_axes=1)
    assert numpy.array_equal(shared(q.swapaxes(0, 1)).swapaxes(0, 1), loop)
    twice = jax.vmap(jax.vmap(lambda *qkv: fovea.jax.attention(*qkv, layout=layout)))(*(one[None] for one in inputs))
    assert numpy.array_equal(twice[0], jax.vmap(lambda *qkv: fovea.jax.attention(*qkv, layout=layout))(*inputs))


def test_calls_of_one_program_run_at_once():
    p = formulas.problem(lengths=(200, 200))
    wanted = fovea.attention(*p.inputs)[0]
    compiled = jax.jit(lambda q, k, v: [fovea.jax.attention(q * sign, k * sign, v) for sign in (1, -1) * 4])
    for _ in range(5):
        assert all(numpy.array_equal(one, wanted) for one in compiled(*placed(p.inputs)))


def test_no_queries_and_no_keys():
    p = formulas.problem(lengths=(0, 5))
    results = all_results(p.inputs, p.dout)
    assert results[0].shape == (2, 4, 0, 24) and all((one == 0).all() for one in results[3:])
    p = formulas.problem(lengths=(3, 0))
    out, lse, dq, dk, dv = all_results(p.inputs, p.dout)
    assert (out == 0).all() and (lse == -numpy.inf).all() and (dq == 0).all() and dk.shape == p.k.shape


P = formulas.problem()
# What is changed -> the exception and words of its message.
REFUSED = [
    ({"q": [1.0]}, TypeError, ["q: ", "got list", "float32"]),
    ({"k": P.k.astype(numpy.float64)}, TypeError, ["k: ", "float64", "(2, 2, 33, 16)", "float32, float16 or bfloat16"]),
    ({"v": P.v.astype(numpy.int32)}, TypeError, ["v: ", "int32"]),
    ({"q": P.q[0]}, ValueError, ["q: ", "3 dimensions", "(4, 33, 16)", "layout"]),
    ({"q": P.q.astype(numpy.float16)}, fovea.InvalidArgument, ["`k`", "fp32", "fp16"]),
    ({"q": P.q[:, :3]}, fovea.InvalidArgument, ["heads", "3"]),
    ({"k": P.k[:, :, :5]}, fovea.InvalidArgument, ["`v`", "5"]),
    ({"causal": 1}, TypeError, ["causal: ", "got 1", "True or False"]),
    ({"causal": True, "q": P.q[:, :, :9]}, ValueError, ["align: ", "9 queries and 33 keys", "bottom_right"]),
    ({"align": "top_left"}, ValueError, ["align: ", "without a mask"]),
    ({"window": 3}, TypeError, ["window: ", "got 3", "(left, right)"]),
    ({"window": (-1, 2)}, ValueError, ["window: ", "-1", "None is no limit"]),
    ({"window": (1, 2), "causal": True}, ValueError, ["window: ", "(1, 2)", "causal=True"]),
    ({"scale": "half"}, TypeError, ["scale: ", "'half'"]),
    ({"scale": float("nan")}, fovea.InvalidArgument, ["`scale`", "nan", "finite"]),
    ({"layout": "bshd"}, ValueError, ["layout: ", "'bshd'", "blhd"]),
    ({"foo": 1}, TypeError, ["foo"]),
]


@pytest.mark.parametrize("traced", [False, True])
@pytest.mark.parametrize("changes, exception, words", REFUSED,
                         ids=[f"{n}-{'-'.join(one[0])}" for n, one in enumerate(REFUSED)])
def test_refusals_are_exceptions_of_the_trace(changes, exception, words, traced):
    changes = dict(changes)
    arrays = {name: changes.pop(name, getattr(P, name)) for name in "qkv"}

    def function(**arrays):
        return fovea.jax.attention(**arrays, **changes)
    if traced and isinstance(arrays["q"], numpy.ndarray) and all(one.dtype != numpy.float64 for one in arrays.values()):
        function = jax.jit(function)
    with pytest.raises(exception) as refused:
        function(**arrays)
    assert all(word in str(refused.value) for word in words), refused.value


def test_a_traced_argument_is_refused():
    with pytest.raises(TypeError, match="scale: got .*wanted a number"):
        jax.jit(lambda scale: fovea.jax.attention(*P.inputs, scale=scale))(0.5)
    with pytest.raises(TypeError, match="causal: got .*wanted True or False"):
        jax.jit(lambda causal: fovea.jax.attention(*P.inputs, causal=causal))(True)


def test_other_derivatives_are_refused():
    def loss(q):
        return fovea.jax.attention(q, *P.inputs[1:]).sum()
    for function in (jax.grad(lambda q: jax.grad(loss)(q).sum()), jax.hessian(loss), jax.jit(jax.hessian(loss))):
        with pytest.raises(fovea.Unsupported, match="fovea.jax: attention has no second derivative"):
            function(P.q)
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(loss, (P.q,), (P.q,))


LATE = """
import jax, numpy, fovea.jax
one = numpy.ones((1, 1, 4, 8), numpy.float32)
try:
    jax.jit(fovea.jax.attention)(one, one, one).block_until_ready()
except jax.errors.JaxRuntimeError as error:
    print(error)
"""


def test_what_fails_later_is_an_error_of_xla():
    ended = subprocess.run([sys.executable, "-c", LATE], capture_output=True, text=True, check=False, timeout=120,
                           env=os.environ | {"JAX_PLATFORMS": "cpu", "FOVEA_IMPL": "cpu.amx"})
    assert ended.stdout.startswith("UNIMPLEMENTED: "), ended.stderr
    assert all(word in ended.stdout for word in ("attention_forward", "cpu.amx", "fp32")), ended.stdout


@pytest.mark.skipif(shutil.which("c++") is None, reason="no compiler")
def test_the_interface_to_xla_is_that_of_its_headers():
    includes = [f"-I{jax.ffi.include_dir()}", f"-I{TESTS.parents[1] / 'python/extension'}"]
    subprocess.run(["c++", "-std=c++20", "-fsyntax-only", *includes, TESTS / "xla_ffi_layout.cpp"], check=True)
