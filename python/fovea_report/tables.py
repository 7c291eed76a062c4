"""The tables of a study. Nothing here knows an operation or a result: every word and figure comes from the rows."""

import math
import tomllib
from pathlib import Path
from typing import Callable, Iterable

import pandas as pd

from .study import (PASSES, Row, Study, conditions, configurations, groups, in_order, over_baseline, over_peers,
                    speed_ups, versus, where)
from .table import NOTHING, Cell, Column, Table, figure, identifier, rate, ratio, size, value_cell
from .vocabulary import Key, listed

OVER_PEERS = "over the fastest peer"
PEER = "torch.flash"  # the peer that the rates of a GPU are compared with
CAPTIONS = tomllib.loads((Path(__file__).parent / "captions.toml").read_text(encoding="utf-8"))


def captions(study: Study, name: str, title: str = "") -> tuple[str, str]:
    """Title and caption; `title` is the part that tells it from others of its name."""
    found, more = CAPTIONS[name], ["compared"] * study.compares + [*study.operations]
    said = found["caption"] + "".join(found.get(one, "") for one in more)
    return tuple(text.format(title=title, baseline=study.baseline) for text in (found["title"], said))


def captioned(study: Study, name: str, rows: pd.DataFrame, columns: list[Column], title: str = "") -> Table:
    """A table without rows."""
    heading, said = captions(study, name, title)
    return Table(identifier(f"{name}-{title}"), heading, f"{said} {conditions(study, rows)}.", columns)


def words(*heads: str) -> list[Column]:
    return [Column(head, number=False) for head in heads]


def status_cell(study: Study, row: Row) -> Cell:
    return Cell(study.vocabulary.status(row.status), style="word", note=row.reason)


def time_cell(study: Study, row: Row | None, scale: float = 1e3) -> Cell:
    """A time in ms, or in us with the scale 1e6; the status if there is no time."""
    if row is None:
        return NOTHING
    if not row.timed:
        return status_cell(study, row)
    style = "best" if getattr(row, "best", False) else "muted" if not row.ranked or row.noisy else ""
    mean, std, least = (figure(1e3 * seconds) for seconds in (row.mean, row.std, row.min))
    note = "; ".join([f"mean {mean}, std {std}, min {least} ms; {int(row.n)} samples", *row.flags])
    spread = f"\u00b1 {figure((row.q3 - row.q1) / 2 * scale, 2)}"
    detail = f"{spread} \u00b7 {rate(row.flops / row.median)}" if scale == 1e3 else spread
    return Cell(figure(row.median * scale) + study.vocabulary.marks(row.flags), row.median * scale, style, detail,
                note, getattr(row, "over_fastest", math.nan))


def ratio_cell(study: Study, pair: Row | None, *sides: Row | None) -> Cell:
    """The speed-up of a pair of `versus`, or the status of the first side that has no time."""
    if pair is None:
        return next((status_cell(study, row) for row in sides if row is not None and not row.timed), NOTHING)
    style = "muted" if not pair.counted else "loss" if pair.ratio < 1 else ""
    return Cell(ratio(pair.ratio), pair.ratio, style, note=f"over {pair.rival_impl}" if pair.kind == "library" else "")


def by_cell(pairs: pd.DataFrame) -> dict[tuple[int, str], Row]:
    return {(pair.at, pair.impl): pair for pair in pairs.itertuples()}


def varying(study: Study, rows: pd.DataFrame, without: Iterable[str] = ()) -> list[Key]:
    """The keys that tell these rows apart, the operation first, and the keys of the axis; of published figures, those
    of operations that were measured here."""
    keys = [Key("op", noun="operation")] if rows.op.nunique() > 1 else []
    for name in (one for one in rows.op.unique() if one in study.operations):
        cases = list(rows[rows.op == name].case)
        for key in study.operations[name].keys:
            values = {str(case.get(key.word, key.usual)) for case in cases}  # a pass may lack a key
            same = all(case.get(key.word) == case.get(key.follows) for case in cases)
            follows = key.follows and (key.kind == "number" or same)
            wanted = (len(values) > 1 or (key.shown == "axis" and values != {""})) and not follows
            if wanted and key.word not in {*without, *(known.word for known in keys)}:
                keys.append(key)
    return keys


