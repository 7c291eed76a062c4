"""What `fovea verify` says at its end, the outcomes of several programs together, and whether records are current."""

import json
import pathlib
import subprocess


def summaries_of(words, text):
    """The last lines of `fovea verify WORDS`, one for each operation. ValueError if they are not there."""
    count = words[words.index("--op") + 1].count(",") + 1 if "--op" in words else 1
    lines = text.splitlines()[-count:]
    if len(lines) < count:
        raise ValueError
    return [json.loads(line) for line in lines]


def cells_of(summary):
    """What ran: an operation, and a class of each of its axes."""
    return [(summary["operation"], *(item for item in sorted(row.items()) if item[0] != "executed"))
            for row in summary["coverage"] if row["executed"]]


def total_of(outcomes):
    keys = dict.fromkeys(key for outcome in outcomes for key in outcome)
    # Cells are those of the run that had most: which ones they were is not kept. Descriptors are the same in every run.
    # Arguments, operations and the sanitizer's version are the last run's.
    def last(words):
        return list(words)[-1]

    rules = {"cells": max, "descriptors": max, "arguments": last, "operations": last, "tool": last,
             "seeds": lambda seeds: ",".join(one for one in seeds if one)}
    return {key: rules.get(key, sum)(outcome.get(key, 0) for outcome in outcomes) for key in keys}


def compare(results, parts, root):
    """Prints of every record whether it is of the sources that lie here; a warning is no failure."""
    script = root / "cmake/source_digest.cmake"
    ended = subprocess.run(["cmake", f"-DSOURCE_DIR={root}", "-DPRINT=ON", "-P", str(script)], text=True,
                           stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    digest = ended.stdout.strip()
    records = sorted(pathlib.Path(results).glob("*/check.json"))
    if not records:
        print(f"gpu_check: warning: {results} holds no record of a GPU; `make gpu-check` writes one")
    for path in records:
        record = json.loads(path.read_text())
        groups = record["groups"]
        failed = [name for name, group in groups.items() if group["failed"]]
        missing = [name for name in parts if name not in groups or groups[name]["passed"] + groups[name]["failed"] == 0]
        said = f"{record['gpu']}, driver {record['driver']}, {record['date']}"
        said += f"; failed: {', '.join(failed)}" if failed else ""
        said += f"; not run: {', '.join(missing)}" if missing else ""
        if record["sources"] == digest:
            print(f"gpu_check: {path} is of these sources: {said}")
        else:
            sources = f"{record['sources'][:12]}, here {digest[:12]}"
            print(f"gpu_check: warning: {path} is of other sources ({sources}): {said}")
    return 0
