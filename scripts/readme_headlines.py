"""The first table of the README: mean speed-ups over other projects, with a caption of what was measured and how."""

import itertools
import json
import re
import tempfile
import textwrap
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from readme_records import environment, keys_of, rows_of, summary

ROOT = Path(__file__).resolve().parents[1]
VERSION = (ROOT / "VERSION").read_text(encoding="utf-8").strip()
PEERS = {"cpu": {"torch.sdpa": "PyTorch's SDPA", "torch.compile": "the formula compiled by PyTorch",
                 "torch.eager": "the formula in eager PyTorch", "onnxruntime": "ONNX Runtime",
                 "naive": "`naive`: the formula on library products",
                 "fused": "`fused`: one softmax step between library products"},
         "gpu": {"torch.flash": "FlashAttention-2 in PyTorch", "torch.cudnn": "cuDNN in PyTorch"}}
# Of the first table; the others are folded. `fused` is the fastest of the other CPU forms on the whole, and shows where
# Fovea loses.
FIRST = ("torch.sdpa", "onnxruntime", "fused", "torch.flash", "torch.cudnn")
OURS = ("cpu.", "cuda.")  # how names of this library's implementations begin
PASSES, MASKS = ("forward", "backward"), {"none": "no mask", "causal": "causal"}
Cells = dict[tuple[str, str, str], dict[tuple[str, str], str]]  # by type or d, implementation, peer; by pass, mask


def part(records: list[Path], folder: Path, **wanted: str) -> list[Path]:
    """Copies of the records that hold only the rows whose problems have these keys."""
    folder.mkdir()
    for record in records:
        lines = record.read_text(encoding="utf-8").splitlines(keepends=True)
        found = ((line, json.loads(line)) for line in lines)
        (folder / record.name).write_text("".join(line for line, row in found if "problem" not in row or
                                                  wanted.items() <= keys_of(row).items()), encoding="utf-8")
    return [folder / record.name for record in records]


def speed_ups(program: str, records: list[Path], peer: str) -> list[dict[str, str]]:
    """The summary of this library's implementations over a peer, by pass."""
    return [row for row in summary(program, records, "--baseline", peer)
            if row["implementation"].startswith(OURS) and row["mean speed-up"] != "-"]


def headline_cells(program: str, records: list[Path], key: str, values: list[str],
                   peers: list[str]) -> tuple[Cells, set[int]]:
    """The mean speed-ups for each value of the key, and how many problems they are over."""
    cells: Cells = {}
    problems, jobs = set(), []
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor() as pool:
        for value, mask in itertools.product(values, MASKS):
            some = part(records, Path(folder) / f"{value}-{mask}", **{key: value, "mask": mask})
            timed = {row["impl"] for row in rows_of(some) if row["status"] == "ok"}
            jobs += [(value, mask, peer, pool.submit(speed_ups, program, some, peer))
                     for peer in peers if peer in timed]
        for value, mask, peer, job in jobs:
            for row in job.result():
                counts = [int(row[name]) for name in ("wins", "ties", "losses")]
                problems.add(sum(counts))
                cells.setdefault((value, row["implementation"], peer), {})[row["pass"], mask] = (
                    f"{float(row['mean speed-up']):.2f}× [{row['interval']}] ({'/'.join(map(str, counts))})")
    def place(cell: tuple) -> tuple:
        value, implementation, peer = cell[0]
        return values.index(value), implementation, peers.index(peer)
    return dict(sorted(cells.items(), key=place)), problems


def wrapped(text: str) -> str:
    """Lines of the width of pages; a figure stays with its per cent sign."""
    lines = textwrap.fill(text.replace(" %", "\0%"), 125, break_long_words=False, break_on_hyphens=False)
    return lines.replace("\0", " ")


def span(numbers: set[int]) -> str:
    """512 to 16k."""
    ends = sorted({min(numbers), max(numbers)})
    return " to ".join(f"{end // 1024}k" if end % 1024 == 0 else str(end) for end in ends)


def listed(words: list[str]) -> str:
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def types(rows: list[dict]) -> str:
    return listed(sorted({keys_of(row)["dtype"] for row in rows}, reverse=True))