def key_columns(keys: list[Key]) -> list[Column]:
    return [Column(key.head, number=key.kind != "word") for key in keys]


def key_cells(keys: list[Key], row: Row) -> list[Cell]:
    values = [row.case.get(key.word, "-") for key in keys]
    return [value_cell(key.values.get(str(value), value)) for key, value in zip(keys, values)]


def shape_table(study: Study, name: str, title: str, rows: pd.DataFrame, cell: Callable, unit: str, base: str,
                compared: list[str], over: str, without: tuple = ()) -> Table:
    """A line per shape: time or rate of each implementation, its speed-up over `base`, and over the fastest peer."""
    ups = by_cell(versus(rows, rows[rows.impl == base]))
    peers = by_cell(over_peers(rows))
    present, keys = study.present(rows), varying(study, rows, without)
    beside = study.present(rows[rows.impl.isin({impl for _, impl in peers})])
    table = captioned(study, name, rows, [
        *key_columns(keys), *(Column(one, unit) for one in present), *(Column(one, over) for one in compared),
        *(Column(one, OVER_PEERS) for one in beside)], title)
    for any_row, cells in configurations(rows):
        at, has_peer = any_row.at, any(row.kind == "peer" and row.possible for row in cells.values())
        table.rows.append(key_cells(keys, any_row) + [cell(study, cells.get(one)) for one in present]
            + [ratio_cell(study, ups.get((at, one)), cells.get(one), cells.get(base)) for one in compared]
            + [ratio_cell(study, peers.get((at, one)), cells.get(one) if has_peer else None) for one in beside])
    return table


def time_tables(study: Study) -> list[Table]:
    """One table per combination of pass, words, and sizes that are not columns. Those with one line may share one."""
    own, kinds = study.rows.title, (study.kind_title(row) for row in study.rows.itertuples())
    shared = pd.Series(kinds, own.index, dtype=object)
    alone = study.rows.groupby(own)["at"].transform("nunique").eq(1) & own.groupby(shared).transform("nunique").gt(2)
    return [shape_table(study, "time", title, rows, time_cell, "ms", study.baseline, [
        name for name in study.present(rows) if name != study.baseline], "speed-up")
            for title, rows in groups(study, study.rows.assign(table=own.mask(alone, shared)), "table")]


def rate_tables(study: Study) -> list[Table]:
    """Rates on a GPU: a line per shape, one table per operation, pass and type."""
    return [shape_table(study, "rate", name, rows, rate_cell, "TFLOP/s", PEER,
                        study.own(rows) if PEER in set(rows.impl) else [], f"speed-up over {PEER}", ("pass", "dtype"))
            for name, rows in groups(study, study.rows[study.rows.cpu_threads < 1], study.kind_title)]


def rate_cell(study: Study, row: Row | None) -> Cell:
    if row is None or not row.timed:
        return time_cell(study, row)
    tflops = row.flops / row.median / 1e12
    style = "muted" if not row.ranked else "best" if row.best else ""
    return Cell(figure(tflops), tflops, style, f"{figure(1e3 * row.median)} ms")


def summary_table(study: Study) -> Table:
    """One line per pass and implementation."""
    ups = over_baseline(study, study.rows)
    decided = set(study.rows[study.rows.best]["at"])
    compared = ["fastest in", "mean speed-up", "interval", "wins", "ties", "losses"] if study.compares else []
    table = captioned(study, "summary" if compared else "summary-of-one", study.rows, [
        *words("pass", "implementation"), *map(Column, ("cells", "timed", *compared, "median share of ceiling"))])
    for pass_ in passes_of(study.rows):
        for name, rows in study.each(study.rows[study.rows.pass_ == pass_]):
            pairs = ups[(ups.pass_ == pass_) & (ups.impl == name) & (ups.impl != study.baseline)]
            share = rows[rows.ranked].ceiling_share.astype(float).quantile(interpolation="higher")
            ranked = int((rows.timed & rows["at"].isin(decided)).sum())
            fastest = Cell(f"{int(rows.best.sum())} of {ranked}", float(rows.best.sum()))
            table.rows.append([
                Cell(study.word(pass_)), Cell(name), value_cell(len(rows)), value_cell(int(rows.timed.sum())),
                *([fastest, *speed_up_cells(pairs)] if compared else []),
                Cell("-") if math.isnan(share) else Cell(f"{100 * share:.0f} %", share)])
    return table


