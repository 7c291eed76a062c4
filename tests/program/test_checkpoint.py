"""The safetensors library reads the checkpoints of `fovea train`."""

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

WIDTH, HIDDEN, LAYERS, VOCABULARY = 16, 24, 2, 256


def load(path: Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    with safe_open(path, framework="numpy") as file:
        return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_a_checkpoint_is_readable_elsewhere(tmp_path: Path, dtype: str) -> None:
    """Whatever the model computes in, a checkpoint holds fp32."""
    (tmp_path / "text").write_text("a text that is long enough " * 20)
    subprocess.run([os.environ["FOVEA_PROGRAM"], "train", "--text", tmp_path / "text", "-o", tmp_path / "out",
                    "--layers", str(LAYERS), "--width", str(WIDTH), "--heads", "2", "--hidden", str(HIDDEN),
                    "--context", "16", "--batch", "2", "--steps", "3", "--warm-up", "1",
                    "--dtype", dtype], check=True)
    tensors, metadata = load(tmp_path / "out/checkpoint.safetensors")
    assert metadata["format"] == "fovea.checkpoint/1"
    assert metadata["step"] == "3"
    assert len(metadata["text_sha256"]) == 64
    shapes = {"embedding.weight": (VOCABULARY, WIDTH), "norm.weight": (WIDTH,), "head.weight": (VOCABULARY, WIDTH)}
    for layer in range(LAYERS):
        shapes |= {f"layers.{layer}.{name}.weight": shape for name, shape in (
            ("attention_norm", (WIDTH,)), ("attention.qkv", (3 * WIDTH, WIDTH)), ("attention.out", (WIDTH, WIDTH)),
            ("feed_forward_norm", (WIDTH,)), ("feed_forward.gate", (HIDDEN, WIDTH)),
            ("feed_forward.up", (HIDDEN, WIDTH)), ("feed_forward.down", (WIDTH, HIDDEN)))}
    for name, shape in shapes.items():
        for prefix in ("", "optimizer.m.", "optimizer.v."):
            tensor = tensors.pop(prefix + name)
            assert tensor.shape == shape
            assert tensor.dtype == np.float32
    assert not tensors, "a tensor without a meaning"


def test_weights_are_not_shifted(tmp_path: Path) -> None:
    """Norms begin with ones, and three small steps keep them near; matrices stay small."""
    (tmp_path / "text").write_text("a text that is long enough " * 20)
    subprocess.run([os.environ["FOVEA_PROGRAM"], "train", "--text", tmp_path / "text", "-o", tmp_path / "out",
                    "--layers", "1", "--width", "20", "--heads", "2", "--hidden", "9", "--context", "16", "--batch",
                    "1", "--steps", "3", "--warm-up", "1"], check=True)
    tensors, _ = load(tmp_path / "out/checkpoint.safetensors")
    for name, values in tensors.items():
        if name.endswith("norm.weight") and not name.startswith("optimizer"):
            assert np.abs(values - 1).max() < 0.05, name
        elif name.startswith("optimizer.v."):
            assert values.min() >= 0, name
        elif not name.startswith("optimizer"):
            assert 0 < np.abs(values).max() < 0.15, name
