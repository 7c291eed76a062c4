"""The functions of the package. Their arrays are not copied: rows must be dense, other strides are free."""

from __future__ import annotations

from typing import Any, Literal, Sequence

from fovea import _core
from fovea.errors import reason_against_cuda
from fovea.explanation import Explanation, explanation_of
from fovea.frameworks import address_of, framework_of

Array = Any  # of NumPy, PyTorch or CuPy
Window = Sequence["int | None"]  # left and right
Align = Literal["top_left", "bottom_right"]
Layout = Literal["bhld", "blhd"]
Stream = Any  # an address or an object with __cuda_stream__


def attention(q: Array, k: Array, v: Array, *, causal: bool = False, window: Window | None = None,
              align: Align | None = None, scale: float | None = None, layout: Layout = "bhld",
              out: Array | None = None, lse: Array | None = None, implementation: str | None = None, threads: int = 0,
              stream: Stream | None = None) -> tuple[Array, Array]:
    """Attention: softmax(scale q k^T + mask) v, exact.

    q, k, v: arrays of one framework, in float32, float16 or bfloat16: (batch, heads, length, columns) with
        layout="bhld", (batch, length, heads, columns) with "blhd". k and v may have fewer heads than q, if their number
        divides that of q. v may have other columns than q and k.
    causal: row i sees keys up to its own.
    window: (left, right), the keys that a row sees beside its own; None on a side is no limit.
    align: where a row's own key is if lengths differ: "top_left" (row i's is key i) or "bottom_right" (the last row's
        is the last key).
    scale: 1 / sqrt(columns of q) if None.
    out, lse: arrays for the results. Without them the framework allocates.
    implementation: a name of implementations(); None chooses.
    threads: of the CPU; 0 for the default.
    stream: on CUDA, an address or an object with __cuda_stream__; None is the framework's current stream.

    Returns (out, lse). out has the type and layout of q, and the columns of v. lse is the natural logarithm of the sum
    of exponentials, float32, (batch, heads, length) in every layout. On a GPU the call returns when its work is
    enqueued. Raises TypeError, or an Error: InvalidArgument, Unsupported, OutOfMemory. Ctrl-C ends a call on the CPU.
    """
    framework = framework_of(q, "q")
    if framework.check:
        framework.check(("q", "k", "v", "out", "lse"), (q, k, v, out, lse))
    return _core.forward((q, k, v, out, lse, None), framework,
                         (causal, window, align, scale, layout, implementation, threads, address_of(stream)))


def attention_backward(dout: Array, q: Array, k: Array, v: Array, out: Array, lse: Array, *, gradients: str = "qkv",
                       causal: bool = False, window: Window | None = None, align: Align | None = None,
                       scale: float | None = None, layout: Layout = "bhld", dq: Array | None = None,
                       dk: Array | None = None, dv: Array | None = None, implementation: str | None = None,
                       threads: int = 0, stream: Stream | None = None,
                       ) -> tuple[Array | None, Array | None, Array | None]:
    """The gradients (dq, dk, dv) of attention, from the gradient `dout` of its result.

    out and lse are the results of attention() with the same arguments. gradients: letters of the inputs whose gradients
    are wanted, such as "q" or "kv"; the others are None. dq, dk, dv: arrays for them; without them the framework
    allocates. Gradients have the types and layouts of their inputs. The other arguments and the errors are those of
    attention().
    """
    if not isinstance(gradients, str) or not gradients or set(gradients) - set("qkv"):
        raise ValueError(f'gradients: got {gradients!r}; wanted letters of "qkv"')
    given = {"q": dq, "k": dk, "v": dv}
    for letter, array in given.items():
        if array is not None and letter not in gradients:
            raise ValueError(f"d{letter}: got an array with gradients={gradients!r}; wanted None")
    framework = framework_of(q, "q")
    if framework.check:
        framework.check(("dout", "q", "k", "v", "out", "lse", "dq", "dk", "dv"), (dout, q, k, v, out, lse, dq, dk, dv))
    # An array; or whether one is to be allocated.
    results = (letter in gradients if array is None else array for letter, array in given.items())
    return _core.backward((dout, q, k, v, out, lse, *results), framework,
                          (causal, window, align, scale, layout, implementation, threads, address_of(stream)))


class Plan:
    """A forward call whose implementation is chosen once: plan(q, k, v) for arrays of the same sizes and types.

    The arguments are those of attention().
    """

    def __init__(self, q: Array, k: Array, v: Array, *, causal: bool = False, window: Window | None = None,
                 align: Align | None = None, scale: float | None = None, layout: Layout = "bhld",
                 implementation: str | None = None, threads: int = 0):
        self._framework = framework_of(q, "q")
        self._words = (causal, window, align, scale, layout, implementation, threads)
        self._plan = _core.plan_forward((q, k, v, None, None), self._framework, (*self._words, None))

    @property
    def implementation(self) -> str:
        """Its name, such as cpu.avx512."""
        return self._plan.implementation

    @property
    def workspace_bytes(self) -> int:
        """Scratch memory of a call."""
        return self._plan.workspace_bytes

    def __call__(self, q: Array, k: Array, v: Array, *, out: Array | None = None, lse: Array | None = None,
                 stream: Stream | None = None) -> tuple[Array, Array]:
        """As attention(). Arrays of other sizes, types or devices are an InvalidArgument."""
        framework = framework_of(q, "q")
        if framework.check:
            framework.check(("q", "k", "v", "out", "lse"), (q, k, v, out, lse))
        return _core.forward((q, k, v, out, lse, self._plan), framework,
                             (*self._words, address_of(stream)))

    def __repr__(self) -> str:
        return f"<fovea.Plan of {self.implementation}>"


def explain(q: Array, k: Array, v: Array, *, causal: bool = False, window: Window | None = None,
            align: Align | None = None, scale: float | None = None, layout: Layout = "bhld",
            implementation: str | None = None) -> Explanation:
    """How the implementation of this call is chosen, as an Explanation. Nothing runs."""
    words = _core.explain_forward((q, k, v, None, None), framework_of(q, "q"),
                                  (causal, window, align, scale, layout, implementation, 0, None))
    return explanation_of(words)


def implementations() -> dict[str, tuple[str, bool, str]]:
    """The implementations of attention: name -> (device, chosen automatically, why it cannot run here or "")."""
    return {name: (device, automatic, reason) for name, device, automatic, reason in _core.implementations()}


def info() -> dict[str, Any]:
    """Version, threads of a call on the CPU, and what runs on this machine, as a dictionary."""
    return {"version": _core.version, "threads": _core.default_threads(),
            "cuda": reason_against_cuda() or "available",
            "implementations": {name: reason or "available" for name, (_, _, reason) in implementations().items()}}
