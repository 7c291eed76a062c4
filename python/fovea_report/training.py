"""A report of trainings: loss curves, and how they ended."""

import itertools
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable

import pandas as pd
from matplotlib.figure import Figure

from . import drawing
from . import looks as style
from .records import read_file
from .render import render
from .study import plural
from .table import Cell, Column, Table, identifier, value_cell
from .vocabulary import Refused

STEP = "fovea.train/1"  # the schema of a step
LAST = 100  # steps whose mean loss is told
SMOOTH = 20  # steps of the moving mean that is drawn
COLUMNS = ["step", "loss", "held_out", "trigram", "learning_rate", "gradient_norm", "seconds", "bytes"]


@dataclass
class Training:
    name: str
    steps: pd.DataFrame  # in order; of each step the last record
    environments: list[dict[str, Any]]
    warning: str

    @property
    def evaluated(self) -> pd.DataFrame:
        return self.steps[self.steps.held_out.notna()]

    def table(self) -> Table:
        rows = [[value_cell(one.step), *(Cell(f"{loss:.3f}", loss) for loss in (one.loss, one.held_out, one.trigram))]
                for one in self.evaluated.itertuples()]
        return Table(f"held-out-{identifier(self.name)}", f"{self.name}: held-out losses", "Losses in nats a byte.",
                     [*map(Column, ("step", "training, this step", "held out", "trigram count model"))], rows)

    def sentences(self) -> list[str]:
        steps, first, last = self.steps, self.steps.iloc[0], self.steps.loss.tail(LAST)
        seconds, count = steps.seconds.sum(), steps.bytes.sum()
        said = [f"training loss from {first.loss:.3f} in step {first.step:.0f} to {last.mean():.3f}, the mean of the "
                f"last {len(last)} of {len(steps)} steps (nats a byte; equally likely bytes have {math.log(256):.3f})"]
        for end in self.evaluated.tail(1).itertuples():
            verdict = "below" if end.held_out < end.trigram else "not below"
            said.append(f"held-out loss {end.held_out:.3f} after step {end.step}, {verdict} the {end.trigram:.3f} of a "
                        "trigram count model")
        rate = f" ({count / seconds:,.0f} a second)" if seconds > 0 else ""
        model = self.environments[-1]["facts"].get("model", "a model")
        said.append(f"{count:,} bytes of text in {seconds:,.0f} s{rate}; {model}")
        return [f"{self.name}: {one}." for one in said]


def trainings_of(paths: list[Path]) -> list[Training]:
    """The trainings, one of each file; none if the first file holds no step."""
    holds_steps = any(record["schema"] == STEP for _, record in read_file(paths[0])[0])
    return [training_of(path) for path in paths] if holds_steps else []


def training_of(path: Path) -> Training:
    rows, environments, warning = read_file(path)
    if {record["schema"] for _, record in rows} != {STEP}:
        raise Refused(f"{path}: not only steps of a training, which have a report without other rows")
    steps = {record["step"]: record for _, record in rows}
    table = pd.DataFrame([steps[one] for one in sorted(steps)], columns=COLUMNS)
    return Training(path.absolute().parent.name, table, environments, warning)


def moving_mean(values: pd.Series) -> pd.Series:
    return values.rolling(SMOOTH, min_periods=1).mean()


def curves(found: list[Training], inches: tuple[float, float]) -> Figure:
    """Trainings on the same text share the line of the trigram count model."""
    figure = Figure(figsize=inches)
    axes = figure.subplots()
    for colour, one in zip(itertools.cycle(style.COLOURS), found):
        steps, evaluated, prefix = one.steps, one.evaluated, f"{one.name}: " if len(found) > 1 else ""
        axes.plot(steps.step, steps.loss, color=colour, alpha=0.5, linewidth=0.8)
        axes.plot(steps.step, moving_mean(steps.loss), color=colour,
                  label=f"{prefix}training, mean of the last {SMOOTH} steps")
        if len(evaluated):
            axes.plot(evaluated.step, evaluated.held_out, color=colour, marker="o", linestyle=(0, (4, 2)),
                      label=f"{prefix}held out")
    for loss in dict.fromkeys(loss for one in found for loss in one.evaluated.trigram.tail(1)):
        axes.axhline(loss, color=style.SOFT, linestyle=(0, (1.5, 1.5)), linewidth=1.2,
                     label="trigram count model, held out")
    axes.set_xlabel("step")
    axes.set_ylabel("loss, nats a byte")
    rows = style.rows_of_legend(figure, axes.get_legend_handles_labels()[0], 1)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.21 * rows / inches[1]))
    return figure


class Report:
    """The page, Markdown, CSV and picture of trainings."""

    description = "Losses in nats a byte against the step. Faint: each step. Dots: all held-out bytes."

    def __init__(self, found: list[Training]) -> None:
        self.trainings, self.svg = found, ""
        self.warnings = [one.warning for one in found if one.warning]
        self.headline = plural(len(found), "training run")
        self.observations = [said for one in found for said in one.sentences()]

    @style.applied()
    def draw(self, add: Callable[[str], Path]) -> None:
        drawing.save_png(curves(self.trainings, (8, 4.4)), add("pictures/loss.png"))
        self.svg = drawing.svg_of(curves(self.trainings, (4.3, 4.3)), "loss")

    def files(self) -> dict[str, str]:
        """Every file of the report but its picture."""
        steps = pd.concat([one.steps.assign(training=one.name) for one in self.trainings])
        return {"steps.csv": steps[["training", *COLUMNS]].to_csv(index=False),
                "report.md": render("training.md.j2", report=self),
                "index.html": render("training.html.j2", report=self)}
