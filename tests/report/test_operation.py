"""An operation that neither the sources nor the reports know is benched and reported."""

import csv
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = os.environ.get("FOVEA_ROW_SCALING", "")
FOVEA = os.environ.get("FOVEA_PROGRAM", "")


@pytest.mark.skipif(not PROGRAM, reason="FOVEA_ROW_SCALING names the program of tests/operation")
def test_the_test_operation_has_tables_sentences_and_pictures(tmp_path: Path):
    record, out = tmp_path / "run.jsonl", tmp_path / "out"
    line = "op=row_scaling rows=32,64,128 pass=fwd,bwd"
    subprocess.run([PROGRAM, "bench", "--problem", line, "--repeat-for", "0.01", "-o", str(record)], check=True,
                   capture_output=True)
    done = subprocess.run([PROGRAM, "report", str(record), "-o", str(out), "--python", sys.executable], check=True,
                          capture_output=True, text=True)
    assert done.stdout.startswith("6 configurations, 1 implementation: rows.plain")
    with (out / "tables/time-forward-fp32.csv").open() as text:
        assert [one["rows"] for one in csv.DictReader(text)] == ["32", "64", "128"]
    assert (out / "pictures/growth-fwd.png").exists() and "row_scaling" in (out / "rows.csv").read_text()


@pytest.mark.skipif(not FOVEA, reason="FOVEA_PROGRAM names the program")
def test_a_record_of_linear_becomes_a_page(tmp_path: Path):
    record, out = tmp_path / "run.jsonl", tmp_path / "out"
    line = "op=linear m=32,64,128 k=32 n=48 pass=fwd,bwd bias=yes"
    subprocess.run([FOVEA, "bench", "--problem", line, "--impl", "cpu.own,cpu.onednn", "--repeat-for", "0.01",
                    "-o", str(record)],
                   check=True, capture_output=True)
    done = subprocess.run([FOVEA, "report", str(record), "-o", str(out), "--python", sys.executable], check=True,
                          capture_output=True, text=True)
    assert done.stdout.startswith("6 configurations, 2 implementations")
    for direction in ("forward", "backward"):
        (table,) = (out / "tables").glob(f"time-{direction}-fp32*.csv")
        with table.open() as text:
            assert [one["m"] for one in csv.DictReader(text)] == ["32", "64", "128"]
    assert (out / "pictures/growth-bwd.png").exists() and "cpu.own" in (out / "report.md").read_text()
    assert "linear" in (out / "rows.csv").read_text()
