"""Records made by hand, rows of every status, and the package under test."""

import json
import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

from fovea_report import study as studies  # noqa: E402
from fovea_report import vocabulary as words  # noqa: E402

PROGRAM = os.environ.get("FOVEA_PROGRAM", str(ROOT / "build/release/fovea"))
FACTS = os.environ.get("FOVEA_FACTS", str(ROOT / "build/release/tests/report/report_facts"))
MACHINE = "Test CPU, 2 processors, 24 GiB"
ENVIRONMENT = {"schema": "fovea.env/1", "machine": MACHINE, "date": "2026-01-31T12:00:00Z", "command": "fovea bench",
               "source": {"commit": "0123456789abcdef", "dirty": False}, "version": "0.2.0", "threads": 2,
               "facts": {"cpu": "Test CPU"}, "ceilings": {"fma_fp32": 2e11, "read_bandwidth": 2e10}}
ATTENTION = {"pass": "fwd", "b": 1, "hq": 1, "hkv": 1, "lq": 512, "lk": 512, "d": 64, "dv": 64, "dtype": "fp32",
             "mask": "causal", "layout": "bhld", "scale": 0.125, "device": "cpu", "data": "normal",
             "place": "contiguous",
             "seed": 0}


def line(op: str = "attention", **keys) -> str:
    """A canonical problem line; key heads, key length and value dimension follow."""
    case = dict(ATTENTION) if op == "attention" else {}
    case.update(keys)
    for word, source in (("hkv", "hq"), ("lk", "lq"), ("dv", "d")):
        if op == "attention" and word not in keys:
            case[word] = case[source]
    return " ".join([f"op={op}", *(f"{key}={value}" for key, value in case.items())])


def row(impl: str, ms: float | None = 1.0, *, status: str = "ok", reason: str = "", flags: tuple = (),
        spread: float = 0.02,
        threads: int = 2, timer: str = "steady_clock", problem: str = "", held: int | None = None, **keys) -> dict:
    """A row of a record; without a time where the status says so."""
    timed = status == "ok"
    seconds = (ms or 0) / 1e3
    time = {"median": seconds, "min": seconds * 0.9, "mean": seconds * 1.01, "std": seconds * 0.01,
            "q1": seconds * (1 - spread), "q3": seconds * (1 + spread), "n": 3, "samples": [seconds] * 3}
    return {"schema": "fovea.bench/1", "problem": problem or line(**keys), "impl": impl, "status": status,
            "reason": reason or ("" if timed else "for a reason"), "flags": list(flags),
            "time_s": time if timed else None,
            "flops": 1e9, "bytes": 1e6, "tflops": 1e-3 / seconds if timed else None,
            "ceiling_share": 1e9 / seconds / 2e11 if timed else None,
            "ceiling": {"flops_per_s": 2e11, "probe_before": 2e11, "probe_after": 2e11, "best_product": 1e11} if timed
            else None,
            "workspace_bytes": 4096, "saved_bytes": 0, "memory_before_backward_bytes": held or 1_000_000,
            "error": {"out": {"rel_l2": 1e-7, "max_abs": 1e-6, "ratio_to_plain": 1.1}} if timed else {},
            "threads": threads,
            "source": ENVIRONMENT["source"], "clock_mhz": None, "power_w": None, "timer": timer, "machine": MACHINE}


@pytest.fixture(scope="session")
def vocabulary() -> words.Vocabulary:
    return words.ask(PROGRAM)


@pytest.fixture
def write(tmp_path):
    """Writes rows to a file of records."""
    def to_file(rows: list[dict], name: str = "run.jsonl") -> Path:
        path = tmp_path / name
        path.write_text("".join(json.dumps(one) + "\n" for one in [ENVIRONMENT, *rows]))
        return path
    return to_file


@pytest.fixture
def study(write, vocabulary):
    """The study of some rows."""
    return lambda rows, baseline="": studies.make_study([write(rows)], vocabulary, baseline)
