"""Published tables beside the figures measured here. Each table is a CSV file with a description (data/published)."""

import csv
import math
import string
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from .study import PASSES, Row, Study, conditions, geometric_mean, plural, told_apart
from .table import NOTHING, Cell, Column, Table, figure, ratio, value_cell
from .vocabulary import Key, parse_case, short



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
    def passes(self) -> list[str]:
        shown = list(dict.fromkeys(self.figures.pass_))
        return ["fwd", "bwd", "fwd+bwd"] if "fwd+bwd" in shown else shown

    @property
    def over(self) -> str:
        return self.says.get("over", self.says.get("eager", ""))

    def measurement(self, case: dict[str, Any]) -> tuple:
        return tuple(case.get(key) for key in self.keys)


@dataclass(frozen=True)
class Side:
    """The figures of one side, here or published, for a problem, a pass and a role."""

    word: str = "-"  # the status shown instead of the time; empty if there is a time
    mean: float = math.nan
    std: float = math.nan
    min: float = math.nan
    memory: float = math.nan
    ranked: bool = True
    marks: str = ""
    note: str = ""
    row: Row | None = None  # None if published


@dataclass
class Page:
    report: Published
    matched: int
    comparisons: list[str]
    findings: list[str]
    tables: list[Table]
    book: "Book"


def read_published(description: Path) -> Published:
    says = tomllib.loads(description.read_text(encoding="utf-8"))
    with description.with_suffix(".csv").open(encoding="utf-8", newline="") as text:
        lines = list(csv.DictReader(text))
    words = says.get("words", {})
    figures = []
    for line in lines:
        case = parse_case(says["problem"].format(**{key: words.get(value, value) for key, value in line.items()}))
        for one in says["figures"]:
            name = one["name"].format(**line)
            numbers = {part: milliseconds_of(line.get(one.get(part, ""), "")) for part in ("mean", "std", "min")}
            figures.append({"case": case, **case, "pass_": one["pass"], "name": name,
                            "role": says["stands_for"].get(name, says["stands_for"].get("*")), **numbers,
                            "word": "" if not math.isnan(numbers["mean"]) else line[one["mean"]],
                            "memory": 1e9 * milliseconds_of(line.get(one.get("memory", ""), ""))})
    table = pd.DataFrame(figures)
    report = Published(says, table, list(parse_case(says["problem"].replace("{", "").replace("}", ""))))
    table["measurement"] = [report.measurement(case) for case in table.case]
    return report


def milliseconds_of(text: str) -> float:
    """The number over 1000: milliseconds as seconds. NaN for a word."""
    try:
        return float(text) / 1e3
    except ValueError:
        return math.nan


@dataclass
class Book:
    """The figures of one report with those measured here, of one machine and thread count."""

    report: Published
    study: Study
    rows: pd.DataFrame = field(init=False)
    here: dict[tuple, Row] = field(init=False)
    theirs: dict[tuple, Row] = field(init=False)
    cases: dict[tuple, dict] = field(init=False)  # of which some pass was measured here

    def __post_init__(self) -> None:
        report, rows = self.report, self.study.rows
        self.theirs = {(one.measurement, one.pass_, one.role): one for one in report.figures.itertuples()}
        printed = {(one.measurement, pass_) for one in report.figures.itertuples() for pass_ in one.pass_.split("+")}
        keys = [report.measurement(case) for case in rows.case]
        rows = rows.assign(measurement=keys)
        known = [(key, pass_) in printed for key, pass_ in zip(keys, rows.pass_)]
        rows = rows[pd.Series(known, rows.index, dtype=bool) & ~rows.hot]
        if len(rows):
            first = rows.iloc[0]
            rows = rows[(rows.cpu_threads == first.cpu_threads) & (rows.machine == first.machine)]
        self.rows = rows.assign(role=rows.impl.where(rows.kind != "library", "flash"))
        self.here = {}
        for row in self.rows.itertuples():
            place = (row.measurement, row.pass_, row.role)
            old = self.here.get(place)
            if old is None or not old.timed or (row.timed and row.median < old.median):
                self.here[place] = row
        measured = set(self.rows.measurement)
        self.cases = {one.measurement: one.case for one in report.figures.itertuples() if one.measurement in measured}

    def ours(self, measurement: tuple, pass_: str, role: str) -> Side:
        if pass_ == "fwd+bwd":
            forward, backward = (self.ours(measurement, one, role) for one in ("fwd", "bwd"))
            if forward.word or backward.word:
                return forward if forward.word else backward
            return Side("", forward.mean + backward.mean, memory=backward.memory, ranked=backward.ranked,
                        marks=backward.marks, note=backward.note, row=backward.row)
        row = self.here.get((measurement, pass_, role))
        if row is None:
            return Side()
        if not row.timed:
            return Side(self.study.vocabulary.status(row.status), ranked=False, note=row.reason, row=row)
        return Side("", row.mean, row.std, row.min, row.held, row.ranked, self.study.vocabulary.marks(row.flags),
                    row.impl if role == "flash" else "", row)

    def printed(self, measurement: tuple, pass_: str, role: str) -> Side:
        one = self.theirs.get((measurement, pass_, role))
        return Side() if one is None else Side(one.word, one.mean, one.std, one.min, one.memory)

    def side(self, published: bool, measurement: tuple, pass_: str, role: str) -> Side:
        return (self.printed if published else self.ours)(measurement, pass_, role)

    def roles(self) -> list[str]:
        found = {role for _, _, role in self.here}
        order = [name for name in self.study.implementations if self.study.vocabulary.kind(name) == "baseline"]
        return [role for role in [*order, "flash"] if role in found]

    def keys(self) -> list[Key]:
        """The keys that vary in the printed table."""
        operation = self.study.operations[next(iter(self.cases.values()))["op"]]
        def varies(key: Key) -> bool:
            column = self.report.figures[key.word]
            return column.nunique() > 1 and not (key.follows and (column == self.report.figures[key.follows]).all())
        return [key for key in operation.keys if key.word in self.report.keys and varies(key)]


