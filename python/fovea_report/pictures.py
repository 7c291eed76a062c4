"""Decides what the pictures of a report show: panels of points. drawing.py draws them."""

import itertools
import math
from dataclasses import dataclass, field
from typing import Callable, Iterator

import pandas as pd

from .observations import MADE_OF, curves
from .published import Book
from .published_pages import Page
from .study import PowerLaw, Row, Study, conditions, fit_power_laws, groups, over_baseline, place
from .tables import captions, passes_of, varying
from .vocabulary import Key, listed

MOST_PANELS = 12  # per picture; more panels make several pictures
MOST_BARS = 36  # per panel; more bars make several panels
MARKS = ("before forward", "before backward", "peak")  # of the memory in a step


@dataclass
class Series:
    name: str
    points: pd.DataFrame  # x and y; low and high, or NaN; clean: hollow otherwise
    missing: list[tuple[float, str]] = field(default_factory=list)  # where, and the status that is shown there
    fit: PowerLaw | None = None
    look: str = ""  # whose colour and marker, if not the name's
    dashed: bool = False

    def lengths(self) -> set[float]:
        return {*self.points.x, *(x for x, _ in self.missing)}


@dataclass
class Panel:
    title: str
    series: list[Series]
    along: str = "operations per byte"  # what it runs over
    ceilings: tuple[float, float] | None = None  # operations and bytes per second

    def lengths(self) -> list[float]:
        return sorted(set().union(*(series.lengths() for series in self.series)))


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

    def names(self) -> list[str]:
        return list(dict.fromkeys(series.look or series.name for panel in self.panels for series in panel.series))


def pictures_of(study: Study, pages: list[Page]) -> list[Picture]:
    """In the order shown; one of each kind stands before the fold."""
    if study.rows.empty:
        return []
    rows = study.rows
    ups = over_baseline(study, rows)[lambda pairs: pairs.impl != study.baseline]
    held = rows.held.astype(float) + rows.workspace.astype(float).where(rows.pass_ == "fwd").fillna(0)
    return [
        *rate_pictures(study),
        *by_length(study, "growth", rows.assign(
            y=rows["median"].where(rows.possible) * 1e3, low=rows.q1 * 1e3, high=rows.q3 * 1e3)),
        *by_length(study, "speedup", rows.assign(
            y=ups.ratio, low=ups.rival_q1 / ups.q3, high=ups.rival_q3 / ups.q1, clean=ups.counted)),
        *by_length(study, "memory", rows.assign(y=held / 1e6, low=math.nan, clean=True)[rows.pass_ != "e2e"]),
        *roofline(study), *boxes_of_steps(study), *timelines(study),
        *itertools.chain.from_iterable(published_pictures(page.book) for page in pages)]


