"""The sentences of a report: rules applied to the rows. No result is written by hand."""

from typing import Iterator

import pandas as pd

from .calls import said_of_calls
from .study import SpeedUps, Study, fit_power_laws, groups, over_baseline, plural, row_with, speed_ups, versus, where
from .table import rate, ratio, size
from .tables import passes_of
from .vocabulary import listed, short

MADE_OF = {"model": ("model", "layers", "width", "heads", "hidden", "vocabulary")}  # what makes a model's parameters


def headline(study: Study) -> str:
    names = f"{plural(len(study.implementations), 'implementation')}: {', '.join(study.implementations)}."
    if study.rows.empty:
        return f"{plural(len(study.calls), 'cell')} of --timing graph or host, {names}"
    return " ".join([f"{plural(study.rows['at'].nunique(), 'configuration')}, {names}", *winners(study)[:1]])


def winners(study: Study) -> list[str]:
    """Who won the configurations that the same set of implementations has times for; the largest set first. The
    library's own implementations are one, Fovea, where it ran one, mostly by its choice."""
    rows = study.rows[study.rows.timed]
    own = rows[rows.kind == "library"]
    if own.impl.nunique() > 1:
        alone = own.index[own.groupby("at").impl.transform("nunique") == 1]
        rows = rows.assign(impl=rows.impl.where(~rows.index.isin(alone), "Fovea"))
    contenders = rows.groupby("at").impl.agg(frozenset)
    said = []
    for names, cells in contenders[contenders.map(len) > 1].value_counts().items():
        wins = rows[rows.best & rows["at"].map(contenders).map(names.__eq__)].impl.value_counts()
        won = f": {', '.join(f'{name} in {n}' for name, n in wins.items())}" if len(wins) else ""
        shared = [name for name in [*study.implementations, "Fovea"] if name in names]
        said.append(f"In {wins.sum()} of the {plural(cells, 'configuration')} of {', '.join(shared[:-1])} and "
                    f"{shared[-1]}, one implementation is clearly faster than every other{won}.")
    return said


def observations(study: Study) -> list[str]:
    if study.rows.empty:
        return [*said_of_calls(study), *failures(study)]
    rules = (over_the_baseline, against_the_best, growth, memory, ceilings, accuracy, said_of_calls, failures, flags)
    return [*winners(study)[1:6], *(said for rule in rules for said in rule(study))]


def verdicts(ups: SpeedUps) -> str:
    losses = f"{ups.losses} {'loss' if ups.losses == 1 else 'losses'}"
    return (f"geometric mean speed-up {ratio(ups.mean)} (95 % interval {ups.interval}) over "
            f"{plural(ups.pairs, 'configuration')}: {plural(ups.wins, 'win')}, {losses}, {plural(ups.ties, 'tie')}")


def extremes(study: Study, pairs: pd.DataFrame, said: str = "") -> str:
    if len(pairs) == 1:
        return ""
    least, most = row_with("min", "ratio", pairs), row_with("max", "ratio", pairs)
    return (f"; smallest {ratio(least.ratio)} ({said.format(least)}{where(study, least)}), "
            f"largest {ratio(most.ratio)} ({where(study, most)})")


def over_the_baseline(study: Study) -> Iterator[str]:
    """Losses as plainly as wins."""
    ups = over_baseline(study, study.rows)
    for name in (one for one in study.own(study.rows) or study.implementations if one != study.baseline):
        for pass_ in passes_of(study.rows):
            own = ups[(ups.impl == name) & (ups.pass_ == pass_)]
            if found := speed_ups(own):
                yield f"{name} over {study.baseline}, {study.word(pass_)}: {verdicts(found)}{extremes(study, own)}."


def against_the_best(study: Study) -> Iterator[str]:
    """The harder comparison: with the fastest other implementation of each configuration."""
    for name, own in study.each(study.rows[study.rows.kind == "library"]):
        pairs = versus(own, study.rows[study.rows.kind != "library"])
        if found := speed_ups(pairs):
            span = extremes(study, pairs, "{0.rival_impl}, ")
            yield f"{name} over the fastest other implementation: {verdicts(found)}{span}."