def comparable(a: Side, b: Side) -> bool:
    if a.word or b.word or not a.ranked or not b.ranked:
        return False
    return a.row is None or b.row is None or told_apart(a.row, b.row)


def number_cell(side: Side, seconds: float, factor: float = 1e3) -> Cell:
    if side.word:
        return Cell(side.word, style="muted" if side.word == "-" else "word", note=side.note)
    if math.isnan(seconds):
        return NOTHING
    marks = side.marks if factor == 1e3 else ""
    return Cell(figure(seconds * factor) + marks, seconds * factor, "" if side.ranked else "muted", note=side.note)


def ratio_cell(book: Book, base: Side, own: Side, case: dict, fastest: bool) -> Cell:
    for side in (own, base):
        if side.word:
            return Cell(side.word, style="muted" if side.word == "-" else "word")
    value = base.mean / own.mean
    bold = compute(book.report.says["bold"], {**case, "ratio": value, "fastest": fastest})
    is_muted = base is not own and not comparable(base, own)
    return Cell(ratio(value), value, "muted" if is_muted else "best" if bold else "loss" if value < 1 else "")


def page_table(book: Book) -> Table:
    """A line per problem, side and implementation; for each pass its figures, then speed-ups."""
    report, keys, passes = book.report, book.keys(), book.report.passes
    parts = [part for part in ("mean", "std", "min") if report.figures[part].notna().any()]
    heads = {pass_: book.study.word(pass_) if "+" not in pass_ else "forward, then backward" for pass_ in passes}
    rated = report.says.get("speed_up_passes", passes) if report.over else []
    table = Table(f"published-{report.letter.lower()}", f"Report {report.letter}: {report.title}",
                  f"Times in ms, means as the report has them. Here: {conditions(book.study, book.rows)}. Published: "
                  f"report {report.letter}, {report.hardware}. Times of different machines are not a comparison; "
                  "speed-ups are.",
                  [*(Column(key.head, number=key.kind != "word") for key in keys), Column("figures", number=False),
                   Column("implementation", number=False),
                   *(Column(heads[pass_], part) for pass_ in passes for part in parts),
                   *(Column(heads[pass_], "speed-up") for pass_ in rated)])
    if "formula" in report.says:
        table.columns += [Column("memory before backward", "MB"), Column("formula", "MB")]
    for measurement, case in book.cases.items():
        for published in (False, True):
            for role in book.roles():
                sides = {pass_: book.side(published, measurement, pass_, role) for pass_ in passes}
                if all(side.word == "-" for side in sides.values()):
                    continue
                line = [value_cell(case[key.word]) for key in keys]
                line += [Cell("published", style="muted") if published else Cell("here"),
                         Cell(printed_name(book, measurement, role) if published else role)]
                line += [number_cell(side, getattr(side, part)) for side in sides.values() for part in parts]
                line += [speed_up_cell(book, published, measurement, case, pass_, role) for pass_ in rated]
                if "formula" in report.says:
                    both = sides["fwd+bwd"]
                    line += [number_cell(both, both.memory, 1e-6), formula_cell(report, case, role)]
                table.rows.append(line)
    return table


def printed_name(book: Book, measurement: tuple, role: str) -> str:
    return next(one.name for (key, _, of), one in book.theirs.items() if key == measurement and of == role)


def speed_up_cell(book: Book, published: bool, measurement: tuple, case: dict, pass_: str, role: str) -> Cell:
    base, own = (book.side(published, measurement, pass_, one) for one in (book.report.over, role))
    rivals = [book.side(published, measurement, pass_, one) for one in book.roles()]
    fastest = all(own.mean <= side.mean for side in rivals if not side.word and side.ranked)
    return ratio_cell(book, own if role == book.report.over else base, own, case, fastest)


def formula_cell(report: Published, case: dict, role: str) -> Cell:
    if role not in report.says["formula_roles"]:
        return Cell("-")
    megabytes = formula_bytes(report, case) / 1e6
    return Cell(figure(megabytes), megabytes)


def formula_bytes(report: Published, case: dict) -> float:
    return float(compute(report.says["formula"], case))


