"""A whole report as Markdown, as one page, and as CSV."""

import csv
import io
import itertools
import re
from dataclasses import dataclass, field
from pathlib import Path

import jinja2
import pandas as pd

from . import drawing
from .calls import call_tables
from .looks import Looks
from .observations import headline, observations
from .pictures import Picture, heat_maps
from .published_pages import Page
from .records import TIMES
from .study import Study, conditions
from .table import Table, figure, rate, to_csv
from .tables import accuracy_table, failures_table, memory_table, rate_tables, summary_table, time_tables

TEMPLATES = Path(__file__).parent / "templates"
WHOLE = ("n", "workspace", "saved", "held")
FIGURES = (*(time for time in TIMES if time != "n"), "n", "flops", "bytes", "tflops", "ceiling_share", *WHOLE[1:])
NAMES = {**{time: f"{time}_s" for time in TIMES}, "n": "samples", "workspace": "workspace_bytes",
         "saved": "saved_bytes", "held": "memory_before_backward_bytes", "launches": "launches_s",
         "beyond": "beyond_launches_s", "pooled_beyond": "pooled_beyond_launches_s"}


@dataclass
class Report:
    study: Study
    pages: list[Page]
    pictures: list[Picture] = field(default_factory=list)
    panels: dict[str, list[str]] = field(default_factory=dict)  # SVG, by picture

    def __post_init__(self) -> None:
        study = self.study
        self.looks = Looks(study.implementations, study.own(study.all))
        self.headline, self.observations = headline(study), observations(study)
        self.accuracy, self.failures = accuracy_table(study), failures_table(study)
        self.conditions = conditions(study, study.all)
        self.summary, self.memory, self.times, self.heat_maps = None, None, call_tables(study), []
        if len(study.rows):
            self.summary, self.memory = summary_table(study), memory_table(study)
            self.times = [*rate_tables(study), *self.times, *time_tables(study)]
            self.heat_maps = list(heat_maps(study))

    def tables(self) -> list[Table]:
        pages = [table for page in self.pages for table in page.tables]
        return [one for one in (self.summary, self.memory, self.accuracy, self.failures, *self.times, *pages) if one]

    def of_page(self, page: Page | None) -> list[Picture]:
        """The pictures of a published report, or the general ones if `page` is None."""
        letter = page.report.letter if page else ""
        return [one for one in self.pictures
                if (one.name.startswith(f"published-{letter}") if letter else not one.name.startswith("published-"))]

    def first_pictures(self) -> list[Picture]:
        """The first picture of each kind; the others are behind a fold."""
        first: dict[str, Picture] = {}
        for one in self.of_page(None):
            first.setdefault(one.kind, one)
        return list(first.values())[:5]

    def shown_pictures(self) -> list[Picture]:
        """Pictures embedded in the page: the first ones, and the first of each published report. Others are files."""
        return [*self.first_pictures(), *(self.of_page(page)[0] for page in self.pages if self.of_page(page))]

    def styles(self) -> dict[str, str]:
        """The CSS styles of all panels with the names of their classes: written once instead of thousands of times."""
        found = re.findall(r'style="([^"]*)"', "".join(itertools.chain.from_iterable(self.panels.values())))
        return {look: f"s{n}" for n, look in enumerate(dict.fromkeys(found))}


def shorten(text: str, most: int = 120) -> str:
    return text if len(text) <= most else text[:most].rsplit(" ", 1)[0] + " \u2026"


def markdown_text(text: str) -> str:
    for mark in "\\|<`":
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())


def environment_facts(environment: dict) -> list[tuple[str, str]]:
    source = environment["source"]
    said = [(name, str(environment[name])) for name in ("machine", "date", "command", "version", "threads")]
    said.append(("commit", source.get("commit", "unknown") + (" (modified)" if source.get("dirty") else "")))
    said += [(name, str(value)) for name, value in sorted(environment["facts"].items())]
    return said + [(f"ceiling, {name}", f"{figure(value / 1e9)} GB/s" if "bandwidth" in name else rate(value))
                   for name, value in sorted(environment["ceilings"].items())]


def render(report: Report, name: str) -> str:
    is_page = name.endswith(".html.j2")
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=is_page, trim_blocks=True,
                                     lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters.update(md=markdown_text, short=shorten)
    styles = report.styles()
    class_of = lambda look: f'class="{styles[look[1]]}"'  # noqa: E731
    environment.filters["classes"] = lambda svg: re.sub(r'style="([^"]*)"', class_of, svg)
    environment.globals.update(
        styles=styles,
        shade=lambda ratio: "#" + "".join(f"{round(255 * part):02x}" for part in drawing.shade(ratio)[:3]),
        facts=environment_facts, variables=drawing.variables, looks=report.looks,
        style=(TEMPLATES / "page.css").read_text(encoding="utf-8"),
        script=(TEMPLATES / "page.js").read_text(encoding="utf-8"))
    return environment.get_template(name).render(report=report, study=report.study)


def rows_csv(study: Study) -> str:
    """Every row with the words and figures of its record, for spreadsheets and scripts."""
    keys = list(dict.fromkeys(key for case in study.all.case for key in case))
    last = ["worst_ratio_to_plain", "threads", "machine", "commit", "dirty", "timer", "launches_s", "beyond_launches_s",
            "pooled_beyond_launches_s", "problem"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*keys, "impl", "status", "reason", "flags", *(NAMES.get(name, name) for name in FIGURES), *last])
    for row, flags in zip(study.all.itertuples(), study.all["flags"]):
        errors = [error["ratio_to_plain"] for error in row.error.values() if error["ratio_to_plain"] is not None]
        writer.writerow([
            *(row.case.get(key, "") for key in keys), row.impl, row.status, row.reason, " ".join(flags),
            *(number(getattr(row, name), name in WHOLE) for name in FIGURES), number(max(errors, default=None)),
            row.threads, row.machine, row.commit, str(row.dirty).lower(), row.timer,
            *(number(getattr(row, name)) for name in ("launches", "beyond", "pooled_beyond")), row.problem])
    return text.getvalue()


def number(value: float | None, whole: bool = False) -> str:
    return "" if value is None or pd.isna(value) else f"{value:.0f}" if whole else f"{value:.9g}"


def files(report: Report) -> dict[str, str]:
    """Every file of a report but its pictures."""
    return {"rows.csv": rows_csv(report.study), **{f"tables/{one.id}.csv": to_csv(one) for one in report.tables()},
            "report.md": render(report, "report.md.j2"), "index.html": render(report, "report.html.j2")}
