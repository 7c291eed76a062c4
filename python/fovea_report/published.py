"""Published tables and the figures measured here. Each is a CSV file with a description (folder published_tables)."""

import functools
import math
import string
import tomllib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Iterator

import pandas as pd

from .study import Row, Study
from .table import figure
from .vocabulary import parse_case

PARTS = ("mean", "std", "min", "sum")  # figures of a cell; the sum is of all samples


@dataclass
class Published:
    """One published table: its figures, one row each, and its description."""

    says: dict[str, Any]  # the description
    figures: pd.DataFrame
    keys: list[str]  # keys of the problem line that identify a problem

    def __getattr__(self, name: str) -> str:
        """letter, preset, title, hardware, source, rule: as described."""
        if name.startswith("_") or name not in self.says:
            raise AttributeError(name)
        return self.says[name]

    @property
    def printed(self) -> int:
        """How many figures the report has; each may stand beside several problems."""
        return self.figures.number.nunique()

    @property
    def passes(self) -> list[str]:
        shown = list(dict.fromkeys(self.figures.pass_))
        return ["fwd", "bwd", "fwd+bwd"] if "fwd+bwd" in shown else shown

    def measurement(self, case: dict[str, Any]) -> tuple:
        return tuple(case.get(key) for key in self.keys)


@dataclass(frozen=True)
class Side:
    """The figures of one side, here or published, for a problem, a pass and a role."""

    word: str = "-"  # the status shown instead of the time; empty if there is a time
    mean: float = math.nan
    std: float = math.nan
    min: float = math.nan
    sum: float = math.nan
    memory: float = math.nan
    ranked: bool = True
    marks: str = ""
    note: str = ""
    row: Row | None = None  # None if published
    detail: str = ""
    name: str = ""  # of the implementation


def read_published(description: Path) -> Published:
    says = {"own": "flash", **tomllib.loads(description.read_text(encoding="utf-8"))}
    says.setdefault("over", says.get("eager", ""))
    lines = pd.read_csv(description.with_suffix(".csv"), dtype=str, keep_default_na=False).to_dict("records")
    words, figures = says.get("words", {}), []
    lines_of = {False: says["problem"], True: says.get("cut", [])}
    problems = [(cut, one) for cut, some in lines_of.items() for one in ([some] if isinstance(some, str) else some)]
    for line in lines:
        for one in says["figures"]:
            name, number = one["name"].format(**line), len(figures)
            numbers = {part: milliseconds_of(line.get(one.get(part, ""), "")) for part in PARTS}
            for cut, problem in problems:
                case = case_of(problem, {key: words.get(value, value) for key, value in line.items()})
                figures.append({"number": number, "case": case, **case, "cut": cut, "pass_": one["pass"], "name": name,
                                "role": says["stands_for"].get(name, says["stands_for"].get("*")), **numbers,
                                "word": "" if not math.isnan(numbers["mean"]) else line[one["mean"]],
                                "memory": 1e9 * milliseconds_of(line.get(one.get("memory", ""), ""))})
    table = pd.DataFrame(figures)
    report = Published(says, table, list(dict.fromkeys(word for case in table.case for word in case)))
    table["measurement"] = [report.measurement(case) for case in table.case]
    table["problem"] = table.groupby("number").measurement.transform("first")  # that a figure stands for
    add_floors(report)
    return report


