"""Arrays of CuPy. Where it finds no GPU, a module that pretends tells which of its functions a call uses."""

import importlib.util
import sys
import types

import numpy
import pytest

import fovea
import formulas
from dlpack_capsules import CPU, Export
from fovea import frameworks

CUDA = 2


def has_gpu():
    if importlib.util.find_spec("cupy") is None:
        return False
    import cupy

    try:
        return cupy.cuda.runtime.getDeviceCount() > 0
    except cupy.cuda.runtime.CUDARuntimeError:
        return False


class Pretended:
    """The module. Its arrays say that they are on a GPU, and lie in memory of the CPU. `calls` tells what was used."""

    def __init__(self):
        self.calls = []
        module = self

        class Device:
            def __init__(self, index):
                self.index = index

            def __enter__(self):
                module.calls.append(f"device {self.index}")

            def __exit__(self, *_):
                module.calls.append("device before")

        class ndarray:
            def __init__(self, memory):
                self.memory, self.shape, self.dtype, self.device = memory, memory.shape, memory.dtype, Device(3)
                self.data = types.SimpleNamespace(ptr=memory.ctypes.data)

            def __dlpack_device__(self):
                return CUDA, 3

            def __dlpack__(self, *, stream=None):
                module.calls.append(f"__dlpack__ stream={stream}")
                self.export = Export(self.memory, device=(CPU, 0))
                return self.export.capsule

        ndarray.__module__ = "cupy"
        self.ndarray, self.float32, self.uint8 = ndarray, numpy.dtype(numpy.float32), numpy.dtype(numpy.uint8)
        self.cuda = types.SimpleNamespace(get_current_stream=self._current_stream)

    def empty(self, shape, dtype):
        self.calls.append(f"empty {shape} {dtype}")
        return self.ndarray(numpy.empty(shape, dtype))

    def _current_stream(self):
        self.calls.append("get_current_stream")
        return types.SimpleNamespace(ptr=12345)


@pytest.fixture
def cupy(monkeypatch):
    module = Pretended()
    monkeypatch.setitem(sys.modules, "cupy", module)
    monkeypatch.setattr(frameworks, "_of_types", {})
    return module


def test_results_are_allocated_by_cupy_and_no_stream_waits(cupy):
    p = formulas.problem()
    q, k, v, dout = map(cupy.ndarray, (*p.inputs, p.dout))
    out, lse = fovea.attention(q, k, v)
    wanted, wanted_lse = fovea.attention(*p.inputs)
    assert isinstance(out, cupy.ndarray) and isinstance(lse, cupy.ndarray)
    assert numpy.array_equal(out.memory, wanted) and numpy.array_equal(lse.memory, wanted_lse)
    allocates = ["device 3", "empty (2, 4, 33, 24) float32", "device before"]
    exported = ["__dlpack__ stream=-1"]
    assert cupy.calls == exported * 3 + allocates + exported + [
        "device 3", "empty (2, 4, 33) float32", "device before"] + exported
    gradients = fovea.attention_backward(dout, q, k, v, out, lse)
    others = fovea.attention_backward(p.dout, *p.inputs, wanted, wanted_lse)
    assert all(numpy.array_equal(one.memory, other) for one, other in zip(gradients, others))
    assert all(one.export.deleted == 1 for one in (q, k, v, out, lse, *gradients))


def test_workspace_and_stream(cupy):
    q = cupy.ndarray(formulas.problem().q)
    framework = frameworks.framework_of(q, "q")
    memory = framework.empty_bytes(q, 80)
    assert framework.address(memory) == memory.memory.ctypes.data
    assert framework.current_stream(q) == 12345
    assert cupy.calls == ["device 3", "empty 80 uint8", "device before", "device 3", "get_current_stream",
                          "device before"]


@pytest.mark.skipif(not has_gpu(), reason="CuPy finds no GPU")
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_on_a_gpu(dtype):
    import cupy

    lengths = 70, 70
    p = formulas.problem(numpy.dtype(dtype), lengths=lengths, columns=(64, 64),
                         visible=formulas.window(lengths, right=0))
    with cupy.cuda.Stream(non_blocking=True) as stream:
        q, k, v, dout = map(cupy.asarray, (*p.inputs, p.dout))
        out, lse = fovea.attention(q, k, v, causal=True)
        gradients = fovea.attention_backward(dout, q, k, v, out, lse, causal=True)
        on_a_named_stream = fovea.attention(q, k, v, causal=True, stream=stream.ptr)[0]
        results = [cupy.asnumpy(one) for one in (out, lse, *gradients)]
        assert cupy.array_equal(out, on_a_named_stream)
    for number, answer in enumerate(zip(results, formulas.answers(p), formulas.plain_answers(p))):
        assert answer[0].dtype == (numpy.float32 if number == 1 else dtype)
        formulas.assert_close(*answer)