def grid(rows: list[dict]) -> str:
    """The types and sizes of the problems."""
    of = [{key: int(value) if value.isdigit() else value for key, value in keys_of(row).items()} for row in rows]
    batches, tokens = {one["b"] for one in of}, {one["b"] * one["lq"] for one in of}
    heads, widths = {one["hq"] for one in of}, {one["hq"] * one["d"] for one in of}
    return ", ".join([
        types(rows), f"{tokens.pop():,} tokens" if len(tokens) == 1 and len(batches) > 1 else f"batch {span(batches)}",
        f"heads x d = {widths.pop():,}" if len(widths) == 1 and len(heads) > 1 else f"{span(heads)} heads",
        f"d {listed(list(map(str, sorted({one['d'] for one in of}))))}", f"lengths {span({one['lq'] for one in of})}"])


def headline_caption(hardware: str, records: list[Path], problems: set[int]) -> str:
    """What was measured, how, when, and how quietly."""
    rows = [row for row in rows_of(records)
            if row["status"] == "ok" and (row["impl"] in PEERS[hardware] or row["impl"].startswith(OURS))]
    sessions = rows_of(records, "env")
    facts, versions = sessions[0]["facts"], sorted({one["version"] for one in sessions})
    threads = listed(sorted({str(one["threads"]) for one in sessions}, key=int))
    how = f"driver {facts['gpu_driver']}" if hardware == "gpu" else f"{threads} thread{'s' * (threads != '1')}"
    limits = {found[1] for one in sessions if (found := re.search(r"--repeat-for (\S+)", one["command"]))}
    noisy = sum("noisy" in row["flags"] for row in rows)
    peers = sorted({row["peer"] for row in rows if row.get("peer")})
    dates = sorted({one["date"][:10] for one in sessions})
    said = [f"{facts[hardware]} ({how}): {grid(rows)}; each figure is over {span(problems)} problems",
            listed([f"Fovea {listed(versions)}", *peers]) + f"; {listed(dates)}",
            f"{noisy} of these {len(rows)} cells are noisy ({100 * noisy / len(rows):.0f} %)"
            + (f"; each was sampled for at most {listed(sorted(limits))} s" if limits else "")
            + f" (`{'`, `'.join(str(record.relative_to(ROOT)) for record in records)}`)"]
    if versions != [VERSION]:
        said.insert(0, f"The {facts[hardware]} rows were measured with version {listed(versions)}")
    return f"{'. '.join(said)}."


def headlines_block(program: str, sweeps: dict[str, tuple[str, list[Path]]]) -> str:
    """Mean speed-ups over each peer: for the hardware (cpu or gpu) of each sweep, by one key of its problems."""
    columns = list(itertools.product(PASSES, MASKS))
    head = ["| | over | " + " | ".join(f"{which}, {MASKS[mask]}" for which, mask in columns) + " |",
            "|---|---|" + "---:|" * len(columns)]
    first, folded, captions = list(head), list(head), []
    for hardware, (key, records) in sweeps.items():
        rows = rows_of(records)
        values = list(dict.fromkeys(keys_of(row)[key] for row in rows))
        cells, problems = headline_cells(program, records, key, values, list(PEERS[hardware]))
        facts = environment(records[0])["facts"]
        what = f"{facts['processors']} cores" if hardware == "cpu" else types(rows)
        first.append(f"| **{facts[hardware]}, {what}** |" + " |" * (len(columns) + 1))
        for (value, implementation, peer), of in cells.items():
            (first if peer in FIRST else folded).append(
                f"| `{implementation}`, {f'd = {value}' if key == 'd' else value} | {PEERS[hardware][peer]} | "
                + " | ".join(of.get(column, "-") for column in columns) + " |")
        captions.append(headline_caption(hardware, records, problems))
    summary_line = "<details><summary>The same CPU cells over other forms of the formula</summary>"
    fold = [summary_line, "", *folded, "", "</details>", ""] if len(folded) > len(head) else []
    return "\n".join([*first, "", wrapped(
        "Speed-ups are geometric means, with a 95 % bootstrap interval in square brackets. In round brackets: Fovea's "
        "wins/ties/losses "
        "([when a problem is won](docs/bench.md#the-steps-of-a-problem))."), "",
        *fold, *(f"{wrapped(f'<sub>{caption}</sub>')}\n" for caption in captions)]).rstrip()
