"""The blocks of scripts/readme about layers and the transformer."""

import statistics
from collections import Counter
from pathlib import Path

from readme_headlines import OURS, wrapped
from readme_records import environment, keys_of, measured, medians, rows_of

ROOT = Path(__file__).resolve().parents[1]


def ratios_of(record: Path, other: str = "torch.") -> list[tuple[dict[str, str], float]]:
    """Of each problem its keys, and the time of `flash` over that of the fastest whose name begins with `other`."""
    found = []
    for problem, cell in medians([record]).items():
        best = min(time for name, time in cell.items() if name.startswith(other))
        own = min(time for name, time in cell.items() if name.startswith(OURS) and not name.startswith("cpu.bare_"))
        found.append((keys_of({"problem": problem.split(" ", 1)[1]}), own / best))
    return found


def totals_sentence(record: Path) -> str:
    """The largest ratio of forward and backward together, and the geometric mean of those with d = 128."""
    totals = [(of, ratio) for of, ratio in ratios_of(record) if of["pass"] == "e2e"]
    wide = [ratio for of, ratio in totals if of["d"] == "128"]
    return (f"The largest of the {len(totals)} totals is {max(ratio for _, ratio in totals):.3f}. The {len(wide)} "
            f"totals of head dimension 128 have the geometric mean {statistics.geometric_mean(wide):.3f}.")


def layers_block(record: Path, other: str = "torch.", said: str = "") -> str:
    """For each layer and pass the ratios of ratios_of(): geometric mean and range. `said` ends the block."""
    passes = {"fwd": "forward", "bwd": "backward", "e2e": "forward + backward"}
    ratios: dict[str, dict[str, list[float]]] = {}
    for of, ratio in ratios_of(record, other):
        ratios.setdefault(of["op"], {}).setdefault(of["pass"], []).append(ratio)
    lines = ["| layer | " + " | ".join(passes.values()) + " |", "|---" * 4 + "|"]
    for name, by_pass in sorted(ratios.items()):
        cells = [f"{statistics.geometric_mean(some):.2f} ({min(some):.2f} to {max(some):.2f}; {len(some)} problems)"
                 for some in (by_pass[which] for which in passes)]
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    env = environment(record)
    on_gpu = "device=cuda" in rows_of([record])[0]["problem"]
    host = f"{env['machine'].split(',')[0]}, {env['threads']} threads"
    machine = env["facts"]["gpu"].split(", ")[0] if on_gpu else host
    return "\n".join([*lines, "", wrapped(
        f"{machine}, {measured(record)}; record: `{record.relative_to(ROOT)}`. {said}".strip())])


def eager_block(smallest: Path, larger: Path) -> str:
    """Layers called in a row, ratios of ratios_of(): without a mask and causal for the smallest configurations, the
    range for the others of `larger`."""
    def by_sizes(record: Path) -> dict[tuple[str, str, str], dict[tuple, float]]:
        """Of each layer, pass and mask: ratios by the problem's sizes."""
        found: dict[tuple[str, str, str], dict[tuple, float]] = {}
        for of, ratio in ratios_of(record):
            sizes = tuple(of.get(key) for key in ("b", "hq", "lq", "d"))
            found.setdefault((of["op"], of["pass"], of["mask"]), {})[sizes] = ratio
        return found

    small, large, masks = by_sizes(smallest), by_sizes(larger), ("none", "causal")
    lines = ["| layer | forward | backward | forward + backward | larger, forward + backward |", "|---" * 5 + "|"]
    for name in sorted({layer for layer, _, _ in small}):
        cells = [" / ".join(f"{ratio:.2f}" for mask in masks for ratio in small[name, which, mask].values())
                 for which in ("fwd", "bwd", "e2e")]
        rest = [ratio for mask in masks for sizes, ratio in large[name, "e2e", mask].items()
                if sizes not in small[name, "e2e", mask]]
        cells.append(f"{min(rest):.2f} to {max(rest):.2f} ({len(rest)} problems)")
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    env = environment(smallest)
    return "\n".join([*lines, "", wrapped(
        f"{env['facts']['gpu']}, {env['date'][:10]}; records: `{smallest.relative_to(ROOT)}`, "
        f"`{larger.relative_to(ROOT)}`.")])


