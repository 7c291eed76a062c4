"""Draws a picture: all panels in one PNG, and each as a small SVG that a page lays out by its width."""

import math
import re
from io import BytesIO, StringIO
from pathlib import Path
from typing import Callable

import numpy as np
import pandas as pd
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, Locator, LogLocator, MaxNLocator, NullLocator
from matplotlib.transforms import offset_copy
from PIL import Image

from . import looks as style
from .looks import Looks
from .pictures import Panel, Picture, Series
from .tables import CAPTIONS
from .vocabulary import short

# From the fastest (pale green-blue) to 16 times slower and more (orange): light enough throughout for dark text.
SHADES = LinearSegmentedColormap.from_list("fovea", ["#cfe8e3", "#f7f3dd", "#f9d9a8", "#f0a868"])
MOST = 16.0
PANEL = (4.3, 3.3)  # inches


def shade(ratio: float) -> tuple:
    """The colour of a time that is `ratio` times the fastest of its row."""
    return SHADES(min(max(math.log2(ratio) / math.log2(MOST), 0.0), 1.0))


@style.applied()
def draw(picture: Picture, looks: Looks, path: Path, with_panels: bool = True) -> list[str]:
    """Writes the PNG; returns its panels as SVG for a page, if `with_panels`."""
    save_png(together(picture, looks), path)
    found = []
    for panel in picture.panels if with_panels else []:
        figure = Figure(figsize=PANEL)
        draw_panel(figure.subplots(), picture, panel, looks)
        figure.tight_layout(pad=0.6)
        found.append(svg_of(figure, f"{picture.name}-{len(found)}"))
    return found


@style.applied()
def together(picture: Picture, looks: Looks) -> Figure:
    """Title and legend above the panels, the conditions below."""
    columns = min(len(picture.panels), 2 if len(picture.panels) in (2, 4) else 3)
    rows = math.ceil(len(picture.panels) / columns)
    figure = Figure(figsize=(max(columns * PANEL[0], 6.4), rows * PANEL[1] + 1.2))
    for number, panel in enumerate(picture.panels, 1):
        draw_panel(figure.add_subplot(rows, columns, number), picture, panel, looks)
    width, height = figure.get_size_inches()
    said = style.wrap(picture.conditions, int(width * 13.5))
    figure.text(0.1 / width, 1 - 0.12 / height, picture.title, ha="left", va="top", fontsize=13, weight="bold")
    figure.text(0.1 / width, 0.1 / height, said, ha="left", va="bottom", fontsize=8, color=style.SOFT)
    legend, free = style.rows_of_legend(figure, handles_of(picture, looks), 1 - 0.4 / height), 0.15 * said.count("\n")
    figure.tight_layout(rect=(0, (0.27 + free) / height, 1, 1 - (0.48 + 0.22 * legend) / height), h_pad=1.4, w_pad=1.6)
    return figure


def handles_of(picture: Picture, looks: Looks) -> list:
    names = looks.in_order(picture.names())
    handles = [looks.handle(name, picture.kind not in ("rate", "roofline", "phases")) for name in names]
    def mark(label: str, **look) -> Line2D:
        return Line2D([], [], label=label, color=style.SOFT, **{"marker": "o", "linestyle": "none", **look})
    every = [series for panel in picture.panels for series in panel.series]
    if any(series.dashed for series in every):
        handles += [mark("here", linestyle="-"), mark("published", markerfacecolor=style.PAPER, linestyle=(0, (4, 2)))]
    elif picture.kind not in ("phases", "timeline") and not all(series.points.clean.all() for series in every):
        handles.append(mark("hollow: flagged", markerfacecolor=style.PAPER))
    return handles


def draw_panel(axes, picture: Picture, panel: Panel, looks: Looks) -> None:
    axes.set_title(style.wrap(panel.title, 44))
    how = {"rate": bars, "roofline": roofline, "phases": boxes, "timeline": marks}.get(picture.kind, lines)
    how(axes, picture, panel, looks)
    axes.set(ylabel=CAPTIONS[f"picture-{picture.kind}"]["unit"], xlabel=panel.along)


