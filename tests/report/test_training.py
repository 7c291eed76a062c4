"""The report of a training: what it says, its files, and what it refuses."""

import csv
import json
from pathlib import Path

import pandas as pd
import pytest
from conftest import ENVIRONMENT, row
from test_folder import report

from fovea_report import training


def step(number: int, loss: float, held_out: float | None = None, seconds: float = 0.5) -> dict:
    return {"schema": "fovea.train/1", "step": number, "loss": loss, "held_out": held_out,
            "trigram": None if held_out is None else 2.0, "learning_rate": 1e-3, "gradient_norm": 1.0,
            "seconds": seconds, "bytes": 1000}


@pytest.fixture
def steps() -> list[dict]:
    return [step(n, 5.5 - 0.02 * n, 5.0 - 0.02 * n if n % 50 == 0 else None) for n in range(1, 201)]


def test_it_tells_how_the_training_went(write, steps):
    one = training.training_of(write(steps))
    said = one.sentences()
    assert "from 5.480 in step 1 to 2.490, the mean of the last 100 of 200 steps" in said[0]
    assert "held-out loss 1.000 after step 200, below the 2.000 of a trigram count model" in said[1]
    assert "200,000 bytes of text in 100 s (2,000 a second)" in said[2]


def test_steps_that_were_made_again_count_once(write, steps):
    one = training.training_of(write([*steps[:120], *steps[100:]]))
    assert list(one.steps.step) == list(range(1, 201))
    assert "not below" in training.training_of(write([step(1, 3.0, 2.5)])).sentences()[1]


def test_means_are_over_the_steps_before(steps):
    values = pd.Series([one["loss"] for one in steps])
    smooth = training.moving_mean(values)
    assert len(smooth) == len(values) and smooth[0] == values[0]
    assert smooth.iloc[-1] == pytest.approx(sum(values[-training.SMOOTH:]) / training.SMOOTH)


def test_the_folder_has_a_page_a_picture_and_every_step(write, steps, tmp_path):
    out = tmp_path / "out"
    ended = report(write(steps), "-o", out)
    assert ended.returncode == 0, ended.stderr
    assert "held-out loss 1.000" in ended.stdout
    page = (out / "index.html").read_text()
    assert "<svg" in page and "held-out loss 1.000" in page and "Test CPU" in page
    assert (out / "pictures/loss.png").read_bytes().startswith(b"\x89PNG")
    assert "| 200 | 1.500 | 1.000 | 2.000 |" in (out / "report.md").read_text()
    rows = list(csv.DictReader((out / "steps.csv").open()))
    assert len(rows) == 200 and float(rows[9]["loss"]) == steps[9]["loss"] and rows[9]["held_out"] == ""
    listed = (out / "files.txt").read_text().split()
    assert sorted(listed) == ["index.html", "pictures/loss.png", "report.md", "steps.csv"]
    assert report(write(steps), "-o", out, "--no-pictures").returncode == 0
    assert not (out / "pictures/loss.png").exists() and "<svg" not in (out / "index.html").read_text()


@pytest.mark.parametrize("path", ["run.jsonl", "other.jsonl"])
def test_other_rows_beside_steps_are_refused(write, steps, tmp_path, path: str):
    first = write([*steps, row("naive", 1)] if path == "run.jsonl" else steps)
    files = [first] if path == "run.jsonl" else [first, write([row("naive", 1)], path)]
    ended = report(*files, "-o", tmp_path / "out")
    assert ended.returncode == 2 and "training" in ended.stderr and not (tmp_path / "out").exists()


def test_a_baseline_and_damage_are_refused(write, steps, tmp_path: Path):
    out = tmp_path / "out"
    assert report(write(steps), "-o", out, "--baseline", "naive").returncode == 2
    broken = tmp_path / "broken.jsonl"
    wrong = [{key: value for key, value in steps[0].items() if key != "loss"}]
    broken.write_text("".join(json.dumps(one) + "\n" for one in [ENVIRONMENT, *wrong]))
    ended = report(broken, "-o", out)
    assert ended.returncode == 2 and "without the key `loss`" in ended.stderr and not out.exists()
