"""The model in PyTorch, against `fovea profile`: needs a Python with torch, which FOVEA_TORCH_PYTHON names."""

import json
import os
import pathlib
import subprocess

import pytest

PROGRAM = os.environ["FOVEA_PROGRAM"]
PYTHON = os.environ.get("FOVEA_TORCH_PYTHON", "python3")
HAS_TORCH = subprocess.run([PYTHON, "-c", "import torch"], capture_output=True).returncode == 0
BENCH = pathlib.Path(__file__).resolve().parents[2] / "python" / "fovea_bench"
SIZES = ["--layers", "2", "--width", "48", "--heads", "3", "--hidden", "80", "--vocabulary", "70"]


def profiled(file: pathlib.Path, words: list, code: int = 0, **environment: str):
    """The rows of a profile of a small model, which ends with `code`."""
    ended = subprocess.run([PROGRAM, "profile", *SIZES, "--batch", "3", "--context", "20", "--steps", "3", "--warm-up",
                            "1", "--python", PYTHON, "-o", file, *words], capture_output=True, text=True,
                           env={**os.environ, **environment})
    assert ended.returncode == code, ended.stderr
    return [row for row in map(json.loads, file.read_text().splitlines()) if row["schema"] == "fovea.bench/1"]


@pytest.mark.skipif(not HAS_TORCH, reason="no Python with torch")
@pytest.mark.parametrize("peer, dtype, loss, gradient", [
    ("torch.eager", "fp32", 1e-6, 1e-5), ("torch.compile", "fp32", 1e-6, 1e-5), ("torch.eager", "bf16", 1e-3, 5e-2)])
def test_the_same_weights_give_the_same_loss_and_gradients(peer: str, dtype: str, loss: float, gradient: float,
                                                           tmp_path: pathlib.Path):
    rows = profiled(tmp_path / "run.jsonl", ["--with", peer, "--dtype", dtype])
    passes = [[row["problem"].split()[1] for row in rows if row["impl"] == name] for name in ("fovea", peer)]
    assert passes[0] == passes[1] and len(passes[0]) == 6
    for row in (row for row in rows if row["impl"] == peer):
        if "C++ compiler" in row["reason"]:
            pytest.skip("torch.compile finds no compiler")
        assert row["status"] == "ok", row["reason"]
        assert row["peer"].startswith("PyTorch ") and row["time_s"]["n"] == 3
        assert all(len(phase["samples"]) == 3 for phase in row["phases"].values())
        assert row["error"]["loss against fovea"]["rel_l2"] < loss
        error = {what.removesuffix(" against fovea"): one["rel_l2"] for what, one in row["error"].items()}
        assert error["loss"] < loss and error["gradients"] < gradient
        # A step may err by 4 of the gradient's error (model_peer.cpp), and by its roundings of weights near 1, which it
        # changes by at least a tenth of the learning rate.
        assert error["loss after three steps"] < loss
        assert error["three steps"] < 4 * gradient + 12 * 2**-24 / 3e-5


@pytest.mark.skipif(not HAS_TORCH, reason="no Python with torch")
@pytest.mark.parametrize("right, wrong", [
    ("self.torch.nn.utils.clip_grad_norm_(self.weights, largest_norm)", "pass"),
    ('"weight_decay": command["weight_decay"]', '"weight_decay": 0.0'),
    ('"weight_decay": 0.0', '"weight_decay": command["weight_decay"]'),
    ('betas=tuple(command["betas"])', "betas=(0.9, 0.999)"),
    ('betas=tuple(command["betas"])', "betas=(0.8, 0.95)"),
    ('eps=command["adam_epsilon"]', "eps=1e-8"),
    ("optim.AdamW(", "optim.Adam("),
    ("[rate] * len(optimizer.param_groups)", '[command["learning_rates"][0]] * 2'),
    ('for rate in command["learning_rates"]:', 'for rate in command["learning_rates"][:2]:'),
    # The fp32 copies of a model in bf16: without its gradients, and without the way back.
    ("self.torch._foreach_copy_([one.grad for one in self.weights],", "zip([one.grad for one in self.weights],"),
    ("self.torch._foreach_copy_(list(self.model.parameters()), self.weights)", "pass")])
def test_a_peer_with_another_optimizer_is_a_mismatch(right: str, wrong: str, tmp_path: pathlib.Path):
    worker = (BENCH / "model_worker.py").read_text()
    assert worker.count(right) == 1
    (tmp_path / "fovea_bench").mkdir()
    (tmp_path / "fovea_bench" / "model_worker.py").write_text(worker.replace(right, wrong))
    dtype = "bf16" if "_foreach_copy_" in right else "fp32"
    rows = profiled(tmp_path / "run.jsonl", ["--with", "torch.eager", "--passes", "forward", "--dtype", dtype], code=1,
                    FOVEA_PYTHON_FOLDER=str(tmp_path))
    assert [row["status"] for row in rows] == ["ok", "mismatch"]
    assert "three steps" in rows[1]["reason"]
