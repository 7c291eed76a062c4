"""The style of all pictures: fonts, and for each name a colour, a marker and dashes."""

import math
import textwrap
from dataclasses import dataclass
from pathlib import Path

import matplotlib
from matplotlib.lines import Line2D
from matplotlib.path import Path as Outline

STYLE = Path(__file__).parent / "templates/page.mplstyle"  # fonts and widths
INK, SOFT, LINE, PAPER, LOSS = "#1d2430", "#5b6575", "#dfe3ea", "#ffffff", "#f6ebe4"
DARK = {INK: "#e4e8ef", SOFT: "#9aa5b5", LINE: "#2e3643", PAPER: "#14181f", LOSS: "#2a211c"}
# On light and on dark paper: contrasts of at least 3:1, neighbours far apart for colour-blind readers too. None is
# #000000: an SVG leaves out this colour of a word, which then stays black on dark paper.
COLOURS = {"#0072b2": "#10cbff", "#c44e00": "#f3952b", "#008060": "#3ae9b1", "#a8488a": "#b161be", "#8a6500": "#e5d442",
           "#6a51a3": "#c197ff", "#b3123f": "#e36373", "#00808a": "#069085", "#7a4a2b": "#ad751e", "#4d5a6b": "#94a1ae",
           "#4f7a1c": "#78b03b", "#d0307f": "#fe9db5", "#1f3f8f": "#4681e1", "#010101": "#d3d9cf"}
HALF = Outline.wedge(-90, 90)  # of a disc
MARKERS = dict(zip([*"os^DvPX<>ph*d", HALF], "●■▲◆▼✚✖◀▶⬟⬢★♦◗"))  # beside them, how they look in a line of text
DASHES = ["-", (0, (6, 1.5)), (0, (2.5, 1.5)), (0, (6, 1.5, 1.5, 1.5))]


@dataclass(frozen=True)
class Look:
    colour: str
    marker: str | Outline
    dashes: str | tuple = "-"


class Looks:
    """The look of each name, the same in every picture of a report; the names in `first` get the first looks. Legends
    have the order of `names`, as bars and tables do."""

    def __init__(self, names: list[str], first: list[str] = ()) -> None:
        self.of: dict[str, Look] = {}
        self.order = list(names)
        for name in [*first, *names]:
            self.__getitem__(name)
        if first:  # beside published figures, this library's implementation is called flash
            self.of["flash"] = self.of[first[0]]

    def __getitem__(self, name: str) -> Look:
        turn, n = divmod(len(self.of), len(COLOURS))  # in every turn a colour has another marker
        return self.of.setdefault(name, Look([*COLOURS][n], [*MARKERS][(n + turn) % len(MARKERS)],
                                             DASHES[turn % len(DASHES)]))

    def in_order(self, names: list[str]) -> list[str]:
        return sorted(names, key=lambda name: self.order.index(name) if name in self.order else len(self.order))

    def glyph(self, name: str) -> str:
        return MARKERS[self[name].marker]

    def handle(self, name: str, line: bool = True) -> Line2D:
        look = self[name]
        dashes = look.dashes if line else "none"
        return Line2D([], [], color=look.colour, marker=look.marker, linestyle=dashes, label=name)


def applied():
    """The style, around a block or as a decorator. Afterwards matplotlib's settings are as before."""
    return matplotlib.rc_context({
        **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor", "patch.edgecolor"), PAPER),
        **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
        "axes.edgecolor": SOFT, "grid.color": LINE}, STYLE)


def wrap(words: str, width: int) -> str:
    """Breaks lines after commas, or at any space if a piece between two commas is wider than `width`."""
    joined = words.replace(", ", ",\0").replace(" ", "\u00a0").replace("\0", " ")
    fits = max(map(len, joined.split(" ")), default=0) <= width
    return "\n".join(textwrap.wrap(joined if fits else words, width, break_on_hyphens=False))


def plain(value: float) -> str:
    """0.5, 12, 3000: no exponents."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.3g}"


def by_rows(handles: list, columns: int) -> list:
    """In the order that a legend of so many columns wants, which fills them one by one, so that rows are in order."""
    return [handle for column in range(columns) for handle in handles[column::columns]]


def rows_of_legend(figure, handles: list, top: float) -> int:
    """Draws the legend in as many columns as fit the figure, and returns its number of rows."""
    for columns in range(len(handles), 0, -1):
        drawn = figure.legend(handles=by_rows(handles, columns), loc="upper left", bbox_to_anchor=(0, top),
                              ncols=columns, handlelength=2.6, columnspacing=1.6)
        if columns == 1 or drawn.get_window_extent().width <= figure.bbox.width:
            return math.ceil(len(handles) / columns)
        drawn.remove()
    return 0
