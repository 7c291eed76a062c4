"""Bad input: the type of the exception, and that it names the parameter, the value and what is wanted."""

import numpy
import pytest

import fovea
import formulas

P = formulas.problem()
OUT, LSE = fovea.attention(*P.inputs)


def call(**changes):
    arrays = {name: changes.pop(name, getattr(P, name)) for name in "qkv"}
    return fovea.attention(*arrays.values(), **changes)


def read_only():
    array = numpy.empty_like(OUT)
    array.flags.writeable = False
    return array


class NoArray:
    """Has neither a buffer nor __dlpack__."""


class Raises:
    """Where a number or a stream is wanted."""

    def __index__(self):
        raise RuntimeError("no number")

    __float__ = __cuda_stream__ = __index__


class Stream:
    def __init__(self, told):
        self.told = told

    def __cuda_stream__(self):
        return self.told


# More memory than there is, without memory of its own.
HUGE = numpy.broadcast_to(numpy.float32(1), (2 ** 10, 1, 2 ** 30, 16))

# What is changed -> the exception and words of its message.
REFUSED = [
    ({"q": NoArray()}, TypeError, ["q: ", "NoArray", "NumPy"]),
    ({"k": NoArray()}, TypeError, ["k: ", "NoArray", "float32"]),
    ({"v": [1.0]}, TypeError, ["v: ", "list"]),
    ({"q": P.q.astype(numpy.float64)}, TypeError, ["q: ", "float64", "float32, float16 or bfloat16"]),
    ({"k": P.k.astype(">f4")}, TypeError, ["k: ", ">f4"]),
    ({"k": P.k.astype(complex)}, TypeError, ["k: ", "complex"]),
    ({"v": P.v.astype(bool)}, TypeError, ["v: ", "bool"]),
    ({"v": P.v.astype(object)}, TypeError, ["v: ", "object"]),
    ({"q": P.q[0]}, ValueError, ["q: ", "3 dimensions", "(4, 33, 16)", "layout"]),
    ({"q": P.q.astype(numpy.float16)}, fovea.InvalidArgument, ["`k`", "fp32", "fp16"]),
    ({"q": P.q[:, :, ::-1]}, fovea.InvalidArgument, ["`q`", "negative stride"]),
    ({"q": P.q[..., ::2], "k": P.k[..., ::2]}, fovea.InvalidArgument, ["`q`", "contiguous"]),
    ({"q": P.q[:, :3]}, fovea.InvalidArgument, ["heads", "3"]),
    ({"k": P.k[:, :, :5]}, fovea.InvalidArgument, ["`v`", "5"]),
    ({"out": read_only()}, ValueError, ["out: ", "read-only"]),
    ({"out": OUT[:, :2].copy()}, fovea.InvalidArgument, ["`out`"]),
    ({"out": P.q.astype(numpy.float64)}, TypeError, ["out: ", "float64"]),
    ({"lse": LSE[0].copy()}, ValueError, ["lse: ", "2 dimensions", "3: batch, heads and length"]),
    ({"out": numpy.broadcast_to(OUT[:1], OUT.shape)}, ValueError, ["out: ", "read-only"]),
    ({"causal": 1}, TypeError, ["causal: ", "got 1", "True or False"]),
    ({"causal": "yes"}, TypeError, ["causal: ", "'yes'"]),
    ({"causal": True, "q": P.q[:, :, :9].copy()}, ValueError, ["align: ", "9 queries and 33 keys", "bottom_right"]),
    ({"align": "left", "causal": True}, ValueError, ["align: ", "'left'", "top_left"]),
    ({"align": "top_left"}, ValueError, ["align: ", "without a mask"]),
    ({"window": 3}, TypeError, ["window: ", "got 3", "(left, right)"]),
    ({"window": (1, 2, 3)}, TypeError, ["window: ", "(1, 2, 3)"]),
    ({"window": (1.5, 2)}, TypeError, ["window: ", "1.5"]),
    ({"window": (-1, 2)}, ValueError, ["window: ", "-1", "None is no limit"]),
    ({"window": (2 ** 63 - 2, 2)}, ValueError, ["window: ", "9223372036854775806"]),
    ({"window": (1, 2), "causal": True}, ValueError, ["window: ", "(1, 2)", "causal=True"]),
    ({"scale": "half"}, TypeError, ["scale: ", "'half'"]),
    ({"scale": float("nan")}, fovea.InvalidArgument, ["`scale`", "nan", "finite"]),
    ({"layout": "bshd"}, ValueError, ["layout: ", "'bshd'", "blhd"]),
    ({"layout": None}, ValueError, ["layout: ", "None"]),
    ({"implementation": "flash"}, fovea.InvalidArgument, ["`implementation`", "flash", "cpu.scalar"]),
    ({"implementation": 3}, TypeError, ["implementation: ", "got 3"]),
    ({"implementation": "cpu.amx"}, fovea.Unsupported, ["cpu.amx"]),
    ({"threads": -1}, fovea.InvalidArgument, ["`threads`", "-1", "4096"]),
    ({"threads": 1.5}, TypeError, ["threads: ", "1.5"]),
    ({"threads": 2 ** 70}, TypeError, ["threads: ", str(2 ** 70)]),
    ({"stream": "main"}, TypeError, ["stream: ", "'main'", "__cuda_stream__"]),
    ({"stream": -1}, TypeError, ["stream: ", "-1"]),
    ({"foo": 1}, TypeError, ["foo"]),
    ({"k": numpy.datetime64("2020")}, TypeError, ["k: ", "datetime64", "float32"]),
    ({"k": numpy.float32(1)}, TypeError, ["k: ", "float32, shape ()", "wanted an array"]),
    ({"k": bytearray(4)}, TypeError, ["k: ", "bytearray", "wanted an array"]),
    ({"k": memoryview(bytes(4)).cast("f")}, TypeError, ["k: ", "memoryview", "wanted an array"]),
    ({"k": None}, TypeError, ["k: ", "NoneType", "wanted an array"]),
    ({"k": P.k.view([("a", "f4")])}, TypeError, ["k: ", "[('a', '<f4')]", "wanted an array"]),
    ({"k": numpy.empty(P.k.shape, "V0")}, TypeError, ["k: ", "|V0", "wanted an array"]),
    ({"k": P.k.astype(numpy.longdouble)}, TypeError, ["k: ", "wanted an array"]),
    ({"k": numpy.empty((2, 2, 33, 16), [("a", "f4"), ("b", "u1")])["a"]}, TypeError, ["k: ", "wanted an array"]),
    ({"q": numpy.zeros((1,) * 33)}, ValueError, ["q: ", "33 dimensions"]),
    ({"out": 1}, TypeError, ["out: ", "int", "wanted an array"]),
    ({"q": HUGE}, MemoryError, ["Unable to allocate"]),
    ({"implementation": "cpu.scalar\0"}, fovea.InvalidArgument, ["`implementation`", "no implementation of this name"]),
    ({"implementation": "\ud800"}, ValueError, ["implementation: ", "ud800", "implementations()"]),
    ({"align": "\ud800", "causal": True}, ValueError, ["align: ", "ud800", "top_left"]),
    ({"layout": "bhld\0"}, ValueError, ["layout: ", "bhld", "blhd"]),
    ({"scale": 10 ** 400}, TypeError, ["scale: ", "1000", "wanted a number"]),
    ({"scale": 1j}, TypeError, ["scale: ", "1j", "wanted a number"]),
    ({"scale": Raises()}, TypeError, ["scale: ", "Raises", "wanted a number"]),
    ({"threads": Raises()}, TypeError, ["threads: ", "Raises", "wanted a number"]),
    ({"threads": 2 ** 31}, TypeError, ["threads: ", str(2 ** 31)]),
    ({"window": (2 ** 70, 1)}, TypeError, ["window: ", str(2 ** 70), "keys"]),
    ({"window": (float("nan"), 1)}, TypeError, ["window: ", "nan", "keys"]),
    ({"stream": 2 ** 70}, TypeError, ["stream: ", str(2 ** 70)]),
    ({"stream": Raises()}, RuntimeError, ["no number"]),
    ({"stream": Stream(5)}, TypeError, ["stream: ", "got 5 from __cuda_stream__", "(version, address)"]),
    ({"stream": Stream((0, "x"))}, TypeError, ["stream: ", "'x'"]),
]


