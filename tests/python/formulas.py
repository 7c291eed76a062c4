"""Attention and its gradients by their formulas in NumPy, and the random arrays of the tests."""

import dataclasses

import ml_dtypes
import numpy

TYPES = [numpy.float32, numpy.float16, ml_dtypes.bfloat16]
# Arguments of the call, lengths, and the keys that are seen.
MASKS = {
    "none": ({}, (33, 70), {}),
    "causal": ({"causal": True}, (70, 70), {"right": 0}),
    "causal, top left": ({"causal": True, "align": "top_left"}, (33, 70), {"right": 0}),
    "causal, bottom right": ({"causal": True, "align": "bottom_right"}, (33, 70), {"right": 0, "offset": 37}),
    "window": ({"window": (20, 5)}, (70, 70), {"left": 20, "right": 5}),
    "causal window": ({"causal": True, "window": [20, None]}, (70, 70), {"left": 20, "right": 0}),
}


@dataclasses.dataclass
class Problem:
    q: numpy.ndarray
    k: numpy.ndarray
    v: numpy.ndarray
    dout: numpy.ndarray
    visible: numpy.ndarray  # [queries, keys]

    @property
    def inputs(self):
        return self.q, self.k, self.v


def problem(dtype=numpy.float32, batch=2, heads=(4, 2), lengths=(33, 33), columns=(16, 24), visible=None, seed=0):
    random = numpy.random.default_rng(seed)

    def array(heads, length, columns):
        return random.standard_normal((batch, heads, length, columns)).astype(dtype)
    return Problem(array(heads[0], lengths[0], columns[0]), array(heads[1], lengths[1], columns[0]),
                   array(heads[1], lengths[1], columns[1]), array(heads[0], lengths[0], columns[1]),
                   numpy.ones(lengths, bool) if visible is None else visible)


def window(lengths, left=None, right=None, offset=0):
    """Which keys a row sees: `left` before and `right` behind its own, which is key row + offset."""
    distance = numpy.arange(lengths[1])[None, :] - numpy.arange(lengths[0])[:, None] - offset
    return ((distance >= -left) if left is not None else True) & ((distance <= right) if right is not None else True)


def per_query_head(array, heads):
    return numpy.repeat(array, heads // array.shape[1], axis=1)


def per_key_head(gradient, heads):
    batch, all_heads, *rest = gradient.shape
    return gradient.reshape(batch, heads, all_heads // heads, *rest).sum(axis=2)


def forward(p, work=numpy.float64):
    """(out, lse), every step in the type `work`."""
    q, k, v = (per_query_head(one, p.q.shape[1]).astype(work) for one in p.inputs)
    scores = q @ k.swapaxes(-1, -2) * work(q.shape[-1] ** -0.5)
    scores = numpy.where(p.visible, scores, work(-numpy.inf))
    largest = scores.max(-1, keepdims=True)
    weights = numpy.exp(scores - largest)
    total = weights.sum(-1, keepdims=True)
    return weights @ v / total, (largest + numpy.log(total))[..., 0]


def backward(p, work=numpy.float64):
    """(dq, dk, dv)."""
    q, k, v = (per_query_head(one, p.q.shape[1]).astype(work) for one in p.inputs)
    dout, scale = p.dout.astype(work), work(q.shape[-1] ** -0.5)
    out, lse = forward(p, work)
    weights = numpy.where(p.visible, numpy.exp(q @ k.swapaxes(-1, -2) * scale - lse[..., None]), work(0))
    ds = weights * (dout @ v.swapaxes(-1, -2) - (dout * out).sum(-1, keepdims=True)) * scale
    heads = p.k.shape[1]
    dk, dv = ds.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ dout
    return ds @ k, per_key_head(dk, heads), per_key_head(dv, heads)


def answers(p, work=numpy.float64):
    """(out, lse, dq, dk, dv)."""
    return *forward(p, work), *backward(p, work)


def plain_answers(p, orders=4):
    """For each of answers(), its plain evaluations in fp32, one for each order of rows and columns.

    An evaluation alone may be lucky: then an answer that errs no more than usual is beyond twice its error.
    """
    random = numpy.random.default_rng(0)
    evaluations = [answers(p, numpy.float32)]
    for _ in range(orders - 1):
        rows, keys, columns, results = (random.permutation(count) for count in (
            p.q.shape[2], p.k.shape[2], p.q.shape[3], p.v.shape[3]))
        out, lse, dq, dk, dv = answers(Problem(
            p.q[:, :, rows][..., columns], p.k[:, :, keys][..., columns], p.v[:, :, keys][..., results],
            p.dout[:, :, rows][..., results], p.visible[rows][:, keys]), numpy.float32)
        rows, keys, columns, results = map(numpy.argsort, (rows, keys, columns, results))
        evaluations.append((out[:, :, rows][..., results], lse[:, :, rows], dq[:, :, rows][..., columns],
                            dk[:, :, keys][..., columns], dv[:, :, keys][..., results]))
    return list(zip(*evaluations))


def assert_close(result, exact, plain):
    """At most twice the largest error of the plain evaluations, rounded to the type, and a rounding of the largest
    value."""
    values = result.astype(numpy.float64)
    assert numpy.isfinite(values).all()
    unit = float(numpy.finfo(result.dtype).eps) if result.dtype.kind == "f" else 2.0 ** -8  # bf16
    errors = [abs(one.astype(result.dtype).astype(numpy.float64) - exact).max() for one in plain]
    allowed = 2 * max(errors) + unit * abs(exact).max()
    error = abs(values - exact).max()
    assert error <= allowed, f"error {error}, allowed {allowed}"
