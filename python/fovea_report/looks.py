"""The style of all pictures: fonts, and for each name a colour, a marker and dashes."""

import colorsys
import math
import textwrap
from dataclasses import dataclass

import matplotlib
from matplotlib.lines import Line2D

INK, SOFT, LINE, PAPER, LOSS = "#1d2430", "#5b6575", "#dfe3ea", "#ffffff", "#f6ebe4"
DARK = {INK: "#e4e8ef", SOFT: "#9aa5b5", LINE: "#2e3643", PAPER: "#14181f", LOSS: "#2a211c"}
# Each of a contrast of at least 3:1 to white, neighbours far apart for colour-blind readers too.
COLOURS = ["#0072b2", "#c44e00", "#008060", "#a8488a", "#8a6500", "#6a51a3", "#b3123f", "#00808a", "#7a4a2b", "#4d5a6b",
           "#4f7a1c", "#d0307f", "#1f3f8f", "#000000"]
MARKERS = ["o", "s", "^", "D", "v", "P", "X", "<", ">", "p", "h", "*", "d", "8"]
GLYPHS = "●■▲◆▼✚✖◀▶⬟⬢★♦⯃"  # the markers in a line of text
DASHES = ["-", (0, (6, 1.5)), (0, (2.5, 1.5)), (0, (6, 1.5, 1.5, 1.5))]


@dataclass(frozen=True)
class Look:
    colour: str
    marker: str
    dashes: str | tuple = "-"


class Looks:
    """The look of each name, the same in every picture of a report; the names in `first` get the first looks."""

    def __init__(self, names: list[str], first: list[str] = ()) -> None:
        self.of: dict[str, Look] = {}
        for name in [*first, *names]:
            self.__getitem__(name)
        if first:  # beside published figures, this library's implementation is called flash
            self.of["flash"] = self.of[first[0]]

    def __getitem__(self, name: str) -> Look:
        n = len(self.of)
        return self.of.setdefault(name, Look(COLOURS[n % len(COLOURS)], MARKERS[n % len(MARKERS)],
                                             DASHES[n // len(COLOURS) % len(DASHES)]))

    def in_order(self, names: list[str]) -> list[str]:
        order = list(self.of)
        return sorted(names, key=lambda name: order.index(name) if name in order else len(order))

    def glyph(self, name: str) -> str:
        return GLYPHS[MARKERS.index(self[name].marker)]

    def handle(self, name: str, line: bool = True) -> Line2D:
        look = self[name]
        dashes = look.dashes if line else "none"
        return Line2D([], [], color=look.colour, marker=look.marker, linestyle=dashes, label=name)


def luminance(colour: str) -> float:
    parts = [int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def for_dark(colour: str) -> str:
    """The same hue, light enough to be read on dark paper."""
    hue, light, strong = colorsys.rgb_to_hls(*(int(colour[i:i + 2], 16) / 255 for i in (1, 3, 5)))
    while True:
        found = "#" + "".join(f"{round(255 * part):02x}" for part in colorsys.hls_to_rgb(hue, light, min(strong, 0.75)))
        if contrast(found, DARK[PAPER]) >= 5 or light >= 1:
            return found
        light = min(1, light + 0.02)


def apply() -> None:
    matplotlib.rcParams.update({
        "figure.facecolor": PAPER, "axes.facecolor": PAPER, "savefig.facecolor": PAPER, "font.family": "sans-serif",
        "font.sans-serif": ["DejaVu Sans"], "font.size": 9.5, "text.color": INK, "axes.labelcolor": INK,
        "xtick.color": INK, "ytick.color": INK, "axes.edgecolor": SOFT, "axes.linewidth": 0.8,
        "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "grid.color": LINE,
        "grid.linewidth": 0.8, "axes.axisbelow": True, "axes.titlesize": 9.5, "axes.titleweight": "bold",
        "axes.titlelocation": "left", "axes.titlepad": 7, "xtick.labelsize": 8.5, "ytick.labelsize": 8.5,
        "legend.frameon": False, "legend.fontsize": 9, "lines.linewidth": 1.7, "lines.markersize": 5,
        "svg.fonttype": "none", "svg.hashsalt": "fovea", "patch.edgecolor": PAPER})


def wrap(words: str, width: int) -> str:
    """Breaks lines after commas, or at any space if a piece between two commas is wider than `width`."""
    joined = words.replace(", ", ",\0").replace(" ", "\u00a0").replace("\0", " ")
    fits = max(map(len, joined.split(" ")), default=0) <= width
    return "\n".join(textwrap.wrap(joined if fits else words, width, break_on_hyphens=False))


def plain(value: float) -> str:
    """0.5, 12, 3000: no exponents."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.3g}"


def rows_of_legend(figure, handles: list, top: float) -> int:
    """Draws the legend in as many columns as fit the figure, and returns its number of rows."""
    for columns in range(len(handles), 0, -1):
        drawn = figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(0, top), ncols=columns,
                              handlelength=2.6, columnspacing=1.6)
        if columns == 1 or drawn.get_window_extent().width <= figure.bbox.width:
            return math.ceil(len(handles) / columns)
        drawn.remove()
    return 0
