"""Reads records, and asks `fovea report` for their tables."""

import csv
import json
import subprocess
import tempfile
from pathlib import Path


def report(program: str, records: list[Path], *options: str) -> tuple[str, Path, tempfile.TemporaryDirectory]:
    """What `fovea report` prints, and the folder that it fills."""
    folder = tempfile.TemporaryDirectory()
    done = subprocess.run([program, "report", *map(str, records), "-o", folder.name, *options], check=True,
                          capture_output=True, text=True)
    return done.stdout, Path(folder.name), folder


def summary(program: str, records: list[Path], *options: str) -> list[dict[str, str]]:
    """The rows of a report's table of who is fastest."""
    _, folder, keep = report(program, records, "--no-pictures", *options)
    with keep, (folder / "tables/summary.csv").open(encoding="utf-8") as text:
        return list(csv.DictReader(text))


def keys_of(row: dict) -> dict[str, str]:
    return dict(word.split("=", 1) for word in row["problem"].split())


def rows_of(records: list[Path], kind: str = "bench") -> list[dict]:
    lines = (json.loads(line) for record in records for line in record.read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line["schema"] == f"fovea.{kind}/1"]


def environment(record: Path) -> dict:
    return rows_of([record], "env")[0]


def measured(record: Path) -> str:
    """The days of a record's rows; of several builds, their commits too."""
    days = sorted({env["date"][:10] for env in rows_of([record], "env")})
    commits = sorted({row["source"]["commit"][:8] for row in rows_of([record])})
    return ", ".join(days) + (f" (commits {', '.join(commits)})" if len(commits) > 1 else "")


def medians(records: list[Path]) -> dict[str, dict[str, float]]:
    """Seconds of each implementation, for each cell."""
    times: dict[str, dict[str, float]] = {}
    for record in records:
        for row in rows_of([record]):
            if row.get("time_s"):
                times.setdefault(f"{record.name} {row['problem']}", {})[row["impl"]] = row["time_s"]["median"]
    return times
