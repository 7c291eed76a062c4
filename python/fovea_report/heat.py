"""The heat map: implementation by configuration, each cell annotated with its time or its word."""

import math

import matplotlib.pyplot as plt
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle

from . import style

# From the fastest (pale green-blue) to 16 times slower (orange): light enough throughout for dark text.
SHADES = LinearSegmentedColormap.from_list("fovea", ["#cfe8e3", "#f7f3dd", "#f9d9a8", "#f0a868"])
MOST = 16.0


def draw_heat(picture: dict, looks: style.Looks):
    columns, rows = picture["columns"], picture["rows"]
    width = max(2.9 + 1.45 * len(columns), 6.4)
    height = 1.44 + 0.34 * len(rows) + 0.16 * len(style.conditions_of(picture, width))
    figure, axes = plt.subplots(figsize=(width, height))
    for y, row in enumerate(rows):
        for x, cell in enumerate(row["cells"]):
            draw_cell(axes, x, y, cell)
    axes.set_xlim(0, len(columns))
    axes.set_ylim(len(rows), 0)
    axes.grid(False)
    axes.set_xticks([x + 0.5 for x in range(len(columns))], columns, weight="bold")
    axes.set_yticks([y + 0.5 for y in range(len(rows))], [row["label"] for row in rows], family="DejaVu Sans Mono",
                    fontsize=9)
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    draw_key(figure, height, style.frame(figure, picture, bottom=0.5))
    return figure


def draw_cell(axes, x: int, y: int, cell: dict) -> None:
    if cell["ratio"] is None:
        axes.add_patch(Rectangle((x, y), 1, 1, facecolor="#eef0f3", edgecolor="white", linewidth=1.5,
                                 hatch="///" if cell["text"] != "-" else None))
        axes.add_patch(Rectangle((x, y), 1, 1, facecolor="none", edgecolor="white", linewidth=1.5))
        axes.text(x + 0.5, y + 0.5, cell["text"], ha="center", va="center", fontsize=9, style="italic",
                  bbox={"facecolor": "#eef0f3", "edgecolor": "none", "pad": 1.5})
        return
    shade = SHADES(min(math.log2(cell["ratio"]) / math.log2(MOST), 1))
    axes.add_patch(Rectangle((x, y), 1, 1, facecolor=shade, edgecolor="white", linewidth=1.5))
    axes.text(x + 0.5, y + 0.5, cell["text"], ha="center", va="center", fontsize=9.5,
              weight="bold" if cell["best"] else "normal")


def draw_key(figure, height: float, bottom: float) -> None:
    """What the colours mean: time over the fastest of the row. Its labels begin `bottom` inches up."""
    axes = figure.add_axes((0.30, (bottom + 0.23) / height, 0.4, 0.14 / height))
    axes.imshow([[i / 255 for i in range(256)]], aspect="auto", cmap=SHADES, extent=(0, math.log2(MOST), 0, 1))
    axes.set_yticks([])
    axes.set_xticks([0, 1, 2, 3, 4], ["1\u00d7", "2\u00d7", "4\u00d7", "8\u00d7", "16\u00d7 and more"], fontsize=8.5)
    axes.tick_params(length=0, pad=2)
    axes.grid(False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    figure.text(0.29, (bottom + 0.30) / height, "time over the fastest", ha="right", va="center", fontsize=8.5)