def passes_of(rows: pd.DataFrame) -> list[str]:
    return sorted(dict.fromkeys(rows.pass_), key=lambda pass_: [*PASSES, pass_].index(pass_))


def speed_up_cells(pairs: pd.DataFrame) -> list[Cell]:
    ups = speed_ups(pairs)
    if ups is None:
        return [Cell("-")] * 5
    return [Cell(ratio(ups.mean), ups.mean, "loss" if ups.mean < 1 else ""), Cell(ups.interval), value_cell(ups.wins),
            value_cell(ups.ties), value_cell(ups.losses, "loss" if ups.losses else "")]


def memory_table(study: Study) -> Table:
    """Passes share a row: the state between forward and backward belongs to the problem."""
    keys, names = varying(study, study.rows, ("pass",)), study.implementations
    table = captioned(study, "memory", study.rows, [
        *key_columns(keys), *(Column(name, what) for what in ("before backward", "workspace") for name in names)])
    problems: dict[tuple[str, str], dict[str, list[Row]]] = {}
    for row in in_order(study, study.rows).itertuples():
        problems.setdefault((row.op, study.operation(row).label(row.case)), {}).setdefault(row.impl, []).append(row)
    for cells in problems.values():
        of = [cells.get(name, []) for name in names]
        table.rows.append([*key_cells(keys, next(iter(cells.values()))[0]),
                           *(bytes_cell(study, [row for row in rows if row.pass_ != "fwd"], "held") for rows in of),
                           *(bytes_cell(study, rows, "workspace") for rows in of)])
    return table


def step_memory_table(study: Study) -> Table:
    """The peak of a model's step beyond weights, gradients and moments, and this library's as a share of it."""
    rows = study.rows[study.rows.timed & (study.rows.pass_ == "step") & study.rows.state.notna()]
    rows = in_order(study, rows.assign(beyond=rows.held + rows.workspace - rows.state))
    own, keys = rows["at"].map(rows[rows.kind == "library"].groupby("at").beyond.min()), varying(study, rows)
    table = captioned(study, "step-memory", rows, [*key_columns(keys), *words("implementation"),
                                                   Column("bytes"), Column("Fovea's share")])
    for row in rows.assign(share=own / rows.beyond).dropna(subset="share").itertuples():
        table.rows.append([*key_cells(keys, row), *map(Cell, (row.impl, size(row.beyond), f"{row.share:.2f}"))])
    return table


def bytes_cell(study: Study, rows: list[Row], what: str) -> Cell:
    known = [getattr(row, what) for row in rows if not pd.isna(getattr(row, what))]
    if known:
        return Cell(size(max(known)), float(max(known)), note=f"{max(known):.0f} bytes")
    return next((status_cell(study, row) for row in reversed(rows) if not row.timed), Cell("-"))


def accuracy_table(study: Study) -> Table:
    errors = pd.DataFrame([{"impl": row.impl, "type": row.case.get("dtype", "-"), "tensor": tensor, **error}
        for row in study.all.itertuples() for tensor, error in row.error.items()],
        columns=["impl", "type", "tensor", "rel_l2", "max_abs", "ratio_to_plain"])
    table = captioned(study, "accuracy", study.all, [*words("implementation", "type", "tensor"), *map(
        Column, ("cells checked", "relative error", "largest error", "ratio to plain"))])
    errors["impl"] = pd.Categorical(errors.impl, study.implementations)
    for (name, kind, tensor), group in errors.groupby(["impl", "type", "tensor"], observed=True):
        relative, largest, plain = group[["rel_l2", "max_abs", "ratio_to_plain"]].astype(float).max()
        table.rows.append([*map(Cell, (name, kind, tensor)), value_cell(len(group)), Cell(f"{relative:.1e}", relative),
                           Cell(f"{largest:.1e}", largest), Cell(figure(plain), plain)])
    return table


def failures_table(study: Study) -> Table:
    rows = [[status_cell(study, row), Cell(row.impl), Cell(where(study, row), note=row.problem), Cell(row.reason)]
            for row in study.all.itertuples() if not row.timed]
    return Table("without-a-time", "Cells without a time",
                 "Every row without status ok, with the recorded reason; whole problem lines are in rows.csv.",
                 words("status", "implementation", "problem", "reason"), rows)