PROFILED = {"fwd": "forward", "e2e": "forward + backward", "step": "step"}


def noise_sentence(rows: list[dict]) -> str:
    """How many of the times are noisy, and whose they are."""
    timed = [row for row in rows if row["time_s"]]
    noisy = Counter(row["impl"] for row in timed if "noisy" in row["flags"])
    whose = ", ".join(f"{count} of `{name}`" for name, count in noisy.most_common())
    are = "is" if noisy.total() == 1 else "are"
    return f"{noisy.total()} of {len(timed)} times {are} noisy{': ' * bool(noisy)}{whose}."


def profile_block(record: Path) -> str:
    """For each model its times, and these and its memory over those of PyTorch, eager and compiled, of calls from the
    host or in CUDA graphs."""
    models: dict[str, dict[str, dict[str, dict]]] = {}
    for row in rows_of([record]):
        of = keys_of(row)
        models.setdefault(of["model"], {}).setdefault(of["pass"], {})[row["impl"]] = row

    timed = {row["impl"] for row in rows_of([record])}
    peers = [name for name in ("torch.eager", "torch.compile", "torch.eager.graph", "torch.compile.graph")
             if name in timed]
    passes = [which for which in PROFILED if all(which in by_pass for by_pass in models.values())]

    def ratios(by: dict[str, dict], figure) -> str:
        return " / ".join(f"{figure(by['fovea']) / figure(peer):.2f}" if peer["time_s"] else peer["status"].upper()
                          for peer in map(by.get, peers))

    def memory(row: dict) -> int:
        """At the peak, beyond what is held before forward: weights, gradients, moments."""
        return row["memory_before_backward_bytes"] + row["workspace_bytes"] - row["memory_before_forward_bytes"]

    def seconds(row: dict) -> float:
        return row["time_s"]["median"]
    titles = ["model", *map(PROFILED.get, passes), *["memory"] * ("step" in passes)]
    lines = ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
    for name, by_pass in models.items():
        cells = [f"{1e3 * seconds(by_pass[which]['fovea']):.2f} ms: {ratios(by_pass[which], seconds)}"
                 for which in passes]
        if "step" in passes:
            cells.append(ratios(by_pass["step"], memory))
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    of, env = keys_of(rows_of([record])[0]), environment(record)
    gpu = env["facts"]["gpu"].split(", ")[0]
    return "\n".join([*lines, "", wrapped(
        f"{of['dtype']}, batch {of['b']}, context {of['lq']}; {gpu}, {env['date'][:10]}; record: "
        f"`{record.relative_to(ROOT)}`. {noise_sentence(rows_of([record]))}")])


def training_block(record: Path) -> str:
    """How a training ended: losses in nats a byte."""
    steps, env = list({row["step"]: row for row in rows_of([record], "train")}.values()), environment(record)
    last, seconds = [step["loss"] for step in steps[-100:]], sum(step["seconds"] for step in steps)
    end = [step for step in steps if step.get("held_out") is not None][-1]
    lines = ["| | nats a byte |", "|---|---:|",
             f"| training, step 1 | {steps[0]['loss']:.3f} |",
             f"| training, mean of the last {len(last)} of {len(steps)} steps | {statistics.mean(last):.3f} |",
             f"| held out, after step {end['step']} | {end['held_out']:.3f} |",
             f"| trigram count model, held out | {end['trigram']:.3f} |"]
    return "\n".join([*lines, "", wrapped(
        f"{env['facts']['model']}; {seconds:.0f} s of steps; {env['machine'].split(',')[0]}, {env['threads']} threads, "
        f"{env['date'][:10]}; record: `{record.relative_to(ROOT)}`.")])


