"""Decides what the pictures of a report show: panels of points. drawing.py draws them."""

import itertools
import math
from dataclasses import dataclass, field
from typing import Any, Callable, Iterator

import pandas as pd

from .observations import curves
from .published import Book
from .published_pages import Page
from .study import Row, Study, conditions, configurations, fit_power_laws, groups, in_order, over_baseline
from .tables import passes_of, time_cell, varying
from .vocabulary import Key, listed, short

MOST_PANELS = 12  # per picture; more panels make several pictures
UNITS = {"growth": "ms", "speedup": "speed-up", "memory": "MB", "rate": "TFLOP/s", "roofline": "TFLOP/s",
         "published": "speed-up"}


@dataclass
class Point:
    x: float
    y: float
    low: float = math.nan
    high: float = math.nan
    clean: bool = True  # hollow otherwise


@dataclass
class Series:
    name: str
    points: list[Point] = field(default_factory=list)
    missing: list[tuple[float, str]] = field(default_factory=list)  # where, and the status that is shown there
    fit: Any = None
    look: str = ""  # whose colour and marker, if not the name's
    dashed: bool = False


@dataclass
class Panel:
    title: str
    series: list[Series]
    along: str = "operations per byte"
    ceilings: tuple[float, float] | None = None  # operations and bytes per second


@dataclass
class HeatMap:
    """A table whose cells have the colour of the time over the fastest of the row."""

    title: str
    columns: list[str]
    rows: list[tuple[str, list[tuple[str, str, float | None]]]]  # label; text, style and ratio of each cell


@dataclass
class Picture:
    name: str
    kind: str
    title: str
    description: str
    conditions: str
    panels: list[Panel]
    letter: str = ""  # of the published report that it belongs to
    svg: list[str] = field(default_factory=list)  # the panels, if a page embeds them

    @property
    def unit(self) -> str:
        return UNITS[self.kind]

    def names(self) -> list[str]:
        return list(dict.fromkeys(series.look or series.name for panel in self.panels for series in panel.series))


PointMaker = Callable[[Row], Point | None]


def pictures_of(study: Study, pages: list[Page]) -> list[Picture]:
    """In the order shown; the first of each kind stand before the fold."""
    if study.rows.empty:
        return []
    base = study.baseline
    ups = {row.Index: row for row in over_baseline(study, study.rows).itertuples()}
    def speed_up(row: Row) -> Point | None:
        pair = ups.get(row.Index)
        if pair is None or row.impl == base:
            return None
        return Point(row.x, pair.ratio, pair.rival_q1 / pair.q3, pair.rival_q3 / pair.q1, bool(pair.counted))
    def time(row: Row) -> Point | None:
        return Point(row.x, row.median * 1e3, row.q1 * 1e3, row.q3 * 1e3, clean(row)) if row.possible else None
    def memory(row: Row) -> Point | None:
        held = row.held if row.pass_ != "fwd" else row.held + (0 if pd.isna(row.workspace) else row.workspace)
        return None if pd.isna(held) else Point(row.x, held / 1e6)
    return [
        *rate_pictures(study),
        *by_length(study, "growth", "Time against length", "Median time on logarithmic axes, bars span the quartiles; "
                   "dashed: the fitted power of the length n.", time),
        *by_length(study, "speedup", f"Speed-up over {base}", f"Above the line faster than {base}, below it slower; "
                   "bars: the range that the quartiles of both allow.", speed_up),
        *by_length(study, "memory", "Memory", "Backward: inputs, outputs and saved state between forward and backward. "
                   "Forward: inputs, outputs and workspace.", memory,
                   [one for one in passes_of(study.rows) if one != "e2e"]),
        *roofline(study),
        *itertools.chain.from_iterable(published_pictures(page.book) for page in pages)]


def clean(row: Row) -> bool:
    return row.ranked and not row.noisy