def parts(found: list, most: int) -> Iterator[tuple[str, str, list]]:
    """Splits a long list; suffixes of name and title tell the parts apart."""
    count = math.ceil(len(found) / most)
    for n in range(count):
        of = found[n * len(found) // count:(n + 1) * len(found) // count]
        yield (f"-{n + 1}", f" ({n + 1} of {count})", of) if count > 1 else ("", "", of)


def series_of(study: Study, rows: pd.DataFrame, fits: bool = False) -> Iterator[Series]:
    laws = fit_power_laws(rows) if fits else {}
    rows = rows[[name for name in ("impl", "timed", "status", "x", "y", "low", "high", "clean") if name in rows]]
    for name, own in study.each(rows):
        missing = [(x, study.vocabulary.status(word)) for x, word in own[~own.timed][["x", "status"]].values]
        points = own[own.timed & own.y.notna()]
        if len(points) or missing:
            yield Series(name, points, missing, laws.get(name))


def by_length(study: Study, kind: str, rows: pd.DataFrame) -> Iterator[Picture]:
    """One or more pictures for every pass, a panel for each curve; a single length is no curve."""
    for pass_ in passes_of(rows):
        panels = [(group, panel_of(study, name, group, kind == "growth"))
                  for name, group in curves(study, rows[rows.pass_ == pass_]) if group.x.nunique() > 1]
        yield from split(study, kind, pass_, [one for one in panels if any(len(of.points) for of in one[1].series)])


def boxes_of_steps(study: Study) -> Iterator[Picture]:
    """The times of all steps of each model, by phase: what is told apart, and what the machine disturbed."""
    rows = study.rows[study.rows.timed & study.rows.pass_.isin(("step_fwd", "step_rest"))]
    rows = rows.assign(x=rows.phases.map(list), y=[[time["samples"] for time in of.values()] for of in rows.phases])
    rows = rows.explode(["x", "y"]).explode("y", ignore_index=True)
    rows = rows.assign(x=rows.x.map(study.word), y=1e3 * rows.y.astype(float))
    yield from by_model(study, "phases", "step", "phase", rows)


def by_model(study: Study, kind: str, pass_: str, along: str, rows: pd.DataFrame) -> Iterator[Picture]:
    panels = [(group, Panel(title, [Series(name, own) for name, own in study.each(group)], along))
              for title, group in groups(study, rows, study.label)]
    yield from split(study, kind, pass_, panels)


def timelines(study: Study) -> Iterator[Picture]:
    """The memory of each model at the marks of a step."""
    rows = study.rows[study.rows.timed & (study.rows.pass_ == "step") & study.rows.state.notna()]
    marks = [(one.state / 1e9, one.held / 1e9, (one.held + one.workspace) / 1e9) for one in rows.itertuples()]
    rows = rows.assign(x=[MARKS] * len(rows), y=marks).explode(["x", "y"], ignore_index=True)
    yield from by_model(study, "timeline", "step", "", rows)


def panel_of(study: Study, title: str, rows: pd.DataFrame, fits: bool = False) -> Panel:
    row = next(rows.itertuples())  # its pass stands in the title of the picture
    return Panel(title.replace(f"{study.word(row.pass_)}, ", "", 1), list(series_of(study, rows, fits)),
                 study.operation(row).along)


def split(study: Study, kind: str, pass_: str, panels: list[tuple[pd.DataFrame, Panel]]) -> Iterator[Picture]:
    """As many pictures as the panels need, which are given with their rows."""
    title, said = captions(study, f"picture-{kind}")
    for suffix, words, part in parts(panels, MOST_PANELS):
        yield Picture(f"{kind}-{pass_}{suffix}", kind, f"{listed(title, study.word(pass_))}{words}", said,
                      conditions(study, pd.concat([rows for rows, _ in part])), [panel for _, panel in part])


def sweeps(study: Study, rows: pd.DataFrame) -> Iterator[tuple[str, pd.DataFrame]]:
    """Splits rows into sweeps with one configuration at each length, by as few sizes as possible. A batch that shrinks
    as the length grows, with a constant product, makes one sweep."""
    operation = study.operation(next(rows.itertuples()))
    sizes = [key for key in varying(study, rows, ("pass",)) if key.shown == "title" and key.kind != "word"]
    for chosen in itertools.chain.from_iterable(itertools.combinations(sizes, n) for n in range(len(sizes) + 1)):
        marked = rows.assign(sweep=[tuple(case.get(key.word) for key in chosen) for case in rows.case])
        others = [key for key in sizes if key not in chosen]
        if all(is_sweep(group, others) for _, group in marked.groupby("sweep")) or not others:
            break
    for values, group in marked.groupby("sweep", sort=False):
        case = group.case.iloc[0]
        words = [span(key, group) if key in sizes else operation.title(case, ("title", "column"), {*case} - {key.word})
                 for key in sorted(operation.keys, key=lambda key: key.kind != "word") if key.word != "pass"]
        yield listed(study.op_word(operation.name), *words, group.setting.iloc[0]), group


def is_sweep(rows: pd.DataFrame, sizes: list[Key]) -> bool:
    values = [[(case.get(key.word), x) for case, x in zip(rows.case, rows.x)] for key in sizes]
    return rows.groupby("x")["at"].nunique().max() <= 1 and all(
        len({size for size, _ in of}) == 1 or len({size * x for size, x in of if size}) == 1 for of in values)


def span(key: Key, rows: pd.DataFrame) -> str:
    values = [case[key.word] for case in rows.case if key.word in case]
    least, most = min(values), max(values)
    return key.text(least) if least == most else f"{key.noun or key.word} {least} to {most}"


def rate_pictures(study: Study) -> Iterator[Picture]:
    """The field's picture: rate against length in grouped bars, a panel for each head dimension and mask."""
    def words(row: Row) -> tuple:
        keys = [key for key in study.operation(row).keys if key.kind == "word" or key.shown == "column"]
        return (row.op, row.hot, row.cpu_threads, row.system,
                *(row.case.get(key.word) for key in keys if key.kind != "number" and key.word != "seed"))
    rows = study.rows.assign(y=(study.rows.flops / study.rows["median"] / 1e12).where(study.rows.possible))
    for pass_ in passes_of(rows):
        panels, found = [], (one for _, shapes in groups(study, rows[rows.pass_ == pass_], words)
                             for one in sweeps(study, shapes) if one[1][one[1].y > 0].x.nunique() > 1)
        for title, group in sorted(found, key=lambda one: place(study, next(one[1].itertuples()))):
            most = MOST_BARS // group.groupby("x").impl.nunique().max()  # lengths whose bars have room
            for _, which, lengths in parts(sorted(group.x.unique()), max(1, most)):
                part = group[group.x.isin(lengths)]
                panels.append((part, panel_of(study, f"{title}{which}", part)))
        yield from split(study, "rate", pass_, panels)


def roofline(study: Study) -> Iterator[Picture]:
    """Rate against operations per byte for the longest length of each shape, under the ceilings of the same run."""
    rows = study.rows[study.rows.possible & (study.rows.bytes > 0) & (study.rows.flops > 0)]
    rows = rows.assign(
        roof=[listed(row.case.get("dtype"), row.case.get("device"), row.setting) for row in rows.itertuples()],
        sizes=[study.operation(row).title(row.case, ("column",)) for row in rows.itertuples()])
    for pass_ in passes_of(rows):
        panels = []
        for title, group in groups(study, rows[rows.pass_ == pass_], "roof"):
            longest = group.loc[group.groupby(["impl", "title", "sizes"]).x.idxmax()]
            longest = longest.assign(x=longest.flops / longest.bytes, y=longest.flops / longest["median"] / 1e12)
            measured = [one for n in group.environment.unique() for one in study.environments[n]["ceilings"].items()]
            bandwidth = max((rate for name, rate in measured if "bandwidth" in name
                             and name.startswith("gpu_") == group.on_gpu.iloc[0]), default=0.0)
            ceilings = group.ceiling.max(), bandwidth
            panels.append((group, Panel(title, list(series_of(study, longest)), ceilings=ceilings)))
        yield from split(study, "roofline", pass_, panels)


def published_pictures(book: Book) -> Iterator[Picture]:
    """Here and published: speed-ups over the eager form, which carry over between machines, or the memory before
    backward; and times, where the description asks for them."""
    eager, roles, passes = book.report.says.get("eager"), book.roles, book.report.passes
    if not book.cases or not book.report.says.get("pictures", True):
        return
    if eager:
        yield from published_picture(book, "published", f"speed-up over {eager}", roles, passes, book.speed_up, eager)
    elif "formula" in book.report.says:
        yield from published_picture(book, "memory", "memory before backward", roles, ["fwd+bwd"],
                                     lambda *place: book.side(*place).memory / 1e6)
    if book.report.says.get("draw_times"):
        yield from published_picture(book, "growth", "times", roles, passes,
                                     lambda *place: book.side(*place).mean * 1e3)


def published_picture(book: Book, kind: str, what: str, roles: list[str], passes: list[str],
                      value: Callable[[bool, tuple, str, str], float], hidden: str = "") -> Iterator[Picture]:
    """The role `hidden` has no line; only its missing times are marked."""
    report, study, points = book.report, book.study, []
    for (measurement, case), pass_, role, published in itertools.product(
            book.cases.items(), passes, roles, (False, True)):
        operation, word = study.operations[case["op"]], book.side(published, measurement, pass_, role).word
        if word == "-" or (role == hidden and not word):
            continue
        without = ("pass", *MADE_OF.get(case["op"], ()))
        shape = listed(*(operation.title(case, (place,), without) for place in ("column", "title")))
        bars = book.spread(measurement, pass_, role) if kind == "published" and not published else (math.nan, math.nan)
        points.append({
            "panel": f"{study.word(pass_)}, {shape}" if "+" not in pass_ else shape, "low": bars[0], "high": bars[1],
            "role": role, "published": published, "x": operation.axis(case)[1],
            "y": value(published, measurement, pass_, role), "clean": not published,
            "word": word + (" (published)" if published and word else "")})
    table = pd.DataFrame(points, columns=["panel", "role", "published", "x", "y", "low", "high", "clean", "word"])
    panels = [Panel(name, [Series(f"{role}, {'published' if published else 'here'}", own[own.y.notna()], [
        (one.x, one.word) for one in own.itertuples() if one.word], look=role, dashed=published)
        for (role, published), own in group.groupby(["role", "published"], sort=False)], operation.along)
        for name, group in table.groupby("panel", sort=False) if group.y.notna().any()]
    end = "-times" if kind == "growth" else ""
    for suffix, words, part in parts(panels, MOST_PANELS):
        yield Picture(f"published-{report.letter}{end}{suffix}", kind, f"Report {report.letter}: {what}{words}",
                      "Solid and filled: here; bars of speed-ups: quartiles. Dashed and hollow: as published.",
                      f"Here: {conditions(study, book.rows)}. Published: {report.hardware}", part, report.letter)
