"""Reads files of records: JSON lines, an environment before the rows of each session (docs/record.schema.json)."""

import json
from pathlib import Path
from typing import Any

import pandas as pd

from .vocabulary import Refused, Vocabulary, parse_case

TIMES = ("median", "min", "mean", "std", "q1", "q3", "n")
ENV_KEYS = {"machine": str, "date": str, "command": str, "source": dict, "version": str, "threads": int, "facts": dict,
            "ceilings": dict}
ROW_KEYS = {"problem": str, "impl": str, "status": str, "reason": str, "flags": list, "flops": (int, float),
            "bytes": (int, float), "error": dict, "threads": int, "source": dict, "timer": str, "machine": str}
STEP_KEYS = {"step": int, "loss": (int, float), "learning_rate": (int, float), "gradient_norm": (int, float),
             "seconds": (int, float), "bytes": int}
WHOLE_KEYS = ("threads", "workspace_bytes", "saved_bytes", "memory_before_backward_bytes")
KEYS = {"fovea.env/1": ENV_KEYS, "fovea.bench/1": ROW_KEYS, "fovea.train/1": STEP_KEYS}


def is_whole(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < 2**63 and value % 1 == 0


def parse_line(line: str) -> dict[str, Any]:
    record = json.loads(line, parse_constant=lambda word: float("nan"))
    if not isinstance(record, dict):
        raise ValueError("no object")
    if (wanted := KEYS.get(record.get("schema"))) is None:
        raise ValueError(f"the schema `{record.get('schema')}`, which is none of {', '.join(KEYS)}")
    for key, kind in wanted.items():
        if not isinstance(record.get(key), kind) or isinstance(record[key], bool):
            raise ValueError(f"a record whose `{key}` is missing or of the wrong type")
    if wanted is not ROW_KEYS:
        return record
    if not isinstance(times := record.get("time_s") or {}, dict):
        raise ValueError("a record whose key `time_s` is no object")
    for key, value in [("n", times.get("n")), *((key, record.get(key)) for key in WHOLE_KEYS)]:
        if value is not None and not is_whole(value):
            raise ValueError(f"a record whose key `{key}` is no whole number")
    if record["status"] == "ok" and not ({type(times.get(k)) for k in TIMES} <= {int, float} and times["median"] > 0):
        raise ValueError("a row with status ok that has no time")
    return record


def read_file(path: Path) -> tuple[list[tuple[int, dict]], list[dict], str]:
    """Rows with the number of their environment; a torn last line is left out with a warning."""
    try:
        *lines, torn = path.read_bytes().split(b"\n")
    except OSError as failed:
        raise Refused(f"{path}: {failed.strerror}") from None
    rows: list[tuple[int, dict]] = []
    environments: list[dict] = []
    position = 0
    for line in lines:
        try:
            record = parse_line(line.decode())
            if record["schema"] == "fovea.env/1":
                environments.append(record)
            elif environments:
                rows.append((len(environments) - 1, record))
            else:
                raise ValueError("a row before any environment")
        except (ValueError, RecursionError) as failed:
            raise Refused(f"{path}: at byte {position}: {failed}") from None
        position += len(line) + 1
    if not environments:
        raise Refused(f"{path}: holds no records")
    return rows, environments, f"{path}: the last line is torn and was left out" if torn else ""


def flat(record: dict[str, Any], environment: int, vocabulary: Vocabulary) -> dict[str, Any]:
    """A record as a row of the table: one value per column."""
    case = parse_case(record["problem"])
    times = record.get("time_s") or {}
    launches = record.get("launches") or {}
    flags = tuple(record["flags"])
    timed = record["status"] == "ok" and bool(times)
    return {
        **{key: record[key] for key in ROW_KEYS if key != "source"}, **{name: times.get(name) for name in TIMES},
        "case": case, "op": case["op"], "pass_": case.get("pass", ""), "kind": vocabulary.kind(record["impl"]),
        "flags": flags, "launches": launches.get("median_s"), "beyond": launches.get("beyond_s"),
        "pooled_beyond": launches.get("pooled_beyond_s"), "tflops": record.get("tflops"),
        "ceiling_share": record.get("ceiling_share"), "ceiling": (record.get("ceiling") or {}).get("flops_per_s"),
        "workspace": record.get("workspace_bytes"), "saved": record.get("saved_bytes"),
        "held": record.get("memory_before_backward_bytes"), "peer": record.get("peer", ""),
        "on_gpu": (on_gpu := case.get("device") == "cuda"), "cpu_threads": 0 if on_gpu else record["threads"],
        "commit": record["source"].get("commit", "unknown"), "dirty": bool(record["source"].get("dirty")),
        "environment": environment, "timed": timed, "possible": timed and "impossible" not in flags,
        "ranked": timed and not vocabulary.unranked() & set(flags), "noisy": "noisy" in flags,
    }


def load(paths: list[Path], vocabulary: Vocabulary) -> tuple[pd.DataFrame, list[dict[str, Any]], list[str]]:
    """Rows, environments and warnings."""
    found: list[dict[str, Any]] = []
    environments: list[dict[str, Any]] = []
    warnings: list[str] = []
    for path in paths:
        rows, of_sessions, warning = read_file(path)
        if any(record["schema"] == "fovea.train/1" for _, record in rows):
            raise Refused(f"{path}: holds steps of a training, which have a report without other rows")
        found += [{**flat(record, len(environments) + number, vocabulary), "file": path} for number, record in rows]
        environments += of_sessions
        warnings += [warning] if warning else []
    for row in found:  # The device time of a GPU belongs to the GPU, whatever its host is.
        facts = environments[row["environment"]]["facts"] if row["on_gpu"] and row["timer"] != "cuda_host" else {}
        row["system"] = facts.get("gpu", row["machine"])
    return without_duplicates(pd.DataFrame(found)) if found else pd.DataFrame(), environments, warnings


def without_duplicates(rows: pd.DataFrame) -> pd.DataFrame:
    """Of rows that measure the same, the row of the file that timed the most peers at the problem; of equals, the last.
    So the times of this library and of its peers come from one run. Timers of a GPU time different things."""
    of_gpu = rows.timer.where(rows.timer.str.startswith("cuda_"), "")
    rows = rows.assign(measured=list(zip(rows.problem, rows.impl, rows.threads, of_gpu, rows.system)))
    rows = rows.drop_duplicates(["file", "measured"], keep="last")
    is_peer = rows.timed & (rows.kind == "peer")
    peers = is_peer.groupby([rows.file, rows.problem, rows.cpu_threads, rows.system]).transform("sum")
    first = rows.drop_duplicates("measured").measured
    rows = rows.assign(peers=peers).sort_values("peers", kind="stable").drop_duplicates("measured", keep="last")
    return rows.set_index("measured").loc[first].reset_index(drop=True)
