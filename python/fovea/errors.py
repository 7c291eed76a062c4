"""The exceptions of the package. A wrong type of a parameter is a TypeError instead."""

from fovea import _core


class Error(RuntimeError):
    """A call that the library refused, or that failed.

    `status` is one word, such as "unsupported". `call`, `argument`, `problem`, `got`, `wanted`, `hint` and `line` hold
    the parts of the message. `line` is the problem as `fovea bench --problem` takes it, or empty.
    """

    def __init__(self, message, status="error", details=None):
        super().__init__(message)
        self.status = status
        details = details or {}
        for name in ("call", "argument", "problem", "got", "wanted", "hint", "line"):
            setattr(self, name, details.get(name, ""))


class InvalidArgument(Error, ValueError):
    """The call contradicts the contract. Nothing was written."""


class Unsupported(Error, NotImplementedError):
    """The call is legal, but no implementation on this machine takes it. Nothing was written."""


class OutOfMemory(Error, MemoryError):
    """There was not enough memory. Nothing was written."""


def reason_against_cuda():
    """Why no implementation runs on a GPU, or ""."""
    reasons = [reason for _, device, _, reason in _core.implementations() if device == "cuda"]
    if not reasons:
        return "this build has no kernels for GPUs; wanted an nvcc of CUDA 12.8 or newer where it was built"
    return reasons[0] if all(reasons) else ""


_CLASSES = {"invalid": InvalidArgument, "unsupported": Unsupported, "oom": OutOfMemory}


def exception_of(message, status, details):
    """For the extension module. Where tensors on a GPU are refused, the message says if nothing can run there."""
    if status == "unsupported" and "device=cuda" in (details or {}).get("line", "").split():
        reason = reason_against_cuda()
        if reason and reason not in message:
            message += f"\n  cuda:   {reason}"
    return _CLASSES.get(status, Error)(message, status, details)
