"""Masks of Python kernels and of peers, against the rule in include/fovea/mask.h; NumPy stands in for torch."""

import itertools
import pathlib
import sys
import types

import numpy
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python" / "fovea_bench"))
import fovea_worker  # noqa: E402
import peers  # noqa: E402

BOUNDS = ("0", "1", "3", "unlimited")
MASKS = [{"mask": word} for word in ("none", "causal", "causal_top_left", "causal_bottom_right")] + [
    {"mask": word, "left": left, "right": right}
    for word in ("window", "window_top_left", "window_bottom_right")
    for left, right in itertools.product(BOUNDS, BOUNDS) if (left, right) != ("unlimited", "unlimited")]
LENGTHS = ((4, 4), (3, 7), (7, 3), (1, 5))


def seen(words, len_q, len_k, i, j):
    """May row i see key j, by the rule in include/fovea/mask.h?"""
    own = i + (len_k - len_q if "bottom_right" in words["mask"] else 0)
    left = words.get("left", "unlimited")
    right = words.get("right", "0" if "causal" in words["mask"] else "unlimited")
    return (left == "unlimited" or own - j <= int(left)) and (right == "unlimited" or j - own <= int(right))


def cell_of(words, len_q, len_k):
    torch = types.SimpleNamespace(arange=lambda count, device: numpy.arange(count))
    problem = {**words, "lq": str(len_q), "lk": str(len_k)}
    return types.SimpleNamespace(problem=problem, mask=fovea_worker.Mask(problem), torch=torch)


@pytest.mark.parametrize("words", MASKS, ids=lambda words: " ".join(words.values()))
def test_hidden_pairs_are_those_that_the_mask_hides(words):
    for len_q, len_k in LENGTHS:
        if words["mask"] in ("causal", "window") and len_q != len_k:
            continue
        wanted = numpy.array([[not seen(words, len_q, len_k, i, j) for j in range(len_k)] for i in range(len_q)])
        cell = cell_of(words, len_q, len_k)
        hidden = peers.hidden_pairs(cell, "cpu")
        assert (hidden is None and not wanted.any()) or (hidden == wanted).all()
        if wanted.all(axis=1).any():
            with pytest.raises(fovea_worker.Unsupported):
                peers.refuse_fully_masked_rows(cell)
        else:
            peers.refuse_fully_masked_rows(cell)


def test_a_mask_prints_as_its_word():
    mask = fovea_worker.Mask({"mask": "window_top_left", "left": "5", "right": "unlimited"})
    assert mask == "window_top_left" and mask.left == 5 and mask.right == float("inf")
