"""Tables as data: cells with figures in full precision, and how figures are written."""

import math
import re
from dataclasses import dataclass, field
from typing import Any

import pandas as pd


@dataclass(frozen=True)
class Cell:
    text: str
    value: float | None = None  # full precision, for sorting and for CSV
    style: str = ""  # best, loss, muted (not ranked, or not measured) or word (a status in place of a figure)
    detail: str = ""  # a second, smaller line
    note: str = ""  # shown while the pointer rests on the cell
    shade: float = math.nan  # time over the fastest time, where cells are shaded by it

    @property
    def exact(self) -> str:
        """The value in full precision; empty if there is none."""
        return "" if self.value is None or math.isnan(self.value) else f"{self.value:.9g}"


@dataclass(frozen=True)
class Column:
    head: str
    unit: str = ""
    number: bool = True

    @property
    def title(self) -> str:
        return f"{self.head} ({self.unit})" if self.unit else self.head


@dataclass
class Table:
    id: str  # unique in a report; the name of its CSV file
    title: str
    conditions: str = ""
    columns: list[Column] = field(default_factory=list)
    rows: list[list[Cell]] = field(default_factory=list)

    def csv(self) -> str:
        """Figures in full precision, words where there is none."""
        cells = [[cell.exact or cell.text for cell in row] for row in self.rows]
        return pd.DataFrame(cells, columns=[column.title for column in self.columns]).to_csv(index=False)


NOTHING = Cell("-", style="muted")


def value_cell(value: Any, style: str = "") -> Cell:
    """A value of a problem line, or a count."""
    return Cell(str(value), float(value) if isinstance(value, (int, float)) else None, style)


def identifier(title: str) -> str:
    return re.sub(r"[^A-Za-z0-9]+", "-", title).strip("-")


def figure(value: float, digits: int = 3) -> str:
    """So many significant digits, never an exponent: 0.0123, 1.23, 12.3, 1235."""
    if not math.isfinite(value):
        return "-"
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    return f"{value:.{min(max(digits - 1 - magnitude, 0), 9)}f}"


def ratio(value: float) -> str:
    return f"{figure(value)}\u00d7"


def size(bytes_: float) -> str:
    """10^6 bytes are 1 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if bytes_ < 1000:
            return f"{bytes_:.0f} B" if unit == "B" else f"{figure(bytes_)} {unit}"
        bytes_ /= 1000
    return f"{figure(bytes_)} TB"


def rate(flops_per_s: float) -> str:
    return f"{figure(flops_per_s / 1e12)} TFLOP/s" if flops_per_s >= 1e12 else f"{figure(flops_per_s / 1e9)} GFLOP/s"
