"""One look for all pictures: fonts, a palette that colour-blind readers can tell apart, axes, saving."""

import math
import re
import textwrap
from io import BytesIO, StringIO
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.lines import Line2D  # noqa: E402
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator  # noqa: E402
from PIL import Image  # noqa: E402

INK, SOFT, LINE = "#1d2430", "#5b6575", "#dfe3ea"

# Hues after Okabe and Ito, darkened where they were too pale for lines on white. This library comes first.
OWN = ["#0072b2", "#56a3d9", "#004c78", "#7fb8a4"]
BASELINES = {"naive": "#c44e00", "vectorized": "#b8860b", "fused": "#00875f", "reference": "#6b6b6b"}
OTHERS = ["#a8488a", "#6a51a3", "#8c6d31", "#2f6f6f", "#b03a5b", "#4d4d4d"]
MARKERS = {"naive": "s", "vectorized": "D", "fused": "^", "reference": "x"}
DIMS = {16: "#b8860b", 32: "#00875f", 64: "#0072b2", 128: "#a8488a", 256: "#c44e00"}


def apply() -> None:
    plt.rcParams.update({
        "figure.facecolor": "white", "axes.facecolor": "white", "savefig.facecolor": "white",
        "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "font.size": 10.5,
        "text.color": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK,
        "axes.edgecolor": SOFT, "axes.linewidth": 0.8, "axes.spines.top": False, "axes.spines.right": False,
        "axes.grid": True, "grid.color": LINE, "grid.linewidth": 0.8, "axes.axisbelow": True,
        "axes.titlesize": 10.5, "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.titlepad": 8, "axes.titley": 1.0,
        "xtick.labelsize": 9.5, "ytick.labelsize": 9.5, "legend.frameon": False, "legend.fontsize": 10,
        "lines.linewidth": 1.9, "lines.markersize": 5.5, "lines.solid_capstyle": "round",
        "svg.fonttype": "path", "svg.hashsalt": "fovea",
    })


class Looks:
    """The colour and marker of each implementation, the same in every picture of a report."""

    def __init__(self, implementations: list[str]) -> None:
        self.colours: dict[str, str] = {}
        own, others = iter(OWN * 8), iter(OTHERS * 8)
        for name in implementations:
            is_own = name.startswith(("cpu.", "cuda."))
            self.colours[name] = BASELINES.get(name) or next(own if is_own else others)
        self.colours.setdefault("flash", OWN[0])

    def colour(self, name: str) -> str:
        return self.colours.get(name) or BASELINES.get(name, SOFT)

    def marker(self, name: str) -> str:
        return MARKERS.get(name, "o")


def short(length: float) -> str:
    """4096 -> 4k, as the tables have it."""
    whole = int(length)
    return f"{whole // 1024}k" if whole >= 1024 and whole % 1024 == 0 else str(whole)


def wrap(words: str, width: int) -> str:
    """Breaks at commas, so that a panel's title stays within its panel."""
    lines = [""]
    for part in words.split(", "):
        joined = f"{lines[-1]}, {part}" if lines[-1] else part
        if lines[-1] and len(joined) > width:
            lines[-1] += ","
            lines.append(part)
        else:
            lines[-1] = joined
    return "\n".join(lines)


def conditions_of(picture: dict, width: float) -> list[str]:
    """The lines that the conditions take below a picture of that many inches."""
    return textwrap.wrap(picture["conditions"], int(width * 13.5))


def frame(figure, picture: dict, handles: list = (), bottom: float = 0) -> float:
    """Title and legend above the panels, the conditions below them; `bottom`: inches kept free above the conditions,
    from the height on that is returned."""
    width, height = figure.get_size_inches()
    lines = conditions_of(picture, width)
    figure.text(0.1 / width, 1 - 0.12 / height, picture["title"], ha="left", va="top", fontsize=14, weight="bold")
    figure.text(0.1 / width, 0.1 / height, "\n".join(lines), ha="left", va="bottom", fontsize=8.5, color=SOFT)
    rows = legend(figure, handles, 1 - 0.4 / height) if handles else 0
    free = 0.12 + 0.16 * len(lines)
    figure.tight_layout(rect=(0, (free + bottom) / height, 1, 1 - (0.48 + 0.24 * rows) / height), h_pad=1.4, w_pad=1.6)
    return free


def hollow() -> Line2D:
    return Line2D([], [], color=SOFT, marker="o", markerfacecolor="white", linestyle="none", label="hollow: flagged")


def legend(figure, handles: list, top: float) -> int:
    """As many columns as the figure is wide enough for; the number of rows that takes."""
    for columns in range(len(handles), 0, -1):
        drawn = figure.legend(handles=handles, loc="upper left", bbox_to_anchor=(0, top), ncols=columns,
                              handlelength=2.2, columnspacing=1.6)
        if columns == 1 or drawn.get_window_extent(figure.canvas.get_renderer()).width <= figure.bbox.width:
            break
        drawn.remove()
    return math.ceil(len(handles) / columns)


def log_labels(axis) -> None:
    """Labels at 1, 2, 5 where the decades alone would be fewer than three."""
    low, high = axis.get_view_interval()
    decades = math.log10(high / low) if 0 < low < high else 1
    axis.set_major_locator(LogLocator(base=10, subs=(1, 2, 5) if decades < 2.2 else (1,), numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain(value)))
    axis.set_minor_locator(NullLocator())


def length_axis(axes, lengths: list[float]) -> None:
    """A logarithmic axis with a tick at each measured length, thinned until labels have room."""
    ticks = sorted(set(lengths))
    axes.set_xscale("log", base=2)
    labelled = ticks if len(ticks) <= 6 else ticks[len(ticks) % 2 == 0::2]
    axes.xaxis.set_major_locator(FixedLocator(labelled))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
    if ticks:
        axes.set_xlim(ticks[0] / 1.3, ticks[-1] * 1.3)


def plain(value: float) -> str:
    """0.5, 12, 3000: no exponents."""
    return f"{value:,.0f}" if value >= 10 else f"{value:.3g}"


def save(figure, folder: Path, name: str) -> None:
    """PNG for documents; SVG with identifiers of its own, so that many can stand in one page."""
    pixels = BytesIO()
    figure.savefig(pixels, format="png", dpi=150, pil_kwargs={"compress_level": 1})
    few = Image.open(pixels).convert("RGB").quantize(256, dither=Image.Dither.NONE)  # half the size or less
    few.save(folder / f"{name}.png", optimize=True)
    text = StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    plt.close(figure)
    svg = re.sub(r"<metadata>.*?</metadata>\s*", "", text.getvalue(), flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{name}-', svg)
    svg = re.sub(r'href="#', f'href="#{name}-', svg)
    svg = re.sub(r"url\(#", f"url(#{name}-", svg)
    (folder / f"{name}.svg").write_text(svg, encoding="utf-8")
