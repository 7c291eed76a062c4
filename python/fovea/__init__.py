"""Exact attention, forward and backward, on the CPU and on NVIDIA GPUs.

Arrays of NumPy and CuPy and tensors of PyTorch are read and written in place. No framework is imported before an array
of it is seen.
"""

from fovea._core import version as __version__
from fovea.calls import Plan, attention, attention_backward, explain, implementations, info
from fovea.errors import Error, InvalidArgument, OutOfMemory, Unsupported
from fovea.explanation import Explanation, Verdict

__all__ = ["Error", "Explanation", "InvalidArgument", "OutOfMemory", "Plan", "Unsupported", "Verdict", "__version__",
           "attention", "attention_backward", "explain", "implementations", "info"]