class Shares(string.Formatter):
    """`{heads:/4}` is a quarter of the heads."""

    def format_field(self, value: Any, spec: str) -> str:
        return str(int(value) // int(spec[1:])) if spec and value else str(value)


def case_of(problem: str, line: dict[str, str]) -> dict[str, Any]:
    """The problem of a line; keys that have no value there are left out."""
    words = Shares().format(problem, **line).split()
    return parse_case(" ".join(word for word in words if not word.endswith("=")))


def add_floors(report: Published) -> None:
    """Marks incomplete figures, with the least time that complete ones need for the first problem they stand for."""
    rule, figures = report.says.get("incomplete"), report.figures
    figures["incomplete"], figures["floor"] = False, math.nan
    if rule:
        first = figures.drop_duplicates("number")
        floors = compute(rule["floor"], facts_of(report, first)).set_axis(first.number)
        figures["incomplete"] = (figures.role == rule["role"]) & figures.pass_.isin(rule["passes"])
        figures["floor"] = figures.number.map(floors).where(figures.incomplete & (figures.pass_ == rule["floor_pass"]))


def milliseconds_of(text: str) -> float:
    """The number over 1000: milliseconds as seconds. NaN for a word."""
    return pd.to_numeric(text, errors="coerce") / 1e3


class Book:
    """The figures of one report with those measured here, of one machine and thread count."""

    def __init__(self, report: Published, study: Study) -> None:
        self.report, self.study, figures = report, study, report.figures
        printed = {(one.measurement, pass_) for one in figures.itertuples() for pass_ in one.pass_.split("+")}
        rows = study.rows.assign(measurement=[report.measurement(case) for case in study.rows.case],
                                 role=study.rows.impl.where(study.rows.kind != "library", report.own))
        rows = rows[[(one.measurement, one.pass_) in printed and not one.hot for one in rows.itertuples()]]
        for name in ("cpu_threads", "system"):
            rows = rows[rows[name].eq(rows[name].iloc[0])] if len(rows) else rows
        self.rows = rows
        fastest = rows.sort_values("median", kind="stable").drop_duplicates(["measurement", "pass_", "role"])
        self.sides = {**{(False, one.measurement, one.pass_, one.role): self.ours(one) for one in fastest.itertuples()},
            **{(True, one.measurement, one.pass_, one.role): self.printed(one) for one in figures.itertuples()}}
        shown = figures[figures.measurement.isin(set(rows.measurement))]
        # Problems of which some pass was measured here: at the sizes of the report, and at smaller sizes.
        self.cases, self.cut = ({one.measurement: one.case for one in shown[shown.cut == cut].itertuples()}
                                for cut in (False, True))

    def ours(self, row: Row) -> Side:
        words = self.study.vocabulary
        if not row.timed:
            return Side(words.status(row.status), ranked=False, note=row.reason, row=row, name=row.role)
        return Side("", row.mean, row.std, row.min, row.mean * row.n, row.held, row.ranked, words.marks(row.flags),
                    row.impl if row.kind == "library" else "", row, name=row.role)

    def printed(self, one: Row) -> Side:
        side = Side(one.word, one.mean, one.std, one.min, one.sum, one.memory, name=one.name)
        if not one.incomplete:
            return side
        below = " below" if one.mean < one.floor else ""
        floor = "" if math.isnan(one.floor) else f",{below} floor {figure(one.floor * 1e3)}"
        return replace(side, ranked=False, note=self.report.says["incomplete"]["text"], detail=f"incomplete{floor}")

    def lines(self, cases: dict[tuple, dict]) -> Iterator[tuple[bool, tuple, dict]]:
        """Each printed problem, then those here that it stands for. What its report leaves open is not stated."""
        figures = self.report.figures
        for problem, of in figures[figures.measurement.isin(set(cases))].groupby("problem", sort=False).measurement:
            full = list(figures[figures.problem.map(problem.__eq__) & ~figures.cut].case)
            left_open = [key for key in full[0] if len({case.get(key) for case in full}) > 1]
            yield True, problem, full[0] | dict.fromkeys(left_open, "not stated")
            yield from ((False, measurement, cases[measurement]) for measurement in dict.fromkeys(of))

    def side(self, published: bool, measurement: tuple, pass_: str, role: str) -> Side:
        if pass_ != "fwd+bwd" or published:
            return self.sides.get((published, measurement, pass_, role), Side())
        forward, backward = (self.side(published, measurement, one, role) for one in ("fwd", "bwd"))
        if forward.word or backward.word:
            return forward if forward.word else backward
        return replace(backward, mean=forward.mean + backward.mean, std=math.nan, min=math.nan, sum=math.nan)

    def speed_up(self, published: bool, measurement: tuple, pass_: str, role: str = "flash") -> float:
        """Over the eager form. NaN if one of the two has no time."""
        own, eager = (self.side(published, measurement, pass_, one).mean for one in (role, self.report.says["eager"]))
        return eager / own

    def spread(self, measurement: tuple, pass_: str, role: str) -> tuple[float, float]:
        """The least and largest speed-up here by the quartiles of both forms. Those of several passes are added."""
        own, eager = ([self.side(False, measurement, part, one).row for part in pass_.split("+")]
                      for one in (role, self.report.says["eager"]))
        sums = [sum(getattr(row, part, math.nan) for row in rows) for rows in (eager, own) for part in ("q1", "q3")]
        return sums[0] / sums[3], sums[1] / sums[2]

    @functools.cached_property
    def roles(self) -> list[str]:
        found, kind, own = set(self.rows.role), self.study.vocabulary.kind, self.report.own
        peers = [role for role in dict.fromkeys(self.report.figures.role) if kind(role) == "peer" and role != own]
        order = [*(name for name in self.study.implementations if kind(name) == "baseline"), own]
        return [*peers, *(role for role in order if role in found)]

    def is_measured(self, one: Row) -> bool:
        """Whether a printed figure, or this library beside a peer, was measured here."""
        roles = [one.role, self.report.own] if self.study.vocabulary.kind(one.role) == "peer" else [one.role]
        return any((False, one.measurement, one.pass_.split("+")[-1], role) in self.sides for role in roles)


def facts_of(report: Published, table: pd.DataFrame) -> dict[str, Any]:
    """The columns of a table, and those that the description computes from them."""
    columns = {name: table[name] for name in table.columns}
    for name, rule in report.says.get("facts", {}).items():
        columns[name] = compute(rule, columns)
    return columns


def compute(rule: str, facts: dict[str, Any]) -> Any:
    """Evaluates an expression of a description, on the words of a problem or the columns of a table."""
    return eval(rule, {"__builtins__": {}}, facts)
