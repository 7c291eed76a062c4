"""Pictures with the length on the x axis: time, growth, speed-up, memory, and published speed-ups."""

import math

import matplotlib.pyplot as plt
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

from . import style

Y_LABEL = {"time": "ms", "scaling": "ms", "speedup": "speed-up", "memory": "MB", "published": "speed-up"}
# Baselines that save the same hold the same: lines within lines show them all.
NESTED = {"naive": 6.5, "vectorized": 4.2}
Y_FACTOR = {"time": 1e3, "scaling": 1e3, "memory": 1e-6}


def draw_lengths(picture: dict, looks: style.Looks):
    panels = picture["panels"]
    columns = min(len(panels), 2 if len(panels) in (2, 4) else 3)
    rows = math.ceil(len(panels) / columns)
    width = {1: 7.2, 2: 10.4, 3: 13.2}[columns]
    height = 3.15 * rows + 1.0
    figure, grid = plt.subplots(rows, columns, figsize=(width, height), squeeze=False)
    cells = [axes for line in grid for axes in line]
    for axes, panel in zip(cells, panels):
        draw_panel(axes, picture, panel, looks)
    for axes in cells[len(panels):]:
        axes.set_visible(False)
    for column, axes in enumerate(cells):
        if column % columns == 0:
            axes.set_ylabel(Y_LABEL[picture["kind"]])
        if column + columns >= len(panels):
            axes.set_xlabel("length")
    handles = legend_handles(picture, looks)
    style.frame(figure, picture, handles)
    return figure


def draw_panel(axes, picture: dict, panel: dict, looks: style.Looks) -> None:
    kind = picture["kind"]
    axes.set_title(style.wrap(panel["title"], 44))
    if kind == "published":
        lengths = draw_published(axes, picture, panel, looks)
    else:
        lengths = draw_series(axes, picture, panel, looks)
    style.length_axis(axes, lengths)
    if kind in ("speedup", "published"):
        ratio_axis(axes)
    elif kind == "time":
        drawn = [value for line in axes.get_lines() for value in line.get_ydata()]
        axes.set_ylim(0, max([axes.get_ylim()[1], *(1.08 * value for value in drawn)]))
        axes.yaxis.set_major_locator(MaxNLocator(5))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: style.plain(value)))
    else:
        axes.set_yscale("log")
        style.log_labels(axes.yaxis)
    if kind != "published":
        drawn = [one for one in panel["series"] if kind != "speedup" or one["implementation"] != picture["baseline"]]
        mark_missing(axes, drawn, looks)


def draw_series(axes, picture: dict, panel: dict, looks: style.Looks) -> list[float]:
    kind = picture["kind"]
    factor = Y_FACTOR.get(kind, 1)
    lengths: list[float] = []
    for one in panel["series"]:
        name = one["implementation"]
        colour, marker = looks.colour(name), looks.marker(name)
        lengths += [point["x"] for point in one["points"]] + [cell["x"] for cell in one["missing"]]
        x = [point["x"] for point in one["points"]]
        y = [point["y"] * factor for point in one["points"]]
        if kind == "speedup" and name == picture["baseline"]:
            continue
        axes.plot(x, y, color=colour, zorder=3, linewidth=NESTED.get(name) if kind == "memory" else None)
        for clean in (True, False):  # hollow: flagged
            chosen = [(a, b) for a, b, point in zip(x, y, one["points"]) if (point["clean"] or kind == "memory") == clean]
            axes.plot([a for a, _ in chosen], [b for _, b in chosen], linestyle="none", marker=marker, color=colour,
                      markerfacecolor=colour if clean else "white", zorder=4)
        if kind == "time" and x:
            below = [value - point["low"] * factor for value, point in zip(y, one["points"])]
            above = [point["high"] * factor - value for value, point in zip(y, one["points"])]
            axes.errorbar(x, y, [below, above], fmt="none", ecolor=colour, elinewidth=1.4, capsize=3.5, zorder=3)
    if kind == "scaling":
        draw_fits(axes, panel, looks)
    return lengths


def draw_fits(axes, panel: dict, looks: style.Looks) -> None:
    lines = []
    for one in panel["series"]:
        if "fit" not in one:
            continue
        fit, colour = one["fit"], looks.colour(one["implementation"])
        x = [fit["from"] / 1.2, fit["to"] * 1.2]
        y = [fit["coefficient"] * length ** fit["exponent"] * 1e3 for length in x]
        axes.plot(x, y, color=colour, linestyle=(0, (4, 2.5)), linewidth=1.1, alpha=0.9, zorder=2)
        lines.append((f"n^{fit['exponent']:.2f}", colour))
    for row, (words, colour) in enumerate(reversed(lines)):
        axes.text(0.98, 0.04 + 0.078 * row, words, transform=axes.transAxes, ha="right", va="bottom", color=colour,
                  fontsize=9.5, weight="bold", bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.8, "alpha": 0.8})


