"""The roofline: rate against operations per byte, under the ceilings of the same run."""

import matplotlib.pyplot as plt
from matplotlib.lines import Line2D

from . import style

PASS_MARKERS = {"fwd": "o", "bwd": "v", "e2e": "s"}
PASS_WORDS = {"fwd": "forward", "bwd": "backward", "e2e": "forward + backward"}


def draw_roofline(picture: dict, looks: style.Looks):
    panels = picture["panels"]
    height = 5.6
    figure, grid = plt.subplots(1, len(panels), figsize=(1.2 + 4.6 * len(panels), height), squeeze=False, sharey=True)
    for axes, panel in zip(grid[0], panels):
        draw_panel(axes, panel, looks)
    rates = [point["y"] / 1e9 for panel in panels for point in panel["points"]]
    grid[0][0].set_ylim(min(rates) / 1.4, max([*rates, *(panel["peak"] / 1e9 for panel in panels)]) * 1.7)
    grid[0][0].set_ylabel("GFLOP/s")
    passes = [name for name in PASS_MARKERS if any(p["pass"] == name for panel in panels for p in panel["points"])]
    names = [name for name in picture["implementations"]
             if any(p["implementation"] == name for panel in panels for p in panel["points"])]
    handles = [Line2D([], [], color=looks.colour(name), marker="o", linestyle="none", label=name) for name in names]
    if len(passes) > 1:
        handles += [Line2D([], [], color=style.SOFT, marker=PASS_MARKERS[name], linestyle="none", label=PASS_WORDS[name])
                    for name in passes]
    handles += [style.hollow()] if any(not point["clean"] for panel in panels for point in panel["points"]) else []
    style.frame(figure, picture, handles)
    return figure


def draw_panel(axes, panel: dict, looks: style.Looks) -> None:
    points, peak, bandwidth = panel["points"], panel["peak"], panel["bandwidth"]
    axes.set_title(panel["title"])
    axes.set_xscale("log")
    axes.set_yscale("log")
    kinds: dict[tuple, list[dict]] = {}
    for point in points:
        kinds.setdefault((point["implementation"], point["pass"], point["clean"]), []).append(point)
    for (name, which, clean), group in kinds.items():
        axes.plot([point["x"] for point in group], [point["y"] / 1e9 for point in group], linestyle="none", alpha=0.85,
                  marker=PASS_MARKERS[which], color=looks.colour(name), markeredgewidth=0.8,
                  markerfacecolor=looks.colour(name) if clean else "white")
    low, high = min(point["x"] for point in points) / 2, max(point["x"] for point in points) * 2
    if bandwidth > 0:
        low = min(low, peak / bandwidth / 3)  # the ridge is part of the picture
    if peak > 0:
        ridge = peak / bandwidth if bandwidth > 0 else low
        axes.plot([max(low, ridge), high], [peak / 1e9] * 2, color=style.INK, linewidth=1.6)
        axes.text(high, peak / 1e9 * 1.06, f"{style.plain(peak / 1e9)} GFLOP/s measured", ha="right", va="bottom", fontsize=9)
        if low < ridge:
            axes.plot([low, ridge], [low * bandwidth / 1e9, peak / 1e9], color=style.INK, linewidth=1.6)
            axes.text(low * 1.08, low * bandwidth / 1e9, f"{style.plain(bandwidth / 1e9)} GB/s", rotation=0, ha="left", va="top",
                      fontsize=9)
    axes.set_xlim(low, high)
    axes.set_xlabel("operations per byte")
    for axis in (axes.xaxis, axes.yaxis):
        style.log_labels(axis)
