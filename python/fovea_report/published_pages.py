"""The sections of published reports: tables and sentences, with the figures measured here beside the printed ones."""

import math
import string
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from .published import Book, Published, Side, compute, facts_of, read_published
from .study import PASSES, Study, conditions, geometric_mean, plural, told_apart
from .table import NOTHING, Cell, Column, Table, figure, ratio, value_cell
from .vocabulary import Key, short


@dataclass
class Page:
    report: Published
    matched: int  # figures that were also measured here
    matched_cut: int  # at smaller sizes
    comparisons: list[str]
    findings: list[str]
    tables: list[Table]
    book: "Book"


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
    style = "" if side.ranked else "muted"
    return Cell(figure(seconds * factor) + marks, seconds * factor, style, side.detail, side.note)


def ratio_cell(book: Book, base: Side, own: Side, case: dict, fastest: bool) -> Cell:
    for side in (own, base):
        if side.word:
            return Cell(side.word, style="muted" if side.word == "-" else "word")
    value = base.mean / own.mean
    bold = compute(book.report.says["bold"], {**case, "ratio": value, "fastest": fastest})
    is_muted = base is not own and not comparable(base, own)
    return Cell(ratio(value), value, "muted" if is_muted else "best" if bold else "loss" if value < 1 else "")


def problem_columns(book: Book, keys: list[Key]) -> list[Column]:
    """The operation, if the report has several, and the keys that vary."""
    operations = book.report.figures.op.nunique() > 1
    columns = [Column("operation", number=False)] if operations else []
    return [*columns, *(Column(key.head, number=key.kind != "word") for key in keys), Column("figures", number=False)]


def problem_cells(book: Book, keys: list[Key], case: dict, published: bool) -> list[Cell]:
    operation = [Cell(case["op"])] if book.report.figures.op.nunique() > 1 else []
    return operation + [value_cell(case[key.word]) if key.word in case else NOTHING for key in keys] + [
        Cell("published", style="muted") if published else Cell("here")]


def titled(book: Book, cases: dict[tuple, dict], name: str, what: str) -> Table:
    report, cut = book.report, cases is book.cut
    sizes = f" Here at smaller sizes: {report.cut_words}." if cut else ""
    return Table(f"published-{report.letter.lower()}{name}{'-cut' if cut else ''}",
                 f"Report {report.letter}: {what}{', smaller sizes' if cut else ''}",
                 f"Times in ms, means as the report has them. Here: {conditions(book.study, book.rows)}. Published: "
                 f"report {report.letter}, {report.hardware}. Times of different machines are not a comparison; "
                 f"speed-ups are.{sizes}")


def page_table(book: Book, cases: dict[tuple, dict]) -> Table:
    """A line per problem, side and implementation; for each pass its figures, then speed-ups."""
    report, keys, passes = book.report, book.keys(), book.report.passes
    parts = [part for part in ("mean", "std", "min") if report.figures[part].notna().any()]
    heads = {pass_: book.study.word(pass_) if "+" not in pass_ else "forward, then backward" for pass_ in passes}
    rated = report.says.get("speed_up_passes", passes) if report.over else []
    table = titled(book, cases, "", report.title)
    table.columns = [*problem_columns(book, keys), Column("implementation", number=False),
                     *(Column(heads[pass_], part) for pass_ in passes for part in parts),
                     *(Column(heads[pass_], "speed-up") for pass_ in rated)]
    if "formula" in report.says:
        table.columns += [Column("memory before backward", "MB"), Column("formula", "MB")]
    for measurement, case in cases.items():
        for published in (False, True):
            for role in book.roles():
                sides = {pass_: book.side(published, measurement, pass_, role) for pass_ in passes}
                if all(side.word == "-" for side in sides.values()):
                    continue
                line = problem_cells(book, keys, case, published)
                line += [Cell(printed_name(book, measurement, role) if published else role)]
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


def best_table(book: Book, cases: dict[tuple, dict]) -> Table:
    """A line per problem and side: for each pass the best speed-up over the eager form, and who has it."""
    keys, passes = book.keys(), book.report.passes
    table = titled(book, cases, "-best", "the best speed-up, and by which implementation")
    table.columns = [*problem_columns(book, keys), *(Column(book.study.word(pass_)) for pass_ in passes)]
    for measurement, case in cases.items():
        for published in (False, True):
            table.rows.append(problem_cells(book, keys, case, published)
                              + [best_cell(book, published, measurement, pass_) for pass_ in passes])
    return table


def best_cell(book: Book, published: bool, measurement: tuple, pass_: str) -> Cell:
    sides = {role: book.side(published, measurement, pass_, role) for role in book.roles()}
    timed = {role: side for role, side in sides.items() if not side.word and side.ranked}
    eager = timed.pop(book.report.eager, None)
    if eager is None or not timed:
        return NOTHING
    role = min(timed, key=lambda one: timed[one].mean)
    value = eager.mean / timed[role].mean
    who = printed_name(book, measurement, role) if published else role
    return Cell(ratio(value), value, "loss" if value < 1 else "", who)


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
    figures = report.figures.drop_duplicates("number")
    wide = figures.pivot_table(index=["measurement", "role"], columns="pass_", values="mean", dropna=False, sort=False)
    facts = wide.reset_index().merge(
        figures.drop_duplicates("measurement")[["measurement", *report.keys]], on="measurement")
    facts["memory"] = facts.merge(figures[figures.memory.notna()][["measurement", "memory"]], how="left").memory
    for base, prefix in ((report.says.get("eager"), "up_"), (report.says.get("over"), "over_")):
        for pass_ in wide.columns if base else []:
            of_base = facts[facts.role == base].set_index("measurement")[pass_]
            facts[f"{prefix}{pass_}"] = facts.measurement.map(of_base) / facts[pass_]
    columns = facts_of(report, facts)
    for one in report.says["findings"]:
        values = {name: compute(rule, columns) for name, rule in one.items() if name != "text"}
        said.append(Figures().format(one["text"], **values))
    return said


class Figures(string.Formatter):
    """Three significant digits unless told otherwise."""

    def format_field(self, value: Any, spec: str) -> str:
        return format(value, spec) if spec else figure(float(value))


def pages(study: Study, folder: Path) -> list[Page]:
    """A page for each report with at least one figure that was measured here, if only at smaller sizes."""
    found = []
    for description in sorted(folder.glob("*.toml")):
        report = read_published(description)
        book = Book(report, study)
        matched = [len({one.number for one in report.figures.itertuples() for pass_ in one.pass_.split("+")[-1:]
                        if one.cut == cut and (one.measurement, pass_, one.role) in book.here})
                   for cut in (False, True)]
        if any(matched):
            tables = [table(book, cases) for cases in (book.cases, book.cut) if cases
                      for table in ([page_table, best_table] if report.says.get("best") else [page_table])]
            found.append(Page(report, *matched, comparisons(book), findings(report), tables, book))
    return found