def comparisons(book: Book) -> list[str]:
    """Geometric mean of the speed-up of flash over the eager form, here and published, where both have one."""
    said = []
    eager = book.report.says.get("eager")
    for pass_ in PASSES if eager else []:
        pairs = []
        for measurement in book.cases:
            here = [book.ours(measurement, pass_, role) for role in (eager, "flash")]
            there = [book.printed(measurement, pass_, role) for role in (eager, "flash")]
            if not any(side.word for side in (*here, *there)):
                pairs.append((here[0].mean / here[1].mean, there[0].mean / there[1].mean))
        if pairs:
            ours, theirs = (geometric_mean(pd.Series(side)) for side in zip(*pairs))
            said.append(f"{book.study.word(pass_)}: geometric mean speed-up of flash over {eager} in "
                        f"{plural(len(pairs), 'shared configuration')}: {ratio(ours)} here, {ratio(theirs)} published.")
    said += [sentence for pass_ in (PASSES if eager else []) for sentence in crossings(book, pass_)]
    return said + (memory_against_formula(book) if "formula" in book.report.says else [])


def crossings(book: Book, pass_: str) -> list[str]:
    """The length from which on flash is faster than the eager form, by type; here and published."""
    said = []
    for kind in dict.fromkeys(case.get("dtype", "") for case in book.cases.values()):
        found = []
        for published in (False, True):
            won: dict[float, bool] = {}
            for measurement, case in book.cases.items():
                eager, flash = (book.side(published, measurement, pass_, role)
                                for role in (book.report.says["eager"], "flash"))
                if case.get("dtype", "") == kind and not eager.word and not flash.word:
                    x = book.study.operations[case["op"]].axis(case)[1]
                    won[x] = won.get(x, True) and flash.mean < eager.mean
            lost = [x for x, is_won in won.items() if not is_won]
            above = [x for x in won if x > max(lost, default=0)]
            found.append(f"from length {short(min(above))} on" if above else "at no length" if won else "")
        if all(found):
            said.append(f"{book.study.word(pass_)}, {kind}: flash is faster at every d {found[0]} (here) and "
                        f"{found[1]} (published).")
    return said


def memory_against_formula(book: Book) -> list[str]:
    off, beyond = [], []
    for (measurement, _, role), one in book.theirs.items():
        if measurement not in book.cases:
            continue
        formula, side = formula_bytes(book.report, one.case), book.ours(measurement, "bwd", role)
        off += [abs(side.memory / formula - 1)] if not side.word and not math.isnan(side.memory) else []
        beyond += [one.memory - formula] if not math.isnan(one.memory) else []
    counted = len({key for key, pass_, role in book.here if pass_ == "bwd" and role == "naive"
                   and not book.ours(key, "bwd", role).word})
    said = f"naive holds before backward {book.report.says['formula_words']} (1 MB = 10^6 bytes). "
    if off:
        cells = plural(counted, "cell")
        said += f"The bytes counted here deviate from it by at most {100 * max(off):.2g} % in {cells}. "
    return [said + f"The published column is up to {max(beyond) / 1e6:.0f} MB above it."] if beyond else [said.strip()]


def findings(report: Published) -> list[str]:
    """Sentences of the description with figures computed from the table."""
    said = []
    wide = report.figures.pivot_table(index=["measurement", "role"], columns="pass_", values="mean", dropna=False,
                                      sort=False)
    facts = wide.reset_index().merge(
        report.figures.drop_duplicates("measurement")[["measurement", *report.keys]], on="measurement")
    held = report.figures[report.figures.memory.notna()][["measurement", "memory"]]
    facts["memory"] = facts.merge(held, how="left").memory
    for base, prefix in ((report.says.get("eager"), "up_"), (report.says.get("over"), "over_")):
        for pass_ in wide.columns if base else []:
            of_base = facts[facts.role == base].set_index("measurement")[pass_]
            facts[f"{prefix}{pass_}"] = facts.measurement.map(of_base) / facts[pass_]
    columns = {name: facts[name] for name in facts.columns}
    for one in report.says["findings"]:
        values = {name: compute(rule, columns) for name, rule in one.items() if name != "text"}
        said.append(Figures().format(one["text"], **values))
    return said


def compute(rule: str, facts: dict[str, Any]) -> Any:
    """Evaluates an expression of a description, on the words of a problem or the columns of a table."""
    return eval(rule, {"__builtins__": {}}, facts)


class Figures(string.Formatter):
    """Three significant digits unless told otherwise."""

    def format_field(self, value: Any, spec: str) -> str:
        return format(value, spec) if spec else figure(float(value))


def pages(study: Study, folder: Path) -> list[Page]:
    """A page for each report with at least one figure that was measured here."""
    found = []
    for description in sorted(folder.glob("*.toml")):
        report = read_published(description)
        book = Book(report, study)
        matched = sum((one.measurement, pass_, one.role) in book.here
                      for one in report.figures.itertuples() for pass_ in one.pass_.split("+")[-1:])
        if matched:
            found.append(Page(report, matched, comparisons(book), findings(report), [page_table(book)], book))
    return found
