"""The sections of published reports: tables and sentences, with the figures measured here beside the printed ones."""

import itertools
import math
import string
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from .published import PARTS, Book, Published, Side, compute, facts_of, read_published
from .study import PASSES, Study, conditions, plural, told_apart
from .table import NOTHING, Cell, Column, Table, figure, ratio, value_cell
from .tables import CAPTIONS, key_columns, varying, words
from .vocabulary import Key, short


@dataclass
class Page:
    report: Published
    matched: int  # figures that were also measured here
    matched_cut: int  # at smaller sizes
    comparisons: list[str]
    findings: list[str]
    tables: list[Table]
    book: Book


def word_cell(word: str, note: str = "") -> Cell:
    return Cell(word, style="muted" if word == "-" else "word", note=note)


def number_cell(side: Side, seconds: float, factor: float = 1e3) -> Cell:
    if side.word:
        return word_cell(side.word, side.note)
    if math.isnan(seconds):
        return NOTHING
    marks = side.marks if factor == 1e3 else ""
    style = "" if side.ranked else "muted"
    return Cell(figure(seconds * factor) + marks, seconds * factor, style, side.detail, side.note)


def problem_cells(keys: list[Key], case: dict, published: bool) -> list[Cell]:
    return [*(value_cell(case[key.word]) if key.word in case else NOTHING for key in keys),
            Cell("published", style="muted") if published else Cell("here")]


def titled(book: Book, cases: dict[tuple, dict], name: str, what: str) -> Table:
    report, end = book.report, "-cut" if cases is book.cut else ""
    said = {key: text.format(report=report, what=what, here=conditions(book.study, book.rows))
            for key, text in CAPTIONS[f"published{end}"].items()}
    return Table(f"published-{report.letter.lower()}{name}{end}", said["title"], said["caption"])


def page_table(book: Book, cases: dict[tuple, dict]) -> Table:
    """A line per problem, side and implementation; for each pass its figures, then speed-ups."""
    report, passes, keys = book.report, book.report.passes, varying(book.study, book.report.figures)
    parts = [part for part in PARTS if report.figures[part].notna().any()]
    heads = {pass_: book.study.word(pass_) if "+" not in pass_ else "forward, then backward" for pass_ in passes}
    rated = report.says.get("speed_up_passes", passes) if report.over else []
    table = titled(book, cases, "", report.title)
    table.columns = [*key_columns(keys), *words("figures", "implementation"),
                     *(Column(heads[pass_], part) for pass_ in passes for part in parts),
                     *(Column(heads[pass_], "speed-up") for pass_ in rated)]
    if "formula" in report.says:
        table.columns += [Column(head, "MB") for head in ("memory before backward", "formula")]
    for (published, measurement, case), role in itertools.product(book.lines(cases), book.roles):
        sides = {pass_: book.side(published, measurement, pass_, role) for pass_ in passes}
        if all(side.word == "-" for side in sides.values()):
            continue
        line = [*problem_cells(keys, case, published), Cell(next(side.name for side in sides.values() if side.name)),
                *(number_cell(side, getattr(side, part)) for side in sides.values() for part in parts),
                *(speed_up_cell(book, published, measurement, case, pass_, role) for pass_ in rated)]
        if "formula" in report.says:
            both = sides["fwd+bwd"]
            megabytes = compute(report.says["formula"], case) / 1e6
            line += [number_cell(both, both.memory, 1e-6),
                     Cell(figure(megabytes), megabytes) if role in report.says["formula_roles"] else Cell("-")]
        table.rows.append(line)
    return table


def speed_up_cell(book: Book, published: bool, measurement: tuple, case: dict, pass_: str, role: str) -> Cell:
    own, base = (book.side(published, measurement, pass_, one) for one in (role, book.report.over))
    if own.word or base.word:
        return word_cell(own.word or "-")
    rivals = [book.side(published, measurement, pass_, one) for one in book.roles]
    fastest = all(own.mean <= side.mean for side in rivals if not side.word and side.ranked)
    value = base.mean / own.mean
    bold = compute(book.report.says["bold"], {**case, "ratio": value, "fastest": fastest})
    counted = own.ranked and base.ranked and (published or told_apart(base.row, own.row))
    style = "muted" if role != book.report.over and not counted else "best" if bold else "loss" if value < 1 else ""
    return Cell(ratio(value), value, style, own.detail and "incomplete")


