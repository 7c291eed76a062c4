"""Calls on arrays of NumPy: results against the formulas, layouts, masks, plans, explanations."""

import numpy
import pytest

import fovea
import formulas


def transposed(array):
    """(batch, length, heads, columns), as a view."""
    return array.swapaxes(1, 2)


@pytest.mark.parametrize("dtype", formulas.TYPES)
@pytest.mark.parametrize("mask", formulas.MASKS)
def test_forward_and_backward_are_the_formulas(dtype, mask):
    arguments, lengths, seen = formulas.MASKS[mask]
    p = formulas.problem(dtype, lengths=lengths, visible=formulas.window(lengths, **seen) if seen else None)
    out, lse = fovea.attention(*p.inputs, **arguments)
    assert out.dtype == dtype and lse.dtype == numpy.float32
    gradients = fovea.attention_backward(p.dout, *p.inputs, out, lse, **arguments)
    for one, of in zip(gradients, p.inputs):
        assert one.shape == of.shape and one.dtype == dtype
    for result, exact, plain in zip((out, lse, *gradients), formulas.answers(p), formulas.plain_answers(p)):
        formulas.assert_close(result, exact, plain)


def test_length_before_heads_gives_the_same_bits():
    p = formulas.problem()
    out, lse = fovea.attention(*p.inputs)
    # Views of the same memory: the strides say where rows are.
    out_blhd, lse_blhd = fovea.attention(*map(transposed, p.inputs), layout="blhd")
    assert numpy.array_equal(transposed(out), out_blhd) and numpy.array_equal(lse, lse_blhd)
    dq, dk, dv = fovea.attention_backward(p.dout, *p.inputs, out, lse)
    others = fovea.attention_backward(*map(transposed, (p.dout, *p.inputs, out)), lse, layout="blhd")
    assert all(numpy.array_equal(transposed(one), other) for one, other in zip((dq, dk, dv), others))


def test_results_go_where_the_caller_says():
    p = formulas.problem()
    wanted, wanted_lse = fovea.attention(*p.inputs)
    memory = numpy.full((2, 4, 33, 48), numpy.nan, numpy.float32)
    lse = numpy.empty((2, 4, 33), numpy.float32)
    out = memory[..., 8:32]
    results = fovea.attention(*p.inputs, out=out, lse=lse)
    assert results[0] is out and results[1] is lse
    assert numpy.array_equal(out, wanted) and numpy.array_equal(lse, wanted_lse)
    assert numpy.isnan(memory[..., :8]).all() and numpy.isnan(memory[..., 32:]).all()


def test_read_only_inputs_and_broadcasts_are_read():
    p = formulas.problem()
    wanted = fovea.attention(*p.inputs)[0]
    for one in p.inputs:
        one.flags.writeable = False
    assert numpy.array_equal(fovea.attention(*p.inputs)[0], wanted)
    same_keys = numpy.broadcast_to(p.k[:1], p.k.shape)
    assert numpy.array_equal(fovea.attention(p.q, same_keys, p.v)[0],
                             fovea.attention(p.q, numpy.ascontiguousarray(same_keys), p.v)[0])


def test_gradients_on_request():
    p = formulas.problem()
    out, lse = fovea.attention(*p.inputs)
    dq, dk, dv = fovea.attention_backward(p.dout, *p.inputs, out, lse)
    assert fovea.attention_backward(p.dout, *p.inputs, out, lse, gradients="q")[1:] == (None, None)
    no_dq, only_dk, only_dv = fovea.attention_backward(p.dout, *p.inputs, out, lse, gradients="kv")
    assert no_dq is None and numpy.array_equal(only_dk, dk) and numpy.array_equal(only_dv, dv)
    assert numpy.array_equal(fovea.attention_backward(p.dout, *p.inputs, out, lse, gradients="q")[0], dq)
    mine = numpy.full_like(dq, numpy.nan)
    assert fovea.attention_backward(p.dout, *p.inputs, out, lse, gradients="q", dq=mine)[0] is mine
    assert numpy.array_equal(mine, dq)


def test_any_number_of_threads_gives_the_same_bits():
    p = formulas.problem(lengths=(300, 300))
    one, three = (fovea.attention(*p.inputs, threads=count) for count in (1, 3))
    assert numpy.array_equal(one[0], three[0]) and numpy.array_equal(one[1], three[1])


def test_scale_and_implementation():
    p = formulas.problem()
    by_default = fovea.attention(*p.inputs, implementation="reference")[0]
    assert numpy.array_equal(fovea.attention(*p.inputs, implementation="reference", scale=0.25)[0], by_default)
    assert numpy.array_equal(fovea.attention(*p.inputs, implementation="reference", scale=numpy.float32(0.25))[0],
                             by_default)
    zero = fovea.attention(*p.inputs, scale=0)[0]
    numpy.testing.assert_allclose(zero, numpy.broadcast_to(
        formulas.per_query_head(p.v, 4).mean(2, keepdims=True), zero.shape), atol=1e-6)


def test_a_plan_is_made_once():
    p = formulas.problem()
    plan = fovea.Plan(*p.inputs, causal=True)
    assert plan.implementation == fovea.explain(*p.inputs, causal=True).chosen and plan.workspace_bytes >= 0
    assert plan.implementation in repr(plan)
    assert numpy.array_equal(plan(*p.inputs)[0], fovea.attention(*p.inputs, causal=True)[0])
    with pytest.raises(fovea.InvalidArgument, match="another problem"):
        plan(p.q[:1], p.k[:1], p.v[:1])


def test_explanations():
    p = formulas.problem()
    all_names = fovea.implementations()
    explained = fovea.explain(*p.inputs)
    assert [one.implementation for one in explained.verdicts] == list(all_names)
    assert explained.chosen in all_names and all_names[explained.chosen][2] == ""
    assert explained.flops == 2 * 2 * 4 * 33 * 33 * (16 + 24)
    assert f"chosen: {explained.chosen}" in str(explained)
    refused = fovea.explain(*p.inputs, implementation="cpu.amx")
    assert refused.chosen == "" and "refused" in str(refused)
    info = fovea.info()
    assert info["version"] == fovea.__version__ and info["implementations"]["reference"] == "available"
    assert info["threads"] >= 1


def test_no_queries_and_no_keys():
    p = formulas.problem(lengths=(0, 5))
    assert fovea.attention(*p.inputs)[0].shape == (2, 4, 0, 24)
    p = formulas.problem(lengths=(3, 0))
    out, lse = fovea.attention(*p.inputs)
    assert (out == 0).all() and (lse == -numpy.inf).all()