def steps_block(records: list[Path]) -> str:
    """Steps of a transformer beside their products, and the share that the rest is of PyTorch's rest."""
    products = {(row["model"], "bf16" if "dtype=bf16" in row["sizes"] else "fp32"): row["products_s"]
                for row in rows_of(records, "profile") if row["passes"] == "step" and row.get("products_s")}
    steps: dict[tuple[str, str], dict[str, float]] = {}
    for row in rows_of(records):
        of = keys_of(row)
        if of["pass"] == "step" and row.get("time_s"):
            steps.setdefault((of["model"], of["dtype"]), {})[row["impl"]] = row["time_s"]["median"]
    lines = ["| model | type | products, ms | step, ms | eager PyTorch, ms | beyond the products, of PyTorch's |",
             "|---|---|---:|---:|---:|---:|"]
    for (model, dtype), alone in products.items():
        own, peer = (steps[model, dtype].get(name) for name in ("fovea", "torch.eager"))
        if own and peer:
            lines.append(f"| `{model}` | {dtype} | {1e3 * alone:.0f} | {1e3 * own:.0f} | {1e3 * peer:.0f} | "
                         f"{(own - alone) / (peer - alone):.2f} |")
    env, of = environment(records[0]), keys_of(rows_of(records)[0])
    named = ", ".join(f"`{record.relative_to(ROOT)}`" for record in records)
    noise = noise_sentence([row for row in rows_of(records) if keys_of(row)["pass"] == "step"])
    return "\n".join([*lines, "", wrapped(
        f"Batch {of['b']}, context {of['lq']}; {env['machine'].split(',')[0]}, {env['threads']} threads, "
        f"{env['date'][:10]}; records: {named}. {noise}")])


def against_peers(folder: Path) -> str:
    """The section of a machine's page about layers and the transformer, of the records that lie there; may be empty."""
    layers, graphs, smallest, eager, published = (folder / f"{name}.jsonl" for name in (
        "layers", "report-c", "report-c-smallest", "report-c-eager", "report-d1"))
    in_graphs = folder / "profile-graph.jsonl"
    profiles = sorted(record for record in folder.glob("profile-*.jsonl") if record != in_graphs)
    faster = "time over the faster of PyTorch's FlashAttention and cuDNN"
    parts: list[tuple[str, str]] = []
    if layers.exists():
        parts += [("Layers: time over the time of PyTorch with its SDPA", layers_block(layers, "torch.sdpa")),
                  ("Layers: time over the same attention and one library call for each product",
                   layers_block(layers, "cpu.bare_"))]
    if graphs.exists() and smallest.exists() and eager.exists():
        parts += [(f"Layers in CUDA graphs: {faster}", layers_block(graphs, said=totals_sentence(graphs))),
                  (f"Layers called in a row from the host: {faster}", wrapped(
                      "The smallest configuration of each layer has two ratios, without a mask / causal; the larger "
                      "ones have their range.") + "\n\n" + eager_block(smallest, eager))]
    if published.exists():
        blocks = [profile_block(record) for record in (*profiles, published)]
        said = wrapped("Times of calls from the host, not device times: a slow host holds PyTorch back more "
                       "([profiling](../../docs/profiling.md#figures-on-a-gpu)).")
        if in_graphs.exists():
            parts += [("Transformer: median time, then time over those of PyTorch in CUDA graphs, eager / compiled",
                       profile_block(in_graphs))]
        parts += [("Transformer: median time, then time and memory over those of PyTorch, eager / compiled",
                   "\n\n".join([said, *blocks]))]
    elif profiles:
        parts += [("Transformer: steps beside their products", steps_block(profiles))]
    if not parts:
        return ""
    return "## Layers and the transformer against PyTorch\n\n" + "".join(
        f"### {title}\n\n{block}\n\n" for title, block in parts)