def best_table(book: Book, cases: dict[tuple, dict]) -> Table:
    """A line per problem and side: for each pass the best speed-up over the eager form, and who has it."""
    keys, passes = varying(book.study, book.report.figures), book.report.passes
    table = titled(book, cases, "-best", "the best speed-up, and by which implementation")
    table.columns = [*key_columns(keys), *words("figures"), *(Column(book.study.word(pass_)) for pass_ in passes)]
    for published, measurement, case in book.lines(cases):
        table.rows.append(problem_cells(keys, case, published)
                          + [best_cell(book, published, measurement, pass_) for pass_ in passes])
    return table


def best_cell(book: Book, published: bool, measurement: tuple, pass_: str) -> Cell:
    sides = {role: book.side(published, measurement, pass_, role) for role in book.roles}
    timed = {role: side for role, side in sides.items() if not side.word and side.ranked}
    eager = timed.pop(book.report.eager, None)
    if eager is None or not timed:
        return NOTHING
    best = min(timed.values(), key=lambda side: side.mean)
    value = eager.mean / best.mean
    return Cell(ratio(value), value, "loss" if value < 1 else "", best.name)


def comparisons(book: Book) -> list[str]:
    """Speed-ups of flash over the eager form, here and published: the mean, and from which length on it is faster."""
    said, eager = [], book.report.says.get("eager")
    ups = pd.DataFrame([(pass_, case.get("dtype", ""), book.study.operations[case["op"]].axis(case)[1],
                         *(book.speed_up(published, measurement, pass_) for published in (False, True)))
                        for pass_ in (PASSES if eager else []) for measurement, case in book.cases.items()],
                       columns=["pass_", "kind", "x", "here", "published"])
    for pass_, pairs in ups.dropna().groupby("pass_", sort=False):
        here, published = (ratio(math.exp(pairs[side].map(math.log).mean())) for side in ("here", "published"))
        said.append(f"{book.study.word(pass_)}: geometric mean speed-up of flash over {eager} in "
                    f"{plural(len(pairs), 'shared configuration')}: {here} here, {published} published.")
    for (pass_, kind), rows in ups.groupby(["pass_", "kind"], sort=False):
        here, published = (faster_from(rows.x, rows[side]) for side in ("here", "published"))
        if here and published:
            said.append(f"{book.study.word(pass_)}, {kind}: flash is faster at every d {here} (here) and {published} "
                        "(published).")
    return said + (memory_against_formula(book) if "formula" in book.report.says else [])


def faster_from(lengths: pd.Series, ratios: pd.Series) -> str:
    won = ratios.dropna().gt(1).groupby(lengths).all()
    above = [x for x in won.index if x > max(won.index[~won], default=0)]
    return f"from length {short(min(above))} on" if above else "at no length" if len(won) else ""


def memory_against_formula(book: Book) -> list[str]:
    held = pd.DataFrame([{"formula": compute(book.report.says["formula"], case),
                          "here": book.side(False, measurement, "bwd", "naive").memory,
                          "published": book.side(True, measurement, "fwd+bwd", "naive").memory}
                         for measurement, case in book.cases.items()], columns=["formula", "here", "published"])
    off, beyond = (held.here / held.formula - 1).abs().dropna(), (held.published - held.formula).dropna()
    said = f"naive holds before backward {book.report.says['formula_words']} (1 MB = 10^6 bytes). "
    if len(off):
        said += (f"The bytes counted here deviate from it by at most {100 * max(off):.2g} % in "
                 f"{plural(len(off), 'cell')}. ")
    if len(beyond):
        said += f"The published column is up to {max(beyond) / 1e6:.0f} MB above it."
    return [said.strip()]


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
        here = [book.is_measured(one) for one in report.figures.itertuples()]
        matched = report.figures[here].groupby("cut").number.nunique()
        if any(here):
            tables = [table(book, cases) for cases in (book.cases, book.cut) if cases
                      for table in ([page_table, best_table] if report.says.get("best") else [page_table])]
            found.append(Page(report, matched.get(False, 0), matched.get(True, 0), comparisons(book), findings(report),
                              tables, book))
    return found
