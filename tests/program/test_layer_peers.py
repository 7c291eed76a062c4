"""Attention layers in PyTorch: `fovea bench` checks their outputs and gradients like ours. Needs a Python with torch,
which FOVEA_TORCH_PYTHON names; refusals need none."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python" / "fovea_bench"))
import fovea_worker  # noqa: E402
import layer_peers  # noqa: E402

PROGRAM = os.environ["FOVEA_PROGRAM"]
PYTHON = os.environ.get("FOVEA_TORCH_PYTHON", "python3")
HAS_TORCH = subprocess.run([PYTHON, "-c", "import torch"], capture_output=True).returncode == 0
LAYERS = ["op=mha_fused hq=2 d=16 bias=yes", "op=mha hq=2 d=16 lk=11 ekv=24 mask=none",
          "op=gqa hq=4 hkv=2 d=16 mask=causal", "op=mqa hq=3 d=16 mask=window left=5 right=1",
          "op=mla hq=2 d=16 latent=24 mask=causal bias=yes",
          "op=mha hq=2 d=16 lk=11 ekv=24 rope=halves rope_dim=6 theta=50 pos=3 pos_k=7 mask=none",
          "op=gqa hq=4 hkv=2 d=16 rope=interleaved qk_norm=yes mask=causal", "op=mha_fused hq=2 d=16 qk_norm=yes",
          "op=mla hq=2 d=16 latent=24 latent_norm=yes qk_norm=yes rope=halves mask=causal",
          "op=mla hq=3 d=24 dv=16 latent=40 latent_kv=20 d_shared=8 rope=interleaved latent_norm=yes bias=yes"]


@pytest.mark.skipif(not HAS_TORCH, reason="no Python with torch")
@pytest.mark.parametrize("layer", LAYERS)
def test_results_and_gradients_of_every_layer_are_right(layer: str, tmp_path: pathlib.Path):
    file = tmp_path / "run.jsonl"
    problem = f"{layer} b=2 lq=19 pass=fwd,e2e dtype=fp32,bf16"
    ended = subprocess.run([PROGRAM, "bench", "--problem", problem, "--impl", "flash", "--with",
                            "torch.eager,torch.sdpa", "--python", PYTHON, "--repeat-for", "0.01", "-o", file],
                           capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    rows = [row for row in map(json.loads, file.read_text().splitlines()) if row["schema"] == "fovea.bench/1"]
    assert len(rows) == 4 * 3
    for row in rows:
        assert row["status"] == "ok", row["reason"]
        if row["impl"].startswith("torch"):
            assert row["peer"].startswith("PyTorch ") and "inaccurate" not in row["flags"]


def test_other_operations_are_refused_by_name():
    worker = fovea_worker.Worker("peers:torch.sdpa")
    assert isinstance(worker.peer_of("mla"), layer_peers.SdpaLayer)
    with pytest.raises(fovea_worker.Unsupported, match="torch.sdpa has no op=linear"):
        worker.peer_of("linear")
    with pytest.raises(fovea_worker.Unsupported, match="onnxruntime has no op=mha"):
        fovea_worker.Worker("peers:onnxruntime").peer_of("mha")
