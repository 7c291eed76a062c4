"""Rows made ready for reporting: ordered, grouped by table and configuration, ranked."""

import difflib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Iterator

import numpy as np
import pandas as pd

from .records import load
from .table import figure
from .vocabulary import Operation, Refused, Vocabulary, listed

PASSES = ("fwd", "bwd", "e2e")
RESAMPLES = 2000
CALL_TIMERS = {"cuda_graph": "in a graph", "cuda_eager": "in a row", "cuda_host": "host"}  # not times of single runs
Row = Any  # a row of a table, as DataFrame.itertuples gives it


@dataclass
class Study:
    vocabulary: Vocabulary
    operations: dict[str, Operation]
    environments: list[dict[str, Any]]
    rows: pd.DataFrame  # times of single runs; in a graph of calls, if an operation has no others
    calls: pd.DataFrame  # other times in a graph of calls, and of the host
    implementations: list[str]  # in the order shown: baselines, reference, peers, this library
    baseline: str  # the implementation that speed-ups are computed over
    warnings: list[str]
    compares: bool  # there are several implementations

    @property
    def all(self) -> pd.DataFrame:
        return pd.concat([self.rows, self.calls]) if len(self.calls) else self.rows

    def operation(self, row: Row) -> Operation:
        return self.operations[row.op]

    def label(self, row: Row, pass_: str = "") -> str:
        """The cell in words, but for its implementation."""
        return listed(self.op_word(row.op), pass_, self.operation(row).label(row.case), row.setting, row.way)

    def op_word(self, op: str) -> str:
        """The name of an operation, where there are several."""
        return op if len(self.operations) > 1 else ""

    def kind_title(self, row: Row) -> str:
        return listed(self.op_word(row.op), self.word(row.pass_), row.case.get("dtype", ""), row.setting)

    def present(self, rows: pd.DataFrame) -> list[str]:
        return sorted(set(rows.impl), key=self.implementations.index)

    def each(self, rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
        """The rows of each implementation, in the order shown."""
        yield from ((name, rows[rows.impl == name]) for name in self.present(rows))

    def own(self, rows: pd.DataFrame) -> list[str]:
        return self.present(rows[rows.kind == "library"])

    def word(self, pass_: str) -> str:
        return next((key.values[pass_] for one in self.operations.values() for key in one.keys
                     if key.word == "pass" and pass_ in key.values), pass_)


def row_with(end: str, column: str, rows: pd.DataFrame) -> Row:
    """The row with the `min` or `max` of the column."""
    return next(rows.loc[[rows[column].astype(float).agg(f"idx{end}")]].itertuples())


def where(study: Study, row: Row) -> str:
    return study.label(row, study.word(row.pass_))


def told_apart(a: Row, b: Row) -> bool:
    """Whether two times can be told apart: neither is noisy, or their quartiles do not overlap."""
    return not (a.noisy or b.noisy) or a.q3 < b.q1 or b.q3 < a.q1


def winners(rows: pd.DataFrame) -> pd.DataFrame:
    """The fastest row of each configuration, if there are others and it can be told apart from each. A launch-bound
    row does not win; but if it is faster than the best ranked row, no row wins."""
    contested = rows[rows.groupby("at").impl.transform("nunique") > 1]
    best = contested[contested.ranked].sort_values("median", kind="stable").drop_duplicates("at")
    pairs = versus(contested.drop(best.index), best)
    return best[~best["at"].isin(pairs[(pairs.ratio > 1) | ~pairs.apart]["at"])]


def configurations(rows: pd.DataFrame) -> Iterator[tuple[Row, dict[str, Row]]]:
    """For each problem: any of its rows, and the row of each implementation."""
    found: dict[int, dict[str, Row]] = {}
    for row in rows.itertuples():
        found.setdefault(row.at, {})[row.impl] = row
    for cells in found.values():
        yield next(iter(cells.values())), cells


def make_study(paths: list[Path], vocabulary: Vocabulary, baseline: str = "") -> Study:
    rows, environments, warnings = load(paths, vocabulary)
    if rows.empty:
        raise Refused("the records hold no row")
    operations = {name: vocabulary.operation(name, list(group.case)) for name, group in rows.groupby("op")}
    implementations = sorted(dict.fromkeys(rows.impl), key=vocabulary.rank)
    rows["axis"], rows["x"] = zip(*(operations[row.op].axis(row.case) for row in rows.itertuples()))
    rows["hot"] = rows.timer == "cuda_events_hot"
    # Whatever may change a time makes another configuration: the problem, the machine, the threads, the way of timing.
    rows["way"] = rows.timer.map(CALL_TIMERS).fillna("")
    rows["at"] = rows.groupby(["problem", "hot", "cpu_threads", "system", "way"], sort=False).ngroup()
    rows["setting"] = settings_of(rows)
    graphs = (rows.timer == "cuda_graph") & ~rows.op.isin(rows[rows.on_gpu & ~rows.way.str.contains("in a ")].op)
    rows.loc[graphs, "setting"] = [listed("in a graph", one) for one in rows.setting[graphs]]
    rows.loc[graphs, "way"] = ""
    timing, calls = (rows[chosen].copy() for chosen in (rows.way == "", rows.way != ""))
    study = Study(vocabulary, operations, environments, timing, calls, implementations,
                  choose_baseline(rows, timing, implementations, baseline), warnings, len(implementations) > 1)
    timing["title"] = [listed(study.op_word(row.op), operations[row.op].title(row.case), row.setting)
                       for row in timing.itertuples()]
    timing["best"] = timing.index.isin(winners(timing).index)
    possible = timing["median"].astype(float).where(timing.possible & study.compares)
    timing["over_fastest"] = possible / possible.groupby(timing["at"]).transform("min")
    timing["clean"] = timing.ranked & ~timing.noisy
    return study


def choose_baseline(rows: pd.DataFrame, timing: pd.DataFrame, implementations: list[str], wanted: str) -> str:
    own = rows[rows.kind == "library"]
    if wanted == "flash" and len(own):
        return own.impl.iloc[-1]
    if wanted and wanted not in implementations:
        near = difflib.get_close_matches(wanted, implementations, 1)
        hint = f"; did you mean `{near[0]}`?" if near else ""
        raise Refused(f"no row has the baseline `{wanted}`, wanted: one of {', '.join(implementations)}{hint}")
    return wanted or next(name for name in implementations if name in (set(timing.impl) or set(implementations)))


def settings_of(rows: pd.DataFrame) -> list[str]:
    """The machine or GPU, threads and cache state of each row, where the records differ in them."""
    threads = rows[rows.cpu_threads > 0].cpu_threads.nunique() > 1
    systems = {way: short_machines(list(own.system.unique())) for way, own in rows.groupby(["way", "on_gpu"])}
    return [listed("hot" if row.hot else "", systems[row.way, row.on_gpu][row.system],
                   plural(row.cpu_threads, "thread") if threads and row.cpu_threads else "")
            for row in rows.itertuples()]


def short_machines(machines: list[str]) -> dict[str, str]:
    """As few words of each machine as tell it from the others; none for a single one."""
    if len(machines) < 2:
        return dict.fromkeys(machines, "")
    shared = set.intersection(*(set(machine.split(", ")) for machine in machines))
    own = {machine: [word for word in machine.split(", ") if word not in shared] for machine in machines}
    for count in range(1, max(map(len, own.values())) + 1):
        short = {machine: ", ".join(own[machine][:count]) or machine for machine in machines}
        if len(set(short.values())) == len(machines):
            return short
    return {machine: machine for machine in machines}


def in_order(study: Study, rows: pd.DataFrame) -> pd.DataFrame:
    """Sorted by pass, then as the operation sorts its cases; rows of a configuration stay together."""
    return rows.loc[[row.Index for row in sorted(rows.itertuples(), key=lambda row: place(study, row))]]


def place(study: Study, row: Row) -> tuple:
    return row.op, [*PASSES, row.pass_].index(row.pass_), study.operation(row).order(row.case), row.at


def groups(study: Study, rows: pd.DataFrame, by: Callable[[Row], Any] | str = "title") -> Iterator[tuple]:
    """The rows of each table, in order."""
    rows = in_order(study, rows)
    keys = rows[by] if isinstance(by, str) else pd.Series([by(row) for row in rows.itertuples()], rows.index)
    yield from rows.groupby(keys, sort=False)


def versus(rows: pd.DataFrame, rivals: pd.DataFrame) -> pd.DataFrame:
    """Every row with the fastest of `rivals` at its configuration. `ratio`: the rival's time over the row's time, if
    both are possible. `counted`: the pair is a win or a loss, not a tie: both are ranked and can be told apart."""
    pick = rivals[rivals.possible].sort_values("median", kind="stable").drop_duplicates("at").set_index("at")
    columns = ["impl", "median", "q1", "q3", "noisy", "ranked"]
    pairs = rows[rows.possible].join(pick[columns].rename(columns=lambda name: f"rival_{name}"), on="at", how="inner")
    pairs["ratio"] = pairs.rival_median / pairs["median"]
    apart = (pairs.q3 < pairs.rival_q1) | (pairs.rival_q3 < pairs.q1)
    pairs["apart"] = apart | ~(pairs.noisy.astype(bool) | pairs.rival_noisy.astype(bool))
    pairs["counted"] = pairs.ranked.astype(bool) & pairs.rival_ranked.astype(bool) & pairs.apart
    return pairs


def over_baseline(study: Study, rows: pd.DataFrame) -> pd.DataFrame:
    return versus(rows, rows[rows.impl == study.baseline])


def over_peers(rows: pd.DataFrame) -> pd.DataFrame:
    """This library's rows against the fastest peer."""
    return versus(rows[rows.kind == "library"], rows[rows.kind == "peer"])


@dataclass(frozen=True)
class SpeedUps:
    """The geometric mean of the ratios of all pairs, its 95 % bootstrap interval, and the wins, losses and ties."""
    mean: float
    low: float
    high: float
    wins: int
    ties: int
    losses: int
    pairs: int

    @property
    def interval(self) -> str:
        return f"{figure(self.low)} to {figure(self.high)}"


def speed_ups(pairs: pd.DataFrame) -> SpeedUps | None:
    if pairs.empty:
        return None
    logs = np.log(pairs.ratio.to_numpy(dtype=float))
    drawn = np.random.default_rng(0).integers(0, len(logs), (RESAMPLES, len(logs)))  # the same for the same records
    low, high = np.exp(np.quantile(logs[drawn].mean(axis=1), (0.025, 0.975)))
    won, counted = pairs.ratio > 1, pairs.counted.astype(bool)
    return SpeedUps(math.exp(logs.mean()), low, high, int((won & counted).sum()), int((~counted).sum()),
                    int((~won & counted).sum()), len(pairs))


@dataclass(frozen=True)
class PowerLaw:
    """median = coefficient * length ^ exponent, from the length `start` to `end`."""
    exponent: float
    coefficient: float
    start: float
    end: float
    noisy: bool


def fit_power_laws(rows: pd.DataFrame) -> dict[str, PowerLaw]:
    """Least squares on logarithms of ranked cells, for all implementations that reach a quarter of the longest length:
    over the longer half of the lengths that these share, at least three, over at least a factor of four."""
    points = rows[rows.ranked & ~rows.axis.str.contains(":")]
    lengths = {name: set(own.x) for name, own in points.groupby("impl")
               if own.x.nunique() >= 3 and own.x.max() >= points.x.max() / 4}
    common = sorted(set.intersection(*lengths.values())) if lengths else []
    common = common[-max(3, (len(common) + 1) // 2):]
    if len(common) < 3 or common[-1] / common[0] < 3.9:
        return {}
    laws = {}
    for name, own in points[points.x.isin(common) & points.impl.isin(lengths)].groupby("impl"):
        exponent, logarithm = np.polyfit(np.log(own.x), np.log(own["median"]), 1)
        laws[name] = PowerLaw(exponent, math.exp(logarithm), own.x.min(), own.x.max(), bool(own.noisy.any()))
    return laws


def plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def conditions(study: Study, rows: pd.DataFrame) -> str:
    """Machine, threads, samples, versions, date and commit of these rows in one line."""
    used = {n: study.environments[n] for n in rows.environment.unique()}
    on_gpu = set(rows[rows.cpu_threads == 0].environment)
    chips = {e["facts"].get("gpu" if n in on_gpu else "cpu", e["machine"]).split(", ")[0] for n, e in used.items()}
    samples = sorted(set(rows[rows.timed].n.astype(int)))
    commits = {commit[:10] + (" (modified)" if dirty else "") for commit, dirty in zip(rows.commit, rows.dirty)}
    loads = [(pd.to_numeric(one["facts"].get("load", 0), errors="coerce"), one["threads"]) for one in used.values()]
    load = max((load for load, threads in loads if np.round(load) > threads), default=0)  # more than the session's own
    return "; ".join(filter(None, [
        ", ".join(sorted(chips)), ", ".join(plural(n, "thread") for n in sorted(set(rows.cpu_threads) - {0})),
        f"{f'{samples[0]} to ' if len(samples) > 1 else ''}{plural(samples[-1], 'sample')} a cell" if samples else "",
        ", ".join(sorted(set(rows.peer) - {""})), ", ".join(sorted({one["date"][:10] for one in used.values()})),
        f"commit {', '.join(sorted(commits))}", f"other work on the machine: load {load:.0f}" if load else ""]))
