"""Tables and sentences of calls in a graph or in a row, and of the host time of a call: not times of single runs."""

from typing import Iterator

import pandas as pd

from .study import Study, configurations, in_order, plural, versus
from .table import NOTHING, Cell, Column, Table, figure
from .tables import by_cell, captioned, key_cells, key_columns, ratio_cell, time_cell, varying
from .vocabulary import listed

NAMES = {"cuda_graph": "call-in-a-graph", "cuda_eager": "calls-in-a-row", "cuda_host": "host-of-a-call"}
WORDS = {"cuda_graph": "In a graph of calls,", "cuda_eager": "Called in a row,", "cuda_host": "On the host, a call of"}
LAUNCHES = {"launches": "launches, us", "beyond": "beyond the launches, us",
            "pooled_beyond": "beyond the launches with the pool, us"}


def ways(study: Study) -> list[tuple[str, pd.DataFrame]]:
    """Rows of one operation and way of timing on one machine."""
    rows = in_order(study, study.calls)
    return [(timer, group) for (timer, _, _), group in rows.groupby(["timer", "setting", "op"])]


def others_beaten(rows: pd.DataFrame) -> pd.DataFrame:
    """This library's rows against the fastest other implementation."""
    return versus(rows[(rows.kind == "library") & rows.ranked], rows[(rows.kind != "library") & rows.ranked])


def call_table(study: Study, timer: str, rows: pd.DataFrame) -> Table:
    present, own = study.present(rows), study.own(rows) if timer != "cuda_host" else []
    launching = study.present(rows[rows.launches.notna()])
    pairs, keys = by_cell(others_beaten(rows)), varying(study, rows)
    title = listed(study.op_word(rows.op.iloc[0]), rows.setting.iloc[0])
    table = captioned(study, NAMES[timer], rows, [*key_columns(keys), *(Column(name, "us") for name in present),
        *(Column(name, "over the fastest other") for name in own),
        *(Column(name, head) for name in launching for head in LAUNCHES.values())], f" ({title})" if title else "")
    for any_row, cells in configurations(rows):
        spent = [getattr(cells[name], part) if name in cells and cells[name].timed else None
                 for name in launching for part in LAUNCHES]
        launches = [NOTHING if pd.isna(seconds) else Cell(figure(seconds * 1e6), seconds * 1e6) for seconds in spent]
        table.rows.append(key_cells(keys, any_row) + [time_cell(study, cells.get(name), 1e6) for name in present]
                          + [ratio_cell(study, pairs.get((any_row.at, name))) for name in own] + launches)
    return table


def said_of_calls(study: Study) -> Iterator[str]:
    """The range of the times, and how often another implementation is faster. Each pass has its table."""
    for (timer, _), rows in in_order(study, study.calls).groupby(["timer", "setting"]):
        pairs = others_beaten(rows)
        lost = pairs[pairs.counted & (pairs.ratio < 1)]
        for name, own in study.each(rows[(rows.kind == "library") & rows.timed]):
            least, most = (figure(1e6 * own["median"].agg(end)) for end in ("min", "max"))
            others = f"; another implementation is faster in {sum(lost.impl == name)}" if timer != "cuda_host" else ""
            yield f"{WORDS[timer]} {name} takes {least} to {most} us in {plural(len(own), 'cell')}{others}."