def lines(axes, picture: Picture, panel: Panel, looks: Looks) -> None:
    for series in panel.series:
        look, points = looks[series.look or series.name], series.points
        dashes, above = ((0, (4, 2)), 0.5) if series.dashed else (look.dashes, 0)
        same = [one.name for one in panel.series if picture.kind == "memory" and coincide(one, series)] or [series.name]
        place, count = same.index(series.name), len(same)
        if count > 1:  # dashes and markers in turn, so that all of them show
            dashes = (4 * (count - place), (4, 4 * (count - 1)))
        axes.plot(points.x, points.y, color=look.colour, linestyle=dashes, zorder=3 + above)
        few = 2 * count > len(points)  # too few for turns: markers side by side
        aside = offset_copy(axes.transData, axes.figure, x=7 * few * (place - (count - 1) / 2), units="points")
        dots(axes, points if few else points[place::count], look.colour, look.marker, zorder=4 + above, transform=aside)
        spans = points.dropna(subset="low")
        reach = [(spans.y - spans.low).clip(lower=0), (spans.high - spans.y).clip(lower=0)] if len(spans) else 0
        axes.errorbar(spans.x, spans.y, reach, fmt="none", ecolor=look.colour, elinewidth=1,
                      capsize=0 if picture.kind == "published" else 2.5, zorder=3)  # a page has many of them
    length_axis(axes, panel.lengths())
    if picture.kind in ("speedup", "published"):
        ratio_axis(axes)
    else:
        axes.set_yscale("log")
        log_labels(axes.yaxis)
    draw_fits(axes, panel, looks)
    mark_missing(axes, panel, looks)


def coincide(one: Series, other: Series) -> bool:
    """Whether two lines lie on one another, to the eye. Dashed lines of published figures stand for themselves."""
    if one is other or one.dashed or other.dashed:
        return one is other
    pairs = one.points[["x", "y"]].merge(other.points[["x", "y"]], on="x")
    return len(pairs) > 0 and 1 / 1.1 < (pairs.y_x / pairs.y_y).median() < 1.1


def dots(axes, points: pd.DataFrame, colour: str, marker: str, **more) -> None:
    for clean in (True, False):
        chosen = points[points.clean == clean]
        axes.plot(chosen.x, chosen.y, linestyle="none", marker=marker, color=colour,
                  markerfacecolor=colour if clean else style.PAPER, **more)


def draw_fits(axes, panel: Panel, looks: Looks) -> None:
    handles = []
    for series in (one for one in panel.series if one.fit):
        look, x = looks[series.name], [series.fit.start / 1.2, series.fit.end * 1.2]
        axes.plot(x, [1e3 * series.fit.coefficient * one ** series.fit.exponent for one in x], color=look.colour,
                  linestyle=(0, (4, 2.5)), linewidth=1, zorder=2)
        handles.append(Line2D([], [], color=look.colour, marker=look.marker, linestyle="none", markersize=4,
                              label=f"n^{series.fit.exponent:.2f}"))
    if handles:
        (low, high), share = axes.get_ylim(), 0.02 + 0.065 * math.ceil(len(handles) / 4)
        axes.set_ylim(low / (high / low) ** (share / (1 - share)), high)
        axes.legend(handles=style.by_rows(handles, 4), loc="lower right", fontsize=8, handletextpad=0.1, borderpad=0.1,
                    labelspacing=0.2, ncols=4, columnspacing=0.6)


def bars(axes, _: Picture, panel: Panel, looks: Looks) -> None:
    """Beside each other at each length: the implementations that ran it. A bar has its marker above it."""
    names = {x: [series.name for series in panel.series if x in series.lengths()] for x in panel.lengths()}
    width = 0.84 / max(map(len, names.values()))
    above = offset_copy(axes.transData, axes.figure, y=4, units="points")
    for series in panel.series:
        look, points = looks[series.name], series.points
        place = {x: n + (of.index(series.name) + 0.5 - len(of) / 2) * width
                 for n, (x, of) in enumerate(names.items()) if series.name in of}
        axes.bar(points.x.map(place), points.y, width, edgecolor=style.PAPER, linewidth=0.3,
                 color=[(look.colour, 1 if clean else 0.5) for clean in points.clean])
        dots(axes, points.assign(x=points.x.map(place)), look.colour, look.marker, markersize=3.5, transform=above)
        for x, word in series.missing:
            axes.plot(place[x], 0, marker=look.marker, color=look.colour, markersize=3.5, transform=above)
            axes.annotate(word, (place[x], 0), xytext=(0, 9), textcoords="offset points", rotation=90, ha="center",
                          va="bottom", fontsize=min(max(6, 240 * width / len(names)), 8), color=look.colour)
    axes.set(xticks=range(len(names)), xticklabels=[short(x) for x in names], xlim=(-0.6, len(names) - 0.4))
    axes.grid(False, axis="x")
    axes.margins(y=0.09)
    ticks(axes.yaxis, MaxNLocator(6), style.plain)


