"""A whole report as Markdown, as one page, and as CSV."""

import math
import multiprocessing
import os
import re
import signal
import threading
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any, Callable

import jinja2
import pandas as pd
from matplotlib.colors import to_hex

from . import drawing, tables
from .calls import call_table, ways
from .looks import Looks
from .observations import headline, observations
from .pictures import Picture, pictures_of
from .published_pages import Page
from .records import TIMES
from .study import Study, conditions
from .table import Table, figure, rate

TEMPLATES = Path(__file__).parent / "templates"
WHOLE = ["n", "workspace", "saved", "held"]
FIGURES = [*TIMES, "flops", "bytes", "tflops", "ceiling_share", *WHOLE[1:]]
COLUMNS = ["impl", "status", "reason", "flags", *FIGURES, "worst_ratio_to_plain", "threads", "machine", "commit",
           "dirty", "timer", "launches", "beyond", "pooled_beyond", "problem"]
NAMES = {**{time: f"{time}_s" for time in TIMES}, "n": "samples", "workspace": "workspace_bytes",
         "saved": "saved_bytes", "held": "memory_before_backward_bytes", "launches": "launches_s",
         "beyond": "beyond_launches_s", "pooled_beyond": "pooled_beyond_launches_s"}


class Report:
    """The page, Markdown, CSV and pictures of a study, with the pages of published reports."""

    def __init__(self, study: Study, pages: list[Page]) -> None:
        self.study, self.pages = study, pages
        self.pictures: list[Picture] = []
        self.classes: dict[str, str] = {}  # of panels: CSS to name
        self.looks = Looks(study.implementations, study.own(study.all))
        self.warnings, self.headline, self.observations = study.warnings, headline(study), observations(study)
        self.accuracy, self.failures = tables.accuracy_table(study), tables.failures_table(study)
        self.conditions = conditions(study, study.all)
        self.summary, self.memory, self.times = None, [], [call_table(study, *one) for one in ways(study)]
        if len(study.rows):
            self.summary = tables.summary_table(study)
            self.memory = [tables.memory_table(study), tables.step_memory_table(study)]
            self.times = [*tables.rate_tables(study), *self.times, *tables.time_tables(study)]

    def tables(self) -> list[Table]:
        found = [self.summary, *self.memory, self.accuracy, self.failures, *self.times]
        return [one for one in found + [table for page in self.pages for table in page.tables] if one and one.rows]

    def of_page(self, page: Page | None) -> list[Picture]:
        """The pictures of a published report, or the general ones if `page` is None."""
        return [one for one in self.pictures if one.letter == (page.report.letter if page else "")]

    def first_pictures(self) -> list[Picture]:
        """Of each kind the picture with the most implementations (the earlier of equals); others are behind a fold."""
        shown = {one.kind: one.name for one in sorted(reversed(self.of_page(None)), key=lambda one: len(one.names()))}
        return [one for one in self.of_page(None) if shown[one.kind] == one.name][:5]

    def draw(self, add: Callable[[str], Path]) -> None:
        """The page embeds the first pictures, and the first of each published report. The others are only files."""
        self.pictures = pictures_of(self.study, self.pages)
        embedded = [*self.first_pictures(), *(one for page in self.pages for one in self.of_page(page)[:1])]
        with ProcessPoolExecutor(initializer=begin) as pool:
            drawn = [pool.submit(drawing.draw, one, self.looks, add(f"pictures/{one.name}.png"), one in embedded)
                     for one in self.pictures]
            for picture, one in zip(self.pictures, drawn):
                picture.svg = [re.sub(r'style="([^"]*)"', self.as_class, svg) for svg in one.result()]

    def as_class(self, style: re.Match) -> str:
        """Each style of a panel is written once, as a class, instead of thousands of times."""
        return f'class="{self.classes.setdefault(style[1], f"s{len(self.classes)}")}"'

    def files(self) -> dict[str, str]:
        """Every file of the report but its pictures."""
        values = {"report": self, "study": self.study}
        return {"rows.csv": rows_csv(self.study), **{f"tables/{one.id}.csv": one.csv() for one in self.tables()},
                "report.md": render("report.md.j2", **values), "index.html": render("report.html.j2", **values)}


def begin() -> None:
    """Prepares a process that draws: it would otherwise continue after a KeyboardInterrupt, and outlive its parent."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=lambda: (multiprocessing.parent_process().join(), os._exit(1)), daemon=True).start()


def markdown_text(text: str) -> str:
    return " ".join(re.sub(r"[\\|<`]", r"\\\g<0>", text).split())


def render(name: str, **values: Any) -> str:
    """A template with its values; pages are escaped."""
    environment = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=name.endswith(".html.j2"),
                                     trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
    environment.filters["md"] = markdown_text
    environment.globals.update(shade=lambda ratio: to_hex(drawing.shade(ratio)), rate=rate, figure=figure,
                               variables=drawing.variables)
    return environment.get_template(name).render(values)


def rows_csv(study: Study) -> str:
    """Every row with the words and figures of its record, for spreadsheets and scripts."""
    rows = study.all
    errors = [[one["ratio_to_plain"] for one in of.values() if one["ratio_to_plain"] is not None] for of in rows.error]
    table = rows.assign(flags=rows["flags"].map(" ".join), dirty=rows.dirty.map(lambda dirty: str(dirty).lower()),
                        worst_ratio_to_plain=[max(of, default=math.nan) for of in errors])
    table = table.astype({**dict.fromkeys(FIGURES, float), **dict.fromkeys(WHOLE, "Int64")})
    cases = pd.DataFrame(list(rows.case), rows.index, dtype=object)  # figures as their problem lines have them
    return pd.concat([cases, table[COLUMNS].rename(columns=NAMES)], axis=1).to_csv(index=False, float_format="%.9g")