def parts(found: list, most: int) -> Iterator[tuple[str, str, list]]:
    """Splits a long list; suffixes of name and title tell the parts apart."""
    count = math.ceil(len(found) / most)
    for n in range(count):
        of = found[n * len(found) // count:(n + 1) * len(found) // count]
        yield (f"-{n + 1}", f" ({n + 1} of {count})", of) if count > 1 else ("", "", of)


def series_of(study: Study, rows: pd.DataFrame, point: PointMaker, fits: bool = False) -> list[Series]:
    found, laws = [], fit_power_laws(rows) if fits else {}
    for name in study.present(rows):
        own = rows[rows.impl == name]
        series = Series(name, fit=laws.get(name))
        for row in own.itertuples():
            if not row.timed:
                series.missing.append((row.x, study.vocabulary.status(row.status)))
            elif one := point(row):
                series.points.append(one)
        if series.points or series.missing:
            found.append(series)
    return found


def by_length(study: Study, kind: str, title: str, description: str, point: PointMaker,
              passes: list[str] | None = None) -> Iterator[Picture]:
    """One or more pictures for every pass, a panel for each curve; a single length is no curve."""
    panels = [(name, rows, series_of(study, rows, point, kind == "growth"))
              for name, rows in curves(study, study.rows) if rows.x.nunique() > 1]
    for pass_ in passes or passes_of(study.rows):
        chosen = [one for one in panels if one[1].pass_.iloc[0] == pass_ and any(series.points for series in one[2])]
        for suffix, words, part in parts(chosen, MOST_PANELS):
            yield Picture(f"{kind}-{pass_}{suffix}", kind, f"{title}, {study.word(pass_)}{words}", description,
                          *conditions_and_panels(study, pass_, part))


def conditions_and_panels(study: Study, pass_: str, part: list) -> tuple[str, list[Panel]]:
    return conditions(study, pd.concat([rows for _, rows, _ in part])), [
        Panel(title.removeprefix(f"{study.word(pass_)}, "), series, study.operations[rows.op.iloc[0]].along)
        for title, rows, series in part]


def sweeps(study: Study, rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Splits rows into sweeps with one configuration at each length, by as few sizes as possible. A batch that shrinks
    as the length grows, with a constant product, makes one sweep."""
    operation = study.operation(next(rows.itertuples()))
    sizes = [key for key in varying(study, rows, ("pass",)) if key.shown == "title" and key.kind != "word"]
    for chosen in itertools.chain.from_iterable(itertools.combinations(sizes, n) for n in range(len(sizes) + 1)):
        keys = [tuple(case.get(key.word) for key in chosen) for case in rows.case]
        marked = rows.assign(sweep=keys)
        others = [key for key in sizes if key not in chosen]
        if all(is_sweep(group, others) for _, group in marked.groupby("sweep")) or not others:
            break
    for values, group in marked.groupby("sweep", sort=False):
        said = [operation.title(group.case.iloc[0], ("title", "column"), [key.word for key in sizes])]
        said += [*(span(key, group) for key in sizes), group.setting.iloc[0]]
        yield listed(*said), group


def is_sweep(rows: pd.DataFrame, sizes: list[Key]) -> bool:
    if rows.groupby("x")["at"].nunique().max() > 1:
        return False
    values = [[(case.get(key.word), x) for case, x in zip(rows.case, rows.x)] for key in sizes]
    return all(len({size for size, _ in of}) == 1 or len({size * x for size, x in of if size}) == 1 for of in values)


def span(key: Key, rows: pd.DataFrame) -> str:
    values = [case[key.word] for case in rows.case if key.word in case]
    least, most = min(values), max(values)
    return key.text(least) if least == most else f"{key.noun or key.word} {least} to {most}"


def rate_pictures(study: Study) -> Iterator[Picture]:
    """The field's picture: rate against length in grouped bars, a panel for each head dimension and mask."""
    def words(row: Row) -> tuple:
        operation = study.operation(row)
        keys = [key for key in operation.keys if key.kind == "word" or key.shown == "column"]
        return (row.op, row.hot, row.cpu_threads, row.machine,
                *(row.case.get(key.word) for key in keys if key.kind != "number" and key.word != "seed"))
    def rate(row: Row) -> Point | None:
        return Point(row.x, row.flops / row.median / 1e12, clean=clean(row)) if row.possible else None
    for pass_ in passes_of(study.rows):
        found = []
        for _, rows in groups(study, study.rows[study.rows.pass_ == pass_], words):
            for title, group in sweeps(study, rows):
                timed = group[group.possible & (group.flops > 0)]
                if timed.x.nunique() > 1:
                    found.append((title, group, series_of(study, group, rate)))
        for suffix, part_words, part in parts(found, MOST_PANELS):
            yield Picture(f"rate-{pass_}{suffix}", "rate", f"Rate, {study.word(pass_)}{part_words}",
                          "Floating-point operations of the problem over the median time, by length. Pale bars: "
                          "flagged.", *conditions_and_panels(study, pass_, part))


def heat_maps(study: Study) -> Iterator[HeatMap]:
    """Implementation by configuration, for each operation and pass."""
    for pass_ in passes_of(study.rows):
        for op, rows in groups(study, study.rows[study.rows.pass_ == pass_], "op"):
            keys, columns = varying(study, rows, ("pass",)), study.present(rows)
            lines = [(row_label(keys, row), heat_cells(study, cells, columns)) for row, cells in configurations(rows)]
            title = listed("Time in ms", op if len(study.operations) > 1 else "", study.word(pass_))
            yield HeatMap(title, columns, lines)


def row_label(keys: list[Key], row: Row) -> str:
    """Words first, then sizes, as short as possible."""
    said = [key.values.get(str(row.case[key.word]), str(row.case[key.word])) for key in keys if key.kind == "word"]
    said += [f"{key.word}={short(row.case[key.word])}" for key in keys if key.kind != "word" and key.word in row.case]
    return " ".join(filter(None, [*said, row.setting]))


def heat_cells(study: Study, cells: dict[str, Row], columns: list[str]) -> list[tuple[str, str, float | None]]:
    least = min((row.median for row in cells.values() if row.possible), default=math.nan)
    rows = [cells.get(name) for name in columns]
    ratios = [row.median / least if row is not None and row.possible else None for row in rows]
    return [(cell.text, cell.style, ratio) for cell, ratio in zip((time_cell(study, row) for row in rows), ratios)]


def roofline(study: Study) -> list[Picture]:
    """Rate against operations per byte for the longest length of each shape, under the ceilings of the same run."""
    rows = study.rows[study.rows.possible & (study.rows.bytes > 0) & (study.rows.flops > 0)]
    panels = []
    rows = rows.assign(shape=[study.operation(row).title(row.case, ("column",)) for row in rows.itertuples()],
                       **{key: [case.get(key, "") for case in rows.case] for key in ("device", "dtype")})
    for (device, dtype), group in rows.groupby(["device", "dtype"], sort=False):
        longest = group.loc[group.groupby(["impl", "title", "shape"]).x.idxmax()]
        series = []
        for name, pass_ in itertools.product(study.present(longest), passes_of(longest)):
            own = longest[(longest.impl == name) & (longest.pass_ == pass_)].itertuples()
            points = [Point(row.flops / row.bytes, row.flops / row.median / 1e12, clean=clean(row)) for row in own]
            series += [Series(f"{name} {pass_}", points, look=name)] if points else []
        measured = [one for n in group.environment.unique() for one in study.environments[n]["ceilings"].items()]
        bandwidth = max((rate for name, rate in measured if "bandwidth" in name
                         and name.startswith("gpu_") == (device == "cuda")), default=0.0)
        panels.append(Panel(listed(dtype, device), series, ceilings=(group.ceiling.max(), bandwidth)))
    if not panels:
        return []
    said = ("Rate against the operations per byte of the problem, for the longest length of each shape, under the "
            "ceilings measured in the same run. A point above the roof was faster than the probe: its row is flagged "
            "low_probe, or the probe ran while the machine was slower.")
    return [Picture("roofline", "roofline", "Roofline", said, conditions(study, rows), panels)]


def published_pictures(book: Book) -> Iterator[Picture]:
    """Here and published: speed-ups over the eager form, which carry over between machines, or the memory before
    backward; and times, where the description asks for them."""
    eager = book.report.says.get("eager")
    if not book.report.says.get("pictures", True):
        return
    if eager:
        others = [role for role in book.roles() if role != eager]
        over = f"speed-up over {eager}"
        yield from published_picture(book, "published", over, "", others, book.report.passes, speed_up_point)
    else:
        held = "memory before backward"
        yield from published_picture(book, "memory", held, "", book.roles(), ["fwd+bwd"], memory_point)
    if book.report.says.get("draw_times"):
        yield from published_picture(book, "growth", "times", "-times", book.roles(), book.report.passes, time_point)


def published_picture(book: Book, kind: str, what: str, end: str, roles: list[str], passes: list[str],
                      point: Callable[[Book, tuple, float], Point | None]) -> Iterator[Picture]:
    report, study = book.report, book.study
    panels: dict[str, dict[tuple[str, bool], Series]] = {}
    every = itertools.product(book.cases.items(), passes, roles, (False, True))
    for (measurement, case), pass_, role, published in every:
        operation = study.operations[case["op"]]
        x, named = operation.axis(case)[1], (published, measurement, pass_, role)  # as Book.side takes it
        own = book.side(*named)
        if own.word == "-":
            continue
        shape = f"{operation.title(case, ('column',))}, {operation.title(case, without=('pass',))}"
        of = panels.setdefault(f"{study.word(pass_)}, {shape}" if "+" not in pass_ else shape, {})
        name = f"{role}, {'published' if published else 'here'}"
        series = of.setdefault((role, published), Series(name, look=role, dashed=published))
        if own.word:
            series.missing.append((x, own.word + (" (published)" if published else "")))
        elif one := point(book, named, x):
            series.points.append(one)
    axis = study.operations[next(iter(book.cases.values()))["op"]].along
    found = [Panel(name, [*of.values()], axis) for name, of in panels.items() if any(one.points for one in of.values())]
    for suffix, words, part in parts(found, MOST_PANELS):
        yield Picture(f"published-{report.letter}{end}{suffix}", kind, f"Report {report.letter}: {what}{words}",
                      "Solid and filled: here. Dashed and hollow: as published.",
                      f"Here: {conditions(study, book.rows)}. Published: {report.hardware}", part, report.letter)


def speed_up_point(book: Book, named: tuple, x: float) -> Point | None:
    own, base = book.side(*named), book.side(*named[:3], book.report.says["eager"])
    return None if base.word else Point(x, base.mean / own.mean)


def memory_point(book: Book, named: tuple, x: float) -> Point | None:
    held = book.side(*named).memory
    return None if math.isnan(held) else Point(x, held / 1e6)


def time_point(book: Book, named: tuple, x: float) -> Point | None:
    return Point(x, book.side(*named).mean * 1e3)
