"""Tables and sentences of calls in a graph, and of the host time of a call. These are not times of single runs."""

import math
from typing import Iterator

import pandas as pd

from .study import Study, at_most, configurations, in_order, plural, versus, where
from .table import NOTHING, Cell, Column, Table, figure
from .tables import by_cell, captioned, key_cells, key_columns, passes_of, ratio_cell, time_cell, varying

NAMES = {"cuda_graph": "call-in-a-graph", "cuda_host": "host-of-a-call"}
LAUNCHES = {"launches": "launches, us", "beyond": "beyond the launches, us",
            "pooled_beyond": "beyond the launches with the pool, us"}


def ways(study: Study) -> list[tuple[str, pd.DataFrame]]:
    """Rows of one way of timing on one machine."""
    rows = in_order(study, study.calls)
    return [(timer, group) for (timer, _), group in rows.groupby(["timer", "setting"])]


def others_beaten(rows: pd.DataFrame) -> pd.DataFrame:
    """This library's rows against the fastest other implementation."""
    return versus(rows[(rows.kind == "library") & rows.ranked], rows[(rows.kind != "library") & rows.ranked])


def duration_cell(seconds: float | None) -> Cell:
    return NOTHING if seconds is None or math.isnan(seconds) else Cell(figure(seconds * 1e6), seconds * 1e6)


def call_table(study: Study, timer: str, rows: pd.DataFrame) -> Table:
    present = study.present(rows)
    own = study.own(rows) if timer == "cuda_graph" else []
    launching = study.present(rows[rows.launches.notna()])
    pairs, keys, setting = by_cell(others_beaten(rows)), varying(study, rows), rows.setting.iloc[0]
    table = captioned(study, NAMES[timer], rows, [
        *key_columns(keys), *(Column(name, "us") for name in present),
        *(Column(name, "over the fastest other") for name in own),
        *(Column(name, head) for name in launching for head in LAUNCHES.values())], f" ({setting})" if setting else "")
    for any_row, cells in configurations(rows):
        launches = [duration_cell(getattr(cells[name], part)) if name in cells and cells[name].timed else NOTHING
                    for name in launching for part in LAUNCHES]
        table.rows.append(key_cells(keys, any_row) + [time_cell(study, cells.get(name), 1e6) for name in present]
                          + [ratio_cell(study, pairs.get((any_row.at, name))) for name in own] + launches)
    return table


def call_tables(study: Study) -> list[Table]:
    return [call_table(study, timer, rows) for timer, rows in ways(study)]


def said_of_calls(study: Study) -> Iterator[str]:
    for timer, rows in ways(study):
        for name in study.own(rows):
            timed = rows[(rows.impl == name) & rows.timed]
            if timer == "cuda_graph":
                yield from said_of_graph(study, name, timed, others_beaten(rows))
            elif len(timed):
                yield said_of_host(study, name, timed)


def microseconds(seconds: float) -> str:
    return f"{figure(seconds * 1e6)} us"


def said_of_host(study: Study, name: str, rows: pd.DataFrame) -> str:
    text = (f"A call of {name} keeps the host busy for at most {microseconds(rows['median'].max())} in "
            f"{plural(len(rows), 'cell')}")
    if rows.beyond.notna().any():
        worst = at_most(rows, "beyond")
        text += f"; beyond its kernel launches, at most {microseconds(worst.beyond)} ({where(study, worst)})"
    if rows.pooled_beyond.notna().any():
        text += f"; with the library's workspace pool, at most {microseconds(rows.pooled_beyond.max())}"
    return f"{text}."


def said_of_graph(study: Study, name: str, rows: pd.DataFrame, pairs: pd.DataFrame) -> Iterator[str]:
    lost = pairs[(pairs.impl == name) & pairs.counted & (pairs.ratio < 1)]
    for pass_ in passes_of(rows):
        times, slower = rows[rows.pass_ == pass_]["median"], (lost.pass_ == pass_).sum()
        verdict = f"slower than another implementation in {slower} of them" if slower else (
            "never slower than another implementation")
        yield (f"In a graph of dependent calls {name} takes {figure(times.min() * 1e6)} to {microseconds(times.max())} "
               f"{study.word(pass_)} in {plural(len(times), 'cell')}, {verdict}.")