def curves(study: Study, rows: pd.DataFrame):
    """Groups of rows that differ only in length, by title; or only in the parameters, and in what makes them."""
    return groups(study, rows, lambda row: listed(
        row.title, study.operation(row).title(row.case, ("column",), MADE_OF.get(row.op, ()))))


def growth(study: Study) -> list[str]:
    """The fitted exponents of each pass, in the table that reaches farthest."""
    found: dict[str, tuple[float, str]] = {}
    for title, rows in curves(study, study.rows):
        pass_ = rows.pass_.iloc[0]
        laws = fit_power_laws(rows)
        reach = max((law.end for law in laws.values()), default=0)
        if reach > found.get(pass_, (0, ""))[0]:
            text = ", ".join(f"{name} n^{laws[name].exponent:.2f}" for name in study.present(rows) if name in laws)
            start, along = min(law.start for law in laws.values()), study.operations[rows.op.iloc[0]].along
            noisy = "; some of these times are noisy" if any(law.noisy for law in laws.values()) else ""
            found[pass_] = reach, (f"Time from {along} {short(start)} to {short(reach)} ({title}) grows as {text}"
                                   f"{noisy}.")
    return [said for _, said in found.values()]


def memory(study: Study) -> Iterator[str]:
    """The memory held between forward and backward, at the problem where the baseline holds most."""
    rows = study.rows[study.rows.timed & (study.rows.pass_ != "fwd") & study.rows.held.notna()]
    base = rows[rows.impl == study.baseline].set_index("at").held
    rows = rows[(rows.kind == "library") & (rows.impl != study.baseline) & rows["at"].isin(base.index)]
    for name, own in study.each(rows.assign(base=rows["at"].map(base))):
        most = row_with("max", "base", own)
        yield (f"Before backward {study.baseline} holds {size(most.base)}, {ratio(most.base / most.held)} the "
               f"{size(most.held)} of {name}, at {study.label(most)}.")


def ceilings(study: Study) -> Iterator[str]:
    rows = study.rows[(study.rows.kind == "library") & study.rows.ranked & study.rows.ceiling_share.notna()]
    for name, own in study.each(rows):
        best = row_with("max", "ceiling_share", own)
        above = "; above 100 %: the probes ran slower than this kernel" if best.ceiling_share > 1 else ""
        yield (f"{name} reaches at most {100 * best.ceiling_share:.0f} % of the ceiling measured in the same run "
               f"({rate(best.flops / best.median)}; {where(study, best)}){above}.")


def accuracy(study: Study) -> Iterator[str]:
    """The error over the error of a plain evaluation in the same type, where it is largest."""
    for name, own in study.each(study.rows[(study.rows.kind == "library") & study.rows.error.map(bool)]):
        worst, tensor, row = max(((error["ratio_to_plain"] or 0.0, tensor, row) for row in own.itertuples()
                                  for tensor, error in row.error.items()), key=lambda one: one[0])
        yield (f"The error of {name} is at most {ratio(worst)} the error of a plain evaluation in the same type "
               f"({tensor}, {where(study, row)}).")


def failures(study: Study) -> Iterator[str]:
    for status in (word for word in study.vocabulary.statuses if word != "ok"):
        for name, rows in study.each(study.all[study.all.status == status]):
            shortest = row_with("min", "x", rows)
            reason = f" ({shortest.reason})" if shortest.reason else ""
            yield (f"{name}: {study.vocabulary.status(status)} in {plural(len(rows), 'cell')}, first at "
                   f"{where(study, shortest)}{reason}.")


def flags(study: Study) -> Iterator[str]:
    for flag in (one for one in study.vocabulary.flags if one.mark):
        if n := sum(flag.word in flags_ for flags_ in study.rows["flags"]):
            counted = "" if flag.ranked else "; shown, but neither ranked nor counted above"
            yield f"{n} of {plural(len(study.rows), 'cell')} flagged {flag.word}: {flag.help}{counted}."