def draw_published(axes, picture: dict, panel: dict, looks: style.Looks) -> list[float]:
    lengths: list[float] = []
    for one in panel["series"]:
        colour = series_colour(picture, one, looks)
        for side, dashes, face in (("here", "-", colour), ("published", (0, (4, 2)), "white")):
            x = [point["x"] for point in one[side]]
            y = [point["y"] for point in one[side]]
            lengths += x
            axes.plot(x, y, color=colour, linestyle=dashes, marker="o", markersize=4.5, markerfacecolor=face,
                      linewidth=1.9 if side == "here" else 1.3)
    return lengths


def series_colour(picture: dict, one: dict, looks: style.Looks) -> str:
    if picture["colour_by"] == "dim":
        return style.DIMS.get(one["dim"], style.SOFT)
    return looks.colour(one["implementation"])


def mark_missing(axes, series: list[dict], looks: style.Looks) -> None:
    """The word of a cell without a time, at its length, from the top down: never a point at zero, none over another."""
    renderer = axes.figure.canvas.get_renderer()
    rows: list[list[tuple[float, float]]] = []  # the pixels from left to right that the words of each row take
    for one in series:
        for cell in one["missing"]:
            word = axes.text(cell["x"], 0, cell["word"], transform=axes.get_xaxis_transform(), ha="center", va="top",
                             fontsize=8, weight="bold", color=looks.colour(one["implementation"]), zorder=5)
            extent = word.get_window_extent(renderer)
            row = row_with_room(rows, extent.x0 - 2, extent.x1 + 2)
            word.set_y(0.985 - 0.07 * row)
    if rows:  # room for the words above the curves
        share = 0.03 + 0.07 * len(rows)
        low, high = axes.transData.transform([(1, y) for y in axes.get_ylim()])[:, 1]
        axes.set_ylim(top=axes.transData.inverted().transform((0, low + (high - low) / (1 - share)))[1])


def row_with_room(rows: list[list[tuple[float, float]]], left: float, right: float) -> int:
    """The first row in which nothing stands between the two pixels; takes them there."""
    for number, taken in enumerate(rows):
        if all(right <= start or end <= left for start, end in taken):
            taken.append((left, right))
            return number
    rows.append([(left, right)])
    return len(rows) - 1


def ratio_axis(axes) -> None:
    """Logarithmic, so that twice as fast and half as fast are equally far from the line at 1."""
    drawn = [value for line in axes.get_lines() for value in line.get_ydata()]
    axes.set_yscale("log", base=2)
    low, high = min([*drawn, 0.9]), max([*drawn, 1.15])
    axes.set_ylim(low / 1.12, high * 1.22)
    if high / low < 3:  # too few powers of two
        ticks = [0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1, 1.1, 1.25, 1.5, 1.75, 2, 2.5, 3]
    else:
        powers = range(math.floor(math.log2(low)) - 1, math.ceil(math.log2(high)) + 1)
        ticks = [2.0**power for power in powers if power % max(1, math.ceil(len(powers) / 7)) == 0]
    axes.yaxis.set_major_locator(FixedLocator(ticks))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{style.plain(value)}\u00d7"))
    axes.axhline(1, color=style.INK, linewidth=1.1, zorder=2)
    axes.axhspan(axes.get_ylim()[0], 1, color="#f3e3da", alpha=0.55, linewidth=0, zorder=0)


def legend_handles(picture: dict, looks: style.Looks) -> list:
    kind = picture["kind"]
    if kind == "published":
        return published_handles(picture, looks)
    present = {one["implementation"] for panel in picture["panels"] for one in panel["series"]}
    names = [name for name in looks.colours if name in present]
    names += sorted(present - set(names))  # published ones
    if kind == "speedup":
        names = [name for name in names if name != picture["baseline"]]
    handles = [Line2D([], [], color=looks.colour(name), marker=looks.marker(name), label=name) for name in names]
    points = [point for panel in picture["panels"] for one in panel["series"] for point in one["points"]]
    if kind != "memory" and any(not point["clean"] for point in points):
        handles.append(style.hollow())
    if kind == "scaling" and any("fit" in one for panel in picture["panels"] for one in panel["series"]):
        handles.append(Line2D([], [], color=style.SOFT, linestyle=(0, (4, 2.5)), linewidth=1.1, label="fitted power"))
    return handles


def published_handles(picture: dict, looks: style.Looks) -> list:
    handles = []
    for panel in picture["panels"]:
        for one in panel["series"]:
            label = f"d={one['dim']}" if picture["colour_by"] == "dim" else one["implementation"]
            if label not in [handle.get_label() for handle in handles]:
                handles.append(Line2D([], [], color=series_colour(picture, one, looks), label=label))
    handles.append(Line2D([], [], color=style.SOFT, marker="o", label="here"))
    handles.append(Line2D([], [], color=style.SOFT, marker="o", markerfacecolor="white", linestyle=(0, (4, 2)),
                          linewidth=1.3, label="published"))
    return handles
