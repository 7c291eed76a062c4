"""What each framework does for a call: it allocates results and workspaces, and tells its current stream.

Modules are imported when an array of theirs is seen, so `import fovea` imports none.
"""

import functools


class NumPy:
    """Arrays in the memory of the CPU. bf16 is the type of the package ml_dtypes."""

    check = None  # every array will do

    def __init__(self):
        import numpy

        self.new, self.float32 = numpy.empty, numpy.dtype(numpy.float32)

    def empty(self, like, shape):
        return self.new(shape, like.dtype)

    def empty_like(self, like):
        return self.new(like.shape, like.dtype)

    def empty_fp32(self, _, shape):
        return self.new(shape, self.float32)


class Torch:
    """Tensors of PyTorch. Its caching allocator and its graphs see all memory of a call."""

    def __init__(self):
        import torch

        self.torch, self.tensor = torch, torch.Tensor
        self.empty_like = functools.partial(torch.empty_like, memory_format=torch.contiguous_format)
        # Of a device's number. What compiled code of PyTorch calls: an object of the stream takes microseconds.
        self.raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)

    def check(self, names, arrays):
        """Refuses tensors whose gradient would be lost, and negative views, such as the imaginary part of a conjugate
        view: memory has the opposite sign."""
        for name, array in zip(names, arrays):
            if not isinstance(array, self.tensor):
                continue
            if array.requires_grad:
                raise ValueError(f"{name}: the tensor requires grad, and this call records no gradient; "
                                 "wanted tensor.detach()")
            if array.is_neg():
                raise ValueError(f"{name}: got a view of memory with the opposite sign; wanted tensor.resolve_neg()")

    def empty(self, like, shape):
        return like.new_empty(shape)

    def empty_fp32(self, like, shape):
        return like.new_empty(shape, dtype=self.torch.float32)

    def empty_bytes(self, like, count):
        return like.new_empty(count, dtype=self.torch.uint8)

    def address(self, memory):
        return memory.data_ptr()

    def current_stream(self, like):
        if self.raw_stream is not None:
            return self.raw_stream(like.get_device())
        return self.torch.cuda.current_stream(like.device).cuda_stream


class CuPy:
    """Arrays of CuPy. Its memory pool sees all memory of a call, on the device of the first array."""

    check = None

    def __init__(self):
        import cupy

        self.cupy = cupy

    def _new(self, like, shape, dtype):
        with like.device:
            return self.cupy.empty(shape, dtype)

    def empty(self, like, shape):
        return self._new(like, shape, like.dtype)

    def empty_like(self, like):
        return self._new(like, like.shape, like.dtype)

    def empty_fp32(self, like, shape):
        return self._new(like, shape, self.cupy.float32)

    def empty_bytes(self, like, count):
        return self._new(like, count, self.cupy.uint8)

    def address(self, memory):
        return memory.data.ptr

    def current_stream(self, like):
        with like.device:
            return self.cupy.cuda.get_current_stream().ptr


_MODULES = {"numpy": NumPy, "torch": Torch, "cupy": CuPy}
_of_types: dict[type, NumPy | Torch | CuPy] = {}


def framework_of(array, name):
    """The framework of an array; TypeError names the parameter."""
    kind = type(array)
    framework = _of_types.get(kind)
    if framework is None:
        modules = [base.__module__.partition(".")[0] for base in kind.__mro__]
        makers = [_MODULES[module] for module in modules if module in _MODULES]
        if not makers:
            raise TypeError(f"{name}: got {kind.__module__}.{kind.__qualname__}; "
                            "wanted an array of NumPy, PyTorch or CuPy")
        framework = _of_types[kind] = makers[0]()
    return framework


def address_of(stream):
    """The address of a CUDA stream; None remains None."""
    if stream is None:
        return None
    if hasattr(stream, "__cuda_stream__"):
        told = stream.__cuda_stream__()
        if not isinstance(told, tuple) or len(told) != 2:
            raise TypeError(f"stream: got {told!r} from __cuda_stream__; wanted (version, address)")
        return told[1]
    if isinstance(stream, int) and not isinstance(stream, bool) and stream >= 0:
        return stream
    raise TypeError(f"stream: got {stream!r}; wanted the address of a CUDA stream, an object with __cuda_stream__, or "
                    "None for the framework's current stream")
