"""What each framework does for a call: it allocates results and workspaces, and tells its current stream.

Modules are imported when an array of theirs is seen, so `import fovea` imports none.
"""


class NumPy:
    """Arrays in the memory of the CPU. bf16 is the type of the package ml_dtypes."""

    def __init__(self):
        import numpy

        self.new, self.float32 = numpy.empty, numpy.dtype(numpy.float32)

    def empty(self, like, shape):
        return self.new(shape, like.dtype)

    def empty_fp32(self, _, shape):
        return self.new(shape, self.float32)

    def current_stream(self, _):
        return 0


class Torch:
    """Tensors of PyTorch. Its caching allocator and its graphs see all memory of a call."""

    def __init__(self):
        import torch

        self.torch = torch

    def empty(self, like, shape):
        return self.torch.empty(shape, dtype=like.dtype, device=like.device)

    def empty_fp32(self, like, shape):
        return self.torch.empty(shape, dtype=self.torch.float32, device=like.device)

    def empty_bytes(self, like, count):
        return self.torch.empty(count, dtype=self.torch.uint8, device=like.device)

    def address(self, memory):
        return memory.data_ptr()

    def current_stream(self, like):
        return self.torch.cuda.current_stream(like.device).cuda_stream if like.is_cuda else 0


_MODULES = {"numpy": NumPy, "torch": Torch}
_of_types: dict[type, NumPy | Torch] = {}


def framework_of(array, name):
    """The framework of an array; TypeError names the parameter."""
    kind = type(array)
    framework = _of_types.get(kind)
    if framework is None:
        modules = [base.__module__.partition(".")[0] for base in kind.__mro__]
        makers = [_MODULES[module] for module in modules if module in _MODULES]
        if not makers:
            raise TypeError(f"{name}: got {kind.__module__}.{kind.__qualname__}; wanted an array of NumPy or PyTorch")
        framework = _of_types[kind] = makers[0]()
    return framework


def stream_of(stream, framework, array):
    """The address of a CUDA stream. None is the current stream of the framework."""
    if stream is None:
        return framework.current_stream(array)
    if hasattr(stream, "__cuda_stream__"):
        return stream.__cuda_stream__()[1]
    if isinstance(stream, int) and not isinstance(stream, bool) and stream >= 0:
        return stream
    raise TypeError(f"stream: got {stream!r}; wanted the address of a CUDA stream, an object with __cuda_stream__, or "
                    "None for the framework's current stream")