def boxes(axes, _: Picture, panel: Panel, looks: Looks) -> None:
    """Beside each other at each phase: the implementations. A box has its marker at the median."""
    phases = list(dict.fromkeys(phase for series in panel.series for phase in series.points.x))
    width = 0.8 / len(panel.series)
    for n, series in enumerate(panel.series):
        look, of = looks[series.name], dict(list(series.points.groupby("x", sort=False).y))
        places = [phases.index(one) - 0.4 + (n + 0.5) * width for one in of]
        axes.plot(places, [times.median() for times in of.values()], linestyle="none", marker=look.marker,
                  color=look.colour, zorder=4)
        axes.boxplot(list(of.values()), positions=places, widths=0.7 * width, manage_ticks=False, patch_artist=True,
                     boxprops={"facecolor": (look.colour, 0.3), "edgecolor": look.colour},
                     flierprops={"marker": look.marker, "markeredgecolor": look.colour, "markersize": 3.5},
                     **dict.fromkeys(("medianprops", "whiskerprops", "capprops"), {"color": look.colour}))
    axes.set(xticks=range(len(phases)), xticklabels=phases, xlim=(-0.6, len(phases) - 0.4))
    axes.grid(False, axis="x")
    axes.set_yscale("log")
    log_labels(axes.yaxis)


def marks(axes, _: Picture, panel: Panel, looks: Looks) -> None:
    """From mark to mark, in the order of time."""
    for series in panel.series:
        look = looks[series.name]
        axes.plot(series.points.x, series.points.y.astype(float), color=look.colour, marker=look.marker)
    axes.margins(x=0.15)
    axes.set_ylim(0, 1.05 * axes.get_ylim()[1])


def roofline(axes, _: Picture, panel: Panel, looks: Looks) -> None:
    axes.set(xscale="log", yscale="log")
    for series in panel.series:
        dots(axes, series.points, looks[series.name].colour, looks[series.name].marker, alpha=0.9, markersize=4)
    points = pd.concat([series.points for series in panel.series])
    low, high = points.x.min() / 2, points.x.max() * 2
    peak, bandwidth = (0.0 if rate is None or math.isnan(rate) else rate / 1e12 for rate in panel.ceilings)
    if peak > 0:
        ridge = peak / bandwidth if bandwidth > 0 else low
        low = min(low, ridge / 3)
        axes.plot([max(low, ridge), high], [peak, peak], color=style.INK, linewidth=1.4)
        axes.text(high, peak * 1.08, f"{style.plain(peak)} TFLOP/s measured", ha="right", va="bottom", fontsize=8)
        if bandwidth > 0:
            axes.plot([low, ridge], [low * bandwidth, peak], color=style.INK, linewidth=1.4)
            # Above the roof, where no point hides it.
            axes.text(0.02, 0.98, f"{style.plain(bandwidth * 1e3)} GB/s", transform=axes.transAxes, ha="left", va="top",
                      fontsize=8)
    axes.set(xlim=(low, high), ylim=(points.y.min() / 1.6, max(peak, points.y.max()) * 1.9))
    for axis in (axes.xaxis, axes.yaxis):
        log_labels(axis)


def mark_missing(axes, panel: Panel, looks: Looks) -> None:
    """Marks missing times: a line for each implementation at the top, with its marker and the status at the length."""
    if not (rows := [series for series in panel.series if series.missing]):
        return
    low, high = axes.get_ylim()
    axes.set_yticks([tick for tick in axes.get_yticks() if low <= tick <= high])  # none beside the marks
    share = 0.02 + 0.065 * len(rows)
    axes.set_ylim(low, high * (high / low) ** (share / (1 - share)))
    first, (left, right) = min(panel.lengths()), axes.get_xlim()
    share = max((0.016 * len(word) for one in rows for x, word in one.missing if x == first), default=0)
    axes.set_xlim(left / (right / left) ** (share / (1 - share)))  # room for words left of the first length
    for n, series in enumerate(rows):
        look, y = looks[series.look or series.name], 0.975 - 0.065 * n
        for word, at in pd.DataFrame(series.missing, columns=["x", "word"]).groupby("word", sort=False).x:
            axes.plot(at, [y] * len(at), transform=axes.get_xaxis_transform(), linestyle="none", marker=look.marker,
                      color=look.colour, markersize=4, clip_on=False, zorder=5,
                      markerfacecolor=style.PAPER if series.dashed else look.colour)
            axes.annotate(word, (at.min(), y), xycoords=axes.get_xaxis_transform(), xytext=(-5, 0), ha="right",
                          va="center", textcoords="offset points", fontsize=7, color=look.colour)


