"""scripts/python_overhead and scripts/python_llama on the CPU: what they write, and that they find a wrong answer."""

import json
import pathlib
import subprocess
import sys

import pytest
import torch

import fovea

ROOT = pathlib.Path(__file__).resolve().parents[2]
KINDS = {kind["properties"]["schema"]["const"]: kind
         for kind in json.loads((ROOT / "python/fovea_report/record.schema.json").read_text())["$defs"].values()
         if "const" in kind.get("properties", {}).get("schema", {})}


def run(script, path, *words):
    """The rows behind the environment, with the keys that the schema asks for."""
    command = [sys.executable, str(ROOT / "scripts" / script), "--device", "cpu", "--turns", "3", "--calls", "1",
               "--commit", "0123456789ab", "-o", str(path), *words]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    first, *rows = map(json.loads, path.read_text().splitlines())
    for row in (first, *rows):
        kind = KINDS[row["schema"]]
        assert set(kind["required"]) <= set(row) <= set(kind["properties"])
        assert row["source"] == {"commit": "0123456789ab", "dirty": False}
    assert first["schema"] == "fovea.env/1" and first["version"] == fovea.__version__
    assert first["facts"]["torch"] == torch.__version__ and str(path.parent) not in first["command"]
    for row in rows:
        if "time_s" in row:
            assert row["time_s"]["n"] == 3 == len(row["time_s"]["samples"]) and 0 < row["time_s"]["median"]
    return rows


def test_overhead(tmp_path):
    rows = run("python_overhead", tmp_path / "rows.jsonl")
    assert {row["schema"] for row in rows} == {"fovea.python_overhead/1"}
    assert {row["impl"] for row in rows if row["problem"].startswith("pass=")} == {"fovea.torch", "empty operator",
                                                                                "torch.sdpa"}
    assert len([row for row in rows if row["impl"].startswith("numpy: ")]) == 4
    assert len({(row["problem"], row["impl"]) for row in rows}) == len(rows) == 4 + 4 + 3 + 3


def test_llama(tmp_path):
    pytest.importorskip("transformers")
    rows = run("python_llama", tmp_path / "rows.jsonl", "--size", "tiny")
    assert [(row["what"], row["dtype"]) for row in rows] == [
        *(("answers", dtype) for dtype in ("fp32", "bf16") for _ in range(3)), ("generate", "fp32"),
        *(("step", dtype) for dtype in ("fp32", "bf16") for _ in range(2))]
    for row in rows[:6]:
        assert set(row["error"]) == {"logits", "loss", "gradients"}
        assert ("fovea" in row["calls"]) == (row["padding"] == "none")
        assert all(0 < one["error"] <= one["allowed"] for one in row["error"].values())
    assert rows[6]["equal"] == {"none": True, "left": True}
    assert [row["impl"] for row in rows[7:]] == ["fovea", "sdpa"] * 2


def test_a_wrong_answer_of_the_llama_is_found(monkeypatch):
    pytest.importorskip("transformers")
    monkeypatch.syspath_prepend(str(ROOT / "tests/scripts"))
    import fovea.hf
    from script_loader import load
    from transformers import AttentionInterface

    script = load(ROOT, "python_llama")
    models = script.Models(script.options_of(["--device", "cpu", "--size", "tiny"]))
    assert script.judge(models, torch.float32, "none")["status"] == "ok"

    def wrong(*arguments, **more):
        out, weights = fovea.hf.attention_forward(*arguments, **more)
        return out * 1.001, weights
    AttentionInterface.register("fovea", wrong)
    try:
        told = script.judge(models, torch.float32, "none")
    finally:
        AttentionInterface.register("fovea", fovea.hf.attention_forward)
    assert told["status"] == "mismatch"
    assert all(one["error"] > one["allowed"] for one in told["error"].values())


@pytest.mark.parametrize("script", ["python_overhead", "python_llama"])
def test_bad_options(script):
    if script == "python_llama":
        pytest.importorskip("transformers")
    ended = subprocess.run([sys.executable, str(ROOT / "scripts" / script), "--turns", "2"], capture_output=True,
                           text=True, check=False, timeout=300)
    assert ended.returncode == 2 and "got --turns 2 --calls" in ended.stderr and "wanted at least 3" in ended.stderr
