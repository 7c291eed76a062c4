"""The exceptions of the package. A wrong type of a parameter is a TypeError instead."""


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


_CLASSES = {"invalid": InvalidArgument, "unsupported": Unsupported, "oom": OutOfMemory}


def exception_of(message, status, details):
    """For the extension module."""
    return _CLASSES.get(status, Error)(message, status, details)