def length_axis(axes, lengths: list[float]) -> None:
    """A logarithmic axis with a tick at each length, thinned until labels have room."""
    axes.set_xscale("log", base=2)
    ticks(axes.xaxis, FixedLocator(lengths if len(lengths) <= 7 else lengths[len(lengths) % 2 == 0::2]), short)
    axes.set_xlim(lengths[0] / 1.3, lengths[-1] * 1.3)


def ratio_axis(axes) -> None:
    """Logarithmic, so that twice as fast and half as fast are equally far from the line at 1."""
    drawn = [value for value in axes.dataLim.intervaly if 0 < value < math.inf]  # of lines and bars
    axes.set_yscale("log", base=2)
    low, high = min([*drawn, 0.9]), max([*drawn, 1.15])
    axes.set_ylim(low / 1.12, high * 1.22)
    if high / low < 3:  # too few powers of two
        values = [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 1.75, 2, 2.5, 3]
    elif high / low < 8:
        values = [0.25, 0.35, 0.5, 0.7, 1, 1.5, 2, 3, 4, 6, 8]
    else:
        powers = range(math.floor(math.log2(low)) - 1, math.ceil(math.log2(high)) + 1)
        values = [2.0**power for power in powers if power % max(1, math.ceil(len(powers) / 7)) == 0]
    ticks(axes.yaxis, FixedLocator(values), lambda value: f"{style.plain(value)}\u00d7")
    axes.axhline(1, color=style.INK, linewidth=1.1, zorder=2)
    axes.axhspan(axes.get_ylim()[0], 1, color=style.LOSS, linewidth=0, zorder=0)


def log_labels(axis) -> None:
    """Labels at more places of each decade the fewer decades there are."""
    low, high = axis.get_view_interval()
    subs = (1, 2, 3, 5, 7) if low < high < 5 * low else (1, 2, 5) if high < 150 * low or low <= 0 else (1,)
    ticks(axis, LogLocator(base=10, subs=subs, numticks=12), style.plain)


def ticks(axis, locator: Locator, text: Callable[[float], str]) -> None:
    axis.set_major_locator(locator)
    axis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))
    axis.set_minor_locator(NullLocator())


def save_png(figure: Figure, path: Path) -> None:
    pixels = BytesIO()
    figure.savefig(pixels, format="png", dpi=130, pil_kwargs={"compress_level": 1})
    few_colours(Image.open(pixels).convert("RGB")).save(path, optimize=True)


def few_colours(whole: Image.Image) -> Image.Image:
    """256 colours take half the bytes or less. Our own stay as they are; only shades between them are merged."""
    own = [tuple(bytes.fromhex(colour[1:])) for colour in (*style.COLOURS, *style.DARK)]
    few, pixels = whole.quantize(256 - len(own), dither=Image.Dither.NONE), np.asarray(whole.convert("RGBA"))
    index = np.asarray(few) + np.uint8(len(own))
    for number, colour in enumerate(own):
        index[pixels.view("<u4")[..., 0] == int.from_bytes((*colour, 255), "little")] = number
    exact = Image.fromarray(index)
    exact.putpalette([*sum(own, ()), *few.getpalette()])
    return exact


def svg_of(figure: Figure, name: str) -> str:
    """To embed in a page: text as text, no prologue, unique names, coordinates to a tenth of a point. Colours are
    variables of the page, so that dark pages have dark pictures."""
    drawn = StringIO()
    figure.savefig(drawn, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    svg = drawn.getvalue().partition("<svg")
    svg = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->", "", svg[1] + svg[2], flags=re.DOTALL)
    svg = re.sub(r'\sxmlns(:xlink)?="[^"]*"|\stransform="rotate\(-0 [^"]*"|(?<=<g) id="[^"]*"', "", svg)
    ids = {one: f"{name}-{number}" for number, one in enumerate(re.findall(r'\bid="([^"]*)', svg))}
    svg = re.sub(r'(id="|url\(#|(?:xlink:)?(href="#))([^")]+)', lambda of: (of[2] or of[1]) + ids[of[3]], svg)
    svg = re.sub(r"#[0-9a-f]{6}(?=[;\"])", lambda colour: f"var(--{colour[0][1:]})", svg)
    svg = re.sub(r"-?\d+\.\d{2,}(?=[^<>]*>)", lambda number: f"{float(number[0]):.1f}".removesuffix(".0"), svg)
    return re.sub(r">\s+<", "><", re.sub(r"\s+(?=[^<>]*>)", " ", svg)).strip()


def variables() -> list[tuple[str, str, str]]:
    """Name, colour on light and on dark paper, of every colour that panels use."""
    return [(f"--{colour[1:]}", colour, dark) for colour, dark in {**style.COLOURS, **style.DARK}.items()]
