"""A report of trainings: loss curves, and how they ended."""

import csv
import io
import math
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

import jinja2

from . import drawing
from . import looks as style
from .looks import COLOURS, plt
from .records import read_file
from .render import TEMPLATES, environment_facts, markdown_text
from .vocabulary import Refused

LAST = 100  # steps whose mean loss is told
SMOOTH = 20  # steps of the moving mean that is drawn
COLUMNS = ("step", "loss", "held_out", "trigram", "learning_rate", "gradient_norm", "seconds", "bytes")


@dataclass
class Training:
    name: str
    steps: list[dict[str, Any]]  # in order; of each step the last record
    environments: list[dict[str, Any]]
    warnings: list[str]

    @property
    def model(self) -> str:
        return self.environments[-1]["facts"].get("model", "a model")

    def evaluated(self) -> list[dict[str, Any]]:
        return [one for one in self.steps if one.get("held_out") is not None]


def trainings_of(paths: list[Path]) -> list[Training]:
    """The trainings, one of each file; none if no file holds a step."""
    holds = [holds_steps(path) for path in paths]
    if any(holds) and not all(holds):
        raise Refused(f"{paths[holds.index(False)]}: holds no training, but other files do; make a report of each kind")
    return [training_of(path) for path in paths] if any(holds) else []


def holds_steps(path: Path) -> bool:
    """Whether the schema stands in the file. What is no record is refused later, by its position."""
    try:
        return b'"fovea.train/1"' in path.read_bytes()
    except OSError as failed:
        raise Refused(f"{path}: {failed.strerror}") from None


def training_of(path: Path) -> Training:
    rows, environments, warning = read_file(path)
    steps = {record["step"]: record for _, record in rows if record["schema"] == "fovea.train/1"}
    if len(steps) == 0 or any(record["schema"] != "fovea.train/1" for _, record in rows):
        raise Refused(f"{path}: holds rows beside steps of a training, which have a report of their own")
    return Training(path.absolute().parent.name, [steps[one] for one in sorted(steps)], environments,
                    [warning] if warning else [])


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def sentences(one: Training) -> list[str]:
    losses = [step["loss"] for step in one.steps]
    seconds, count = sum(step["seconds"] for step in one.steps), sum(step["bytes"] for step in one.steps)
    last = losses[-LAST:]
    said = [f"{one.name}: training loss from {losses[0]:.3f} in step {one.steps[0]['step']} to {mean(last):.3f}, the "
            f"mean of the last {len(last)} of {len(losses)} steps (nats a byte; equally likely bytes have "
            f"{math.log(256):.3f})."]
    if evaluated := one.evaluated():
        end = evaluated[-1]
        verdict = "below" if end["held_out"] < end["trigram"] else "not below"
        said.append(f"{one.name}: held-out loss {end['held_out']:.3f} after step {end['step']}, {verdict} the "
                    f"{end['trigram']:.3f} of a trigram count model.")
    rate = f" ({count / seconds:,.0f} a second)" if seconds > 0 else ""
    said.append(f"{one.name}: {count:,} bytes of text in {seconds:,.0f} s{rate}; {one.model}.")
    return said


def headline(found: list[Training]) -> str:
    return "A training" if len(found) == 1 else f"{len(found)} trainings"


def moving_mean(values: list[float]) -> list[float]:
    return [mean(values[max(0, n + 1 - SMOOTH):n + 1]) for n in range(len(values))]


def draw(found: list[Training], path: Path) -> str:
    """Writes the PNG of all loss curves, and returns the same as SVG for the page."""
    style.apply()
    png = curves(found)
    drawing.save_png(png, path)
    text = StringIO()
    figure = curves(found)
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    plt.close(figure)
    return drawing.small(text.getvalue(), "loss")


def curves(found: list[Training]):
    figure, axes = plt.subplots(figsize=(8, 4.4))
    for number, one in enumerate(found):
        colour, prefix = COLOURS[number % len(COLOURS)], f"{one.name}: " if len(found) > 1 else ""
        steps, losses = [step["step"] for step in one.steps], [step["loss"] for step in one.steps]
        axes.plot(steps, losses, color=colour, alpha=0.25, linewidth=0.8)
        axes.plot(steps, moving_mean(losses), color=colour, label=f"{prefix}training, mean of {SMOOTH} steps")
        if evaluated := one.evaluated():
            axes.plot([step["step"] for step in evaluated], [step["held_out"] for step in evaluated], color=colour,
                      marker="o", linestyle=(0, (4, 2)), label=f"{prefix}held out")
            axes.axhline(evaluated[-1]["trigram"], color=style.SOFT, linestyle=(0, (1.5, 1.5)), linewidth=1.2,
                         label=f"{prefix}trigram count model, held out")
    axes.set_xlabel("step")
    axes.set_ylabel("nats a byte")
    axes.legend()
    figure.tight_layout()
    return figure


def steps_csv(found: list[Training]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["training", *COLUMNS])
    for one in found:
        writer.writerows([one.name, *("" if step.get(key) is None else step[key] for key in COLUMNS)]
                         for step in one.steps)
    return text.getvalue()


def files(found: list[Training], svg: str) -> dict[str, str]:
    """Every file of the report but its picture."""
    def render(name: str) -> str:
        is_page = name.endswith(".html.j2")
        environment = jinja2.Environment(loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=is_page,
                                         trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined)
        environment.filters["md"] = markdown_text
        return environment.get_template(name).render(
            headline=headline(found), trainings=found, sentences=sentences, svg=svg, facts=environment_facts,
            variables=drawing.variables(), style=(TEMPLATES / "page.css").read_text(encoding="utf-8"))
    return {"steps.csv": steps_csv(found), "report.md": render("training.md.j2"),
            "index.html": render("training.html.j2")}
