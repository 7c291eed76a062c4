"""What the tests of PyTorch share: the devices, and how answers are compared."""

import torch

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


def assert_close(results, exact, plain, factors=(2, 3, 3, 3)):
    """Errors are at most `factors` times the largest of the plain evaluation, and a rounding of the largest value.

    2 for results and 3 for gradients, as in docs/numerics.md.
    """
    for result, wanted, other, factor in zip(results, exact, plain, factors, strict=True):
        allowed = factor * (other - wanted).abs().max() + torch.finfo(result.dtype).eps * wanted.abs().max()
        assert (result - wanted).abs().max() <= allowed