@pytest.mark.parametrize("changes, exception, words", REFUSED,
                         ids=[f"{n}-{'-'.join(one[0])}" for n, one in enumerate(REFUSED)])
def test_forward_refuses(changes, exception, words):
    with pytest.raises(exception) as refused:
        call(**changes)
    assert all(word in str(refused.value) for word in words), refused.value


@pytest.mark.parametrize("gradients", ["", "x", "qx", None, 1])
def test_backward_refuses_other_letters(gradients):
    with pytest.raises(ValueError, match="gradients: got"):
        fovea.attention_backward(P.dout, *P.inputs, OUT, LSE, gradients=gradients)


@pytest.mark.parametrize("arrays, words", [({"gradients": "q", "dk": P.k}, "dk: got an array.*'q'.*wanted None"),
                                           ({"dq": P.q[0]}, "dq: got 3 dimensions"), ({"dq": P.q[:1]}, "`dq`")])
def test_backward_refuses_other_arrays_for_gradients(arrays, words):
    with pytest.raises(ValueError, match=words):
        fovea.attention_backward(P.dout, *P.inputs, OUT, LSE, **arrays)


def test_backward_refuses_an_lse_of_another_shape():
    with pytest.raises(fovea.InvalidArgument, match="`lse`"):
        fovea.attention_backward(P.dout, *P.inputs, OUT, LSE[:1])


def test_backward_refuses_a_gradient_whose_columns_are_not_side_by_side():
    of_a_sum = numpy.broadcast_to(numpy.float32(1), OUT.shape)
    with pytest.raises(fovea.InvalidArgument, match="`dout`.*(.|\n)*contiguous"):
        fovea.attention_backward(of_a_sum, *P.inputs, OUT, LSE)


def test_too_many_positional_arguments():
    with pytest.raises(TypeError, match="positional"):
        fovea.attention(*P.inputs, True)


def test_an_error_has_its_parts():
    with pytest.raises(fovea.Error) as refused:
        call(threads=-1)
    error = refused.value
    assert isinstance(error, ValueError) and error.status == "invalid"
    assert (error.call, error.argument, error.got) == ("attention_forward", "threads", "-1")
    assert "4096" in error.wanted and error.line.startswith("op=attention ")
    with pytest.raises(fovea.Error) as refused:
        call(implementation="cpu.amx")
    assert isinstance(refused.value, NotImplementedError) and refused.value.status == "unsupported"


def test_nothing_is_written_by_a_refused_call():
    out, lse = numpy.full_like(OUT, 7), numpy.full_like(LSE, 7)
    with pytest.raises(fovea.InvalidArgument):
        call(out=out, lse=lse, threads=-1)
    assert (out == 7).all() and (lse == 7).all()
