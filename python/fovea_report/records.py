"""Reads files of records: JSON lines, an environment before the rows of each session (record.schema.json)."""

import json
from pathlib import Path
from typing import Any

import pandas as pd

from .vocabulary import Refused, Vocabulary, parse_case

SCHEMA = Path(__file__).with_name("record.schema.json")
KINDS = json.loads(SCHEMA.read_text(encoding="utf-8"))["$defs"]
RECORDS = {kind["properties"]["schema"]["const"]: kind for kind in KINDS.values() if "schema" in kind["properties"]}
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "number": (int, float)}
PARTS = "fovea.profile/1"  # the parts of a model's step, whose times are rows of their own
TIMES = ("median", "min", "mean", "std", "q1", "q3", "n")
BYTES = {"workspace": "workspace", "saved": "saved", "held": "memory_before_backward", "state": "memory_before_forward"}
COPIED = ("problem", "impl", "status", "reason", "flops", "bytes", "tflops", "ceiling_share", "error", "threads",
          "timer", "machine")


def is_a(value: Any, word: str) -> bool:
    """Whether a value has a type of JSON schema. 2.0 is an integer if 64 bits hold it."""
    if word == "integer":
        return is_a(value, "number") and abs(value) < 2**63 and value % 1 == 0
    return isinstance(value, TYPES[word]) and not (word == "number" and isinstance(value, bool))


def check(value: Any, kind: dict[str, Any], key: str) -> None:
    """Refuses, by its key, a value that is missing, of another type than the schema says, or too small."""
    if "oneOf" in kind:
        kind = kind["oneOf"][0 if value is None else 1]
    if "$ref" in kind:
        kind = KINDS[kind["$ref"].rpartition("/")[2]]
    types = kind.get("type", [])
    if types and not any(is_a(value, one) for one in ([types] if isinstance(types, str) else types)):
        raise ValueError(f"a record whose key `{key}` has the wrong type")
    if is_a(value, "number") and value < kind.get("minimum", value):
        raise ValueError(f"a record whose key `{key}` is below {kind['minimum']}")
    if isinstance(value, list) and "items" in kind:
        for one in value:
            check(one, kind["items"], key)
    elif isinstance(value, dict):
        if missing := [name for name in kind.get("required", []) if name not in value]:
            raise ValueError(f"a record without the key `{missing[0]}`")
        for name, one in value.items():  # keys of a newer version are not checked
            check(one, kind.get("properties", {}).get(name) or kind.get("additionalProperties") or {}, name)


def parse_line(line: str) -> dict[str, Any]:
    record = json.loads(line, parse_constant=lambda word: float("nan"))
    if not isinstance(record, dict):
        raise ValueError("no object")
    if (kind := RECORDS.get(record.get("schema"))) is None:
        raise ValueError(f"the schema `{record.get('schema')}`, which is none of {', '.join(RECORDS)}")
    check(record, kind, "record")
    if kind is KINDS["row"] and record["status"] == "ok" and not (record["time_s"] or {"median": 0})["median"] > 0:
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
            elif not environments:
                raise ValueError("a row before any environment")
            elif record["schema"] != PARTS:
                rows.append((len(environments) - 1, record))
        except (ValueError, RecursionError) as failed:
            raise Refused(f"{path}: at byte {position}: {failed}") from None
        position += len(line) + 1
    if not environments:
        raise Refused(f"{path}: holds no records")
    return rows, environments, f"{path}: the last line is torn and was left out" if torn else ""


def flat(record: dict[str, Any], environment: int, vocabulary: Vocabulary) -> dict[str, Any]:
    """A record as a row of the table: one value per column."""
    case, flags, launches = parse_case(record["problem"]), tuple(record["flags"]), record.get("launches", {})
    times, timed, on_gpu = record["time_s"] or {}, record["status"] == "ok", case.get("device") == "cuda"
    return {**{key: record[key] for key in COPIED}, **{name: times.get(name) for name in TIMES}, **record["source"],
        "case": case, "op": case["op"], "pass_": case.get("pass", ""), "environment": environment,
        "kind": vocabulary.kind(record["impl"]), "peer": record.get("peer", ""), "launches": launches.get("median_s"),
        "beyond": launches.get("beyond_s"), "phases": record.get("phases") or {case.get("pass", ""): times},
        "pooled_beyond": launches.get("pooled_beyond_s"), "ceiling": (record["ceiling"] or {}).get("flops_per_s"),
        **{name: record.get(f"{key}_bytes") for name, key in BYTES.items()}, "on_gpu": on_gpu,
        "cpu_threads": 0 if on_gpu else record["threads"], "timed": timed, "flags": flags, "noisy": "noisy" in flags,
        "possible": timed and "impossible" not in flags, "ranked": timed and not vocabulary.unranked() & set(flags)}


def load(paths: list[Path], vocabulary: Vocabulary) -> tuple[pd.DataFrame, list[dict[str, Any]], list[str]]:
    """Rows, environments and warnings."""
    found: list[dict[str, Any]] = []
    environments: list[dict[str, Any]] = []
    warnings: list[str] = []
    for path in paths:
        rows, of_sessions, warning = read_file(path)
        if others := {record["schema"] for _, record in rows} - {"fovea.bench/1"}:
            raise Refused(f"{path}: holds {', '.join(others)}, which a report of times does not show")
        found += [{**flat(record, len(environments) + number, vocabulary), "file": path} for number, record in rows]
        environments += of_sessions
        warnings += [warning] if warning else []
    for row in found:  # The device time of a GPU belongs to the GPU, whatever its host is.
        facts = environments[row["environment"]]["facts"] if row["on_gpu"] and row["timer"] != "cuda_host" else {}
        row["system"] = facts["gpu"].split(", ")[0] if "gpu" in facts else row["machine"]  # the first of several runs
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
