"""The model in PyTorch, against `fovea profile`: needs a Python with torch, which FOVEA_TORCH_PYTHON names."""

import json
import os
import pathlib
import subprocess

import pytest

PROGRAM = os.environ["FOVEA_PROGRAM"]
PYTHON = os.environ.get("FOVEA_TORCH_PYTHON", "python3")
HAS_TORCH = subprocess.run([PYTHON, "-c", "import torch"], capture_output=True).returncode == 0
SIZES = ["--layers", "2", "--width", "48", "--heads", "3", "--hidden", "80", "--vocabulary", "70"]


@pytest.mark.skipif(not HAS_TORCH, reason="no Python with torch")
@pytest.mark.parametrize("peer, dtype, loss, gradient", [
    ("torch.eager", "fp32", 1e-6, 1e-5), ("torch.compile", "fp32", 1e-6, 1e-5), ("torch.eager", "bf16", 1e-3, 5e-2)])
def test_the_same_weights_give_the_same_loss_and_gradients(peer: str, dtype: str, loss: float, gradient: float,
                                                           tmp_path: pathlib.Path):
    file = tmp_path / "run.jsonl"
    ended = subprocess.run([PROGRAM, "profile", *SIZES, "--batch", "3", "--context", "20", "--steps", "3", "--warm-up",
                            "1", "--with", peer, "--dtype", dtype, "--python", PYTHON, "-o", file], capture_output=True,
                           text=True)
    assert ended.returncode == 0, ended.stderr
    rows = [row for row in map(json.loads, file.read_text().splitlines()) if row["schema"] == "fovea.bench/1"]
    passes = [[row["problem"].split()[1] for row in rows if row["impl"] == name] for name in ("fovea", peer)]
    assert passes[0] == passes[1] and len(passes[0]) == 6
    for row in (row for row in rows if row["impl"] == peer):
        if "C++ compiler" in row["reason"]:
            pytest.skip("torch.compile finds no compiler")
        assert row["status"] == "ok", row["reason"]
        assert row["peer"].startswith("PyTorch ") and row["time_s"]["n"] == 3
        assert row["error"]["loss against fovea"]["rel_l2"] < loss
        assert row["error"]["gradients against fovea"]["rel_l2"] < gradient
