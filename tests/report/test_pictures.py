"""Pictures: colours that match the verdicts and can be told apart, words instead of missing points."""

import itertools

import matplotlib
import numpy as np
import pandas as pd
import pytest
from conftest import row
from matplotlib.colors import to_rgb
from PIL import Image

from fovea_report import drawing, looks, pictures
from fovea_report.pictures import pictures_of


def test_colour_is_monotone_in_the_ratio():
    shades = [drawing.shade(2 ** (n / 8)) for n in range(80)]
    assert all(a[2] >= b[2] - 1e-9 or a[0] < b[0] for a, b in itertools.pairwise(shades))
    assert shades[32] == shades[79] == drawing.shade(16) == drawing.shade(1000.0) != drawing.shade(1)


def test_names_differ_in_colour_and_marker():
    names = [f"torch.{n}" for n in range(len(looks.COLOURS))]
    made = looks.Looks(names)
    assert len({made[name].colour for name in names}) == len({made[name].marker for name in names}) == len(names)
    more = [made[f"x{n}"] for n in range(40)]
    assert len({(one.colour, one.dashes) for one in more}) == 40
    assert len({(one.colour, one.marker) for one in [*more, *map(made.__getitem__, names)]}) == 40 + len(names), "bars"


def linear(colour: str) -> list[float]:
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]


def oklab(colour: str) -> np.ndarray:
    """Lightness and two hues in which equal distances look alike (Ottosson 2020)."""
    cones = np.cbrt(np.array([[0.4122214708, 0.5363325363, 0.0514459929], [0.2119034982, 0.6806995451, 0.1073969566],
                              [0.0883024619, 0.2817188376, 0.6299787005]]) @ linear(colour))
    return np.array([[0.2104542553, 0.7936177850, -0.0040720468], [1.9779984951, -2.4285922050, 0.4505937099],
                     [0.0259040371, 0.7827717662, -0.8086757660]]) @ cones


@pytest.mark.parametrize("colours, least", [(list(looks.COLOURS), 0.06), (list(looks.COLOURS.values()), 0.14)])
def test_no_two_colours_look_alike(colours, least):
    for one, other in itertools.combinations(colours, 2):
        assert np.linalg.norm(oklab(one) - oklab(other)) > least, (one, other)


def contrast(*colours: str) -> float:
    """As WCAG defines it."""
    of = [sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear(one))) for one in colours]
    return (max(of) + 0.05) / (min(of) + 0.05)


@pytest.mark.parametrize("colour", looks.COLOURS)
def test_colours_stand_out_on_light_and_dark_paper(colour):
    assert contrast(colour, looks.PAPER) >= 3
    assert contrast(looks.COLOURS[colour], looks.DARK[looks.PAPER]) >= 3


def rows_of_lengths() -> list[dict]:
    rows = [row(impl, ms * n / 128, lq=n, **{"pass": pass_}) for impl, ms in (("naive", 2), ("cpu.avx2", 1))
            for n in (128, 256, 512, 1024) for pass_ in ("fwd", "bwd")]
    return rows + [row("naive", status="oom", lq=2048), row("cpu.avx2", 9, lq=2048)]


def test_every_kind_is_made_and_drawn(study, tmp_path):
    made = pictures_of(study(rows_of_lengths()), [])
    assert {one.kind for one in made} == {"rate", "growth", "speedup", "memory", "roofline"}
    assert len({one.name for one in made}) == len(made)
    style = looks.Looks(["naive", "cpu.avx2"])
    for one in made:
        panels = drawing.draw(one, style, tmp_path / f"{one.name}.png")
        assert (tmp_path / f"{one.name}.png").stat().st_size > 1000
        assert len(panels) == len(one.panels)
        assert all(len(svg) < 40_000 for svg in panels), "a page has a hundred of them"
        assert all(svg.startswith("<svg") and "#" not in svg.replace("#" + one.name, "") for svg in panels)


def settings() -> dict:
    """Of matplotlib; the backend is chosen at its first use."""
    return {name: value for name, value in matplotlib.rcParams.items() if name != "backend"}


def test_drawing_leaves_the_settings_of_matplotlib_as_they_were(study, tmp_path):
    before, picture = settings(), pictures_of(study(rows_of_lengths()), [])[0]
    axes = drawing.together(picture, looks.Looks(picture.names())).axes[0]
    assert axes.get_title(loc="left"), "the style puts it to the left"
    drawing.draw(picture, looks.Looks(picture.names()), tmp_path / "one.png")
    assert settings() == before


def test_every_step_of_a_model_is_in_a_box(study, tmp_path):
    sizes = "b=1 lq=16 layers=1 width=8 heads=1 hidden=8 vocabulary=9 params=616 dtype=fp32 device=cpu"
    rows = [row(impl, ms, problem=f"op=model pass={pass_} model=custom {sizes}")
            for pass_, ms in (("step_fwd", 2), ("step_rest", 5), ("step", 7)) for impl in ("fovea", "torch.eager")]
    picture, = (one for one in pictures_of(study(rows), []) if one.kind == "phases")
    panel, = picture.panels
    assert [one.name for one in panel.series] == ["torch.eager", "fovea"]
    for series in panel.series:
        assert sorted(series.points.y) == pytest.approx([2, 2, 2, 5, 5, 5])
        assert list(dict.fromkeys(series.points.x)) == ["forward of a step", "backward + optimizer"]
    style = looks.Looks(picture.names())
    figure = drawing.together(picture, style)
    drawn = [one.get_marker() for one in figure.axes[0].get_lines() if len(one.get_xdata()) == 2 and
             one.get_marker() not in ("None", "") and one.get_linestyle() == "None"]
    assert drawn == [style[one.name].marker for one in panel.series]
    assert [one.get_text() for one in figure.legends[0].get_texts()] == ["torch.eager", "fovea"]
    svg, = drawing.draw(picture, style, tmp_path / "steps.png")
    assert "backward + optimizer" in svg and "#" not in svg.replace("#" + picture.name, "")


def test_a_step_has_a_box_for_each_phase_that_is_recorded(study, tmp_path):
    sizes = "model=custom b=1 lq=16 layers=1 width=8 heads=1 hidden=8 vocabulary=9 params=616 dtype=fp32 device=cpu"
    phases = {"step_fwd": {"forward": 2}, "step_rest": {"backward": 4, "optimizer": 1},
              "step": {"forward": 2, "backward": 4, "optimizer": 1}}
    rows = [{**row(impl, sum(of.values()), problem=f"op=model pass={pass_} {sizes}"),
             "phases": {phase: row(impl, ms)["time_s"] for phase, ms in of.items()}}
            for pass_, of in phases.items() for impl in ("fovea", "torch.eager")]
    picture, = (one for one in pictures_of(study(rows), []) if one.kind == "phases")
    panel, = picture.panels
    assert [one.name for one in panel.series] == ["torch.eager", "fovea"]
    for series in panel.series:
        assert list(series.points.x) == [phase for phase in phases["step"] for _ in range(3)]
        assert list(series.points.y) == pytest.approx([2, 2, 2, 4, 4, 4, 1, 1, 1])
    svg, = drawing.draw(picture, looks.Looks(picture.names()), tmp_path / "steps.png")
    assert all(f">{phase}<" in svg for phase in phases["step"])


def of_models(impl: str, pass_: str, ms: float) -> list[dict]:
    """Rows of three models of growing size, whose time grows as their parameters."""
    words = f"op=model pass={pass_} model=custom b=1 lq=16"
    return [row(impl, ms * n, problem=f"{words} layers={n} width=8 heads=1 hidden=8 vocabulary=9 params={n * 1000} "
                "dtype=fp32 device=cpu") for n in (1, 2, 8)]


def test_times_of_models_have_a_trend(study, tmp_path):
    rows = [one for impl, ms in (("fovea", 2), ("torch.eager", 3)) for pass_ in ("fwd", "bwd", "step")
            for one in of_models(impl, pass_, ms)]
    made = [one for one in pictures_of(study(rows), []) if one.kind == "growth"]
    assert [one.name for one in made] == ["growth-fwd", "growth-bwd", "growth-step"]
    for picture in made:
        panel, = picture.panels
        assert panel.along == "parameters" and panel.lengths() == [1000, 2000, 8000]
        eager, own = panel.series
        assert (eager.name, own.name) == ("torch.eager", "fovea") and list(own.points.y) == pytest.approx([2, 4, 16])
        assert own.fit.exponent == pytest.approx(1) and own.fit.end == 8000
        svg, = drawing.draw(picture, looks.Looks(picture.names()), tmp_path / "trend.png")
        assert "n^1.00" in svg
    one_model = [one for one in rows if "layers=2" in one["problem"]]
    assert not [one for one in pictures_of(study(one_model), []) if one.kind == "growth"]


def test_the_memory_of_a_step_has_a_timeline(study, tmp_path):
    rows = [{**one, "memory_before_forward_bytes": 5e8, "memory_before_backward_bytes": 2e9, "workspace_bytes": 1e9}
            for one in of_models("fovea", "step", 2)] + of_models("torch.eager", "step", 3)
    rows = [{key: int(value) if key.endswith("_bytes") else value for key, value in one.items()} for one in rows]
    picture, = (one for one in pictures_of(study(rows), []) if one.kind == "timeline")
    assert [[one.name for one in panel.series] for panel in picture.panels] == 3 * [["fovea"]], "a CPU knows no peer's"
    for panel in picture.panels:
        points = panel.series[0].points
        assert list(points.x) == ["before forward", "before backward", "peak"]
        assert list(points.y) == pytest.approx([0.5, 2, 3])
    svg, *_ = drawing.draw(picture, looks.Looks(picture.names()), tmp_path / "timeline.png")
    assert "before backward" in svg and "#" not in svg.replace("#" + picture.name, "")


def looks_of(lines) -> set[tuple]:
    """Colour and marker of whatever shows an implementation."""
    return {(one.get_color(), one.get_marker()) for one in lines
            if one.get_marker() not in ("None", "") and one.get_color() in looks.COLOURS}


@pytest.mark.parametrize("kind", ["rate", "growth", "speedup", "memory", "roofline"])
def test_the_legend_shows_the_points_as_they_are_drawn(study, kind):
    made, style = study(rows_of_lengths()), looks.Looks(["naive", "cpu.avx2"])
    chosen = [one for one in pictures_of(made, []) if one.kind == kind]
    assert {one.title.split(", ")[1] for one in chosen} == {"forward", "backward"}
    for one in chosen:
        figure = drawing.together(one, style)
        drawn = {look for axes in figure.axes for look in looks_of(axes.get_lines())}
        assert drawn == looks_of(figure.legends[0].legend_handles), one.name


def test_a_roof_is_of_one_number_of_threads(study):
    made = pictures_of(study([row("naive", n, threads=n, lq=length) for n in (1, 2) for length in (512, 1024)]), [])
    panels = [panel for one in made if one.kind == "roofline" for panel in one.panels]
    assert [panel.title for panel in panels] == ["fp32, cpu, 1 thread", "fp32, cpu, 2 threads"]
    # Of a shape only its longest length is drawn.
    assert all(len(series.points) == 1 for panel in panels for series in panel.series)


def test_the_words_of_a_roof_stand_above_it(study):
    roof = next(one for one in pictures_of(study(rows_of_lengths()), []) if one.kind == "roofline")
    axes = drawing.Figure().subplots()
    drawing.roofline(axes, None, roof.panels[0], looks.Looks(["naive", "cpu.avx2"]))
    axes.figure.draw_without_rendering()
    for text in axes.texts:
        x, y = axes.transData.inverted().transform(text.get_window_extent().min)
        peak, bandwidth = (rate / 1e12 for rate in roof.panels[0].ceilings)
        assert y > min(peak, x * bandwidth), text.get_text()


def test_a_cell_without_a_time_is_a_word_and_no_point(study):
    growth = next(one for one in pictures_of(study(rows_of_lengths()), []) if one.name == "growth-fwd")
    naive = next(one for one in growth.panels[0].series if one.name == "naive")
    assert naive.missing == [(2048, "OOM")] and len(naive.points) == 4
    assert naive.fit.exponent == pytest.approx(1)


def test_a_sweep_with_a_shrinking_batch_is_one_curve(study):
    rows = [row("cpu.avx2", 1, lq=n, b=8192 // n) for n in (512, 1024, 2048)]
    rate = next(one for one in pictures_of(study(rows), []) if one.kind == "rate")
    assert len(rate.panels) == 1 and "batch 4 to 16" in rate.panels[0].title


def test_other_differences_of_sizes_make_two_sweeps(study):
    rows = [row("cpu.avx2", 1, lq=n, hq=1) for n in (256, 1024)]
    rows += [row("cpu.avx2", 1, lq=n, hq=16) for n in (512, 2048)]
    rate = next(one for one in pictures_of(study(rows), []) if one.kind == "rate")
    assert len(rate.panels) == 2


def test_speed_ups_have_error_bars_from_the_quartiles_of_both(study):
    made = study([row(impl, ms, lq=n, spread=spread) for impl, ms, spread in (("naive", 4, 0.1), ("cpu.avx2", 1, 0.2))
                  for n in (512, 1024)])
    picture = next(one for one in pictures_of(made, []) if one.kind == "speedup")
    for one in picture.panels[0].series[0].points.itertuples():
        assert (one.low, one.y, one.high) == pytest.approx((4 * 0.9 / 1.2, 4, 4 * 1.1 / 0.8))
    axes = drawing.together(picture, looks.Looks(["naive", "cpu.avx2"])).axes[0]
    bars = [segment for one in axes.collections for segment in getattr(one, "get_segments", list)()]
    assert sorted(tuple(bar[:, 1]) for bar in bars) == [pytest.approx((3, 5.5))] * 2


def test_words_of_missing_bars_stand_inside_the_panel(study):
    rows = [row(impl, 1, lq=n) for impl in ("naive", "fused", "cpu.avx2") for n in (512, 1024)]
    rows += [row(impl, status="timeout", lq=2048) for impl in ("naive", "fused", "cpu.avx2")]
    rate = next(one for one in pictures_of(study(rows), []) if one.kind == "rate")
    figure = drawing.together(rate, looks.Looks(["naive", "fused", "cpu.avx2"]))
    figure.draw_without_rendering()
    axes = figure.axes[0]
    assert len(axes.texts) == 3
    for text in axes.texts:
        box = text.get_window_extent()
        assert axes.bbox.x0 <= box.x0 and box.x1 <= axes.bbox.x1


def test_the_legend_has_the_order_of_the_bars(study):
    names = ["naive", "fused", "torch.sdpa", "cpu.avx2"]
    made = study([row(impl, 1, lq=n) for impl in names for n in (512, 1024)])
    rate = next(one for one in pictures_of(made, []) if one.kind == "rate")
    style = looks.Looks(made.implementations, made.own(made.all))
    axes = drawing.together(rate, style).axes[0]
    bars = sorted((bar.get_x(), n) for n, one in enumerate(axes.containers) for bar in one)
    assert [names[n] for _, n in bars] == names * 2
    assert style.in_order(rate.names()) == names


def test_a_legend_of_several_rows_reads_row_by_row():
    handles = [looks.Looks([]).handle(f"implementation.{n}") for n in range(11)]
    figure = drawing.Figure(figsize=(8, 3))
    rows = looks.rows_of_legend(figure, handles, 1)
    figure.draw_without_rendering()
    texts = [(-round(one.get_window_extent().y0), one.get_window_extent().x0, one.get_text())
             for one in figure.legends[0].get_texts()]
    assert 1 < rows == len({y for y, _, _ in texts})
    assert [text for _, _, text in sorted(texts)] == [handle.get_label() for handle in handles]


def test_exponents_stand_below_the_lines(study):
    names = [f"torch.{n}" for n in range(8)]
    made = study([row(name, (1 + n) * length / 512, lq=length) for n, name in enumerate(names)
                  for length in (512, 1024, 2048, 4096)])
    growth = next(one for one in pictures_of(made, []) if one.kind == "growth")
    figure = drawing.together(growth, looks.Looks(names))
    figure.draw_without_rendering()
    axes = figure.axes[0]
    lowest = min(axes.transData.transform((line.get_xdata()[0], min(line.get_ydata())))[1]
                 for line in axes.get_lines() if len(line.get_ydata()))
    legend = axes.get_legend().get_window_extent()
    assert legend.y1 <= lowest and legend.x0 >= axes.bbox.x0
    assert len({handle.get_marker() for handle in axes.get_legend().legend_handles}) == len(names)


def test_lines_that_coincide_all_have_markers(study):
    made = study([row(impl, 1, lq=n) for impl in ("naive", "fused", "cpu.avx2") for n in (512, 1024)])
    memory = next(one for one in pictures_of(made, []) if one.kind == "memory")
    axes = drawing.together(memory, looks.Looks(made.implementations)).axes[0]
    axes.figure.draw_without_rendering()
    drawn = [(one.get_marker(), one.get_transform().transform(one.get_xydata())) for one in axes.get_lines()
             if one.get_marker() not in ("None", "") and len(one.get_xdata())]
    assert len({marker for marker, _ in drawn}) == len(drawn) == 3
    assert len({round(x) for _, at in drawn for x in at[:, 0]}) == 6


def test_many_bars_make_several_panels_and_lengths_of_few_have_no_gaps(study):
    many = [f"torch.{n}" for n in range(9)]
    made = study([row(impl, 1, lq=512 << n) for impl in many for n in range(6)])
    panels = next(one for one in pictures_of(made, []) if one.kind == "rate").panels
    assert [panel.lengths() for panel in panels] == [[512, 1024, 2048], [4096, 8192, 16384]]
    assert len({panel.title for panel in panels}) == 2
    made = study([row(impl, 1, lq=n) for impl, n in (("naive", 512), ("fused", 1024), ("cpu.avx2", 512),
                                                     ("cpu.avx2", 1024))])
    rate = next(one for one in pictures_of(made, []) if one.kind == "rate")
    axes = drawing.together(rate, looks.Looks(["naive", "fused", "cpu.avx2"])).axes[0]
    assert all(bar.get_width() == pytest.approx(0.42) for one in axes.containers for bar in one)


@pytest.mark.parametrize("missing", [[512], [512, 1024, 2048, 4096]])
def test_words_of_missing_points_stand_inside_the_panel(study, missing):
    rows = [row("cpu.avx2", n, lq=n) for n in (512, 1024, 2048, 4096)]
    rows += [row("onnxruntime", status="unsupported" if n in missing else "ok", lq=n) for n in (512, 1024, 2048, 4096)]
    growth = next(one for one in pictures_of(study(rows), []) if one.kind == "growth")
    style = looks.Looks(["onnxruntime", "cpu.avx2"])
    figure = drawing.together(growth, style)
    figure.draw_without_rendering()
    axes = figure.axes[0]
    word = next(one for one in axes.texts if one.get_text() == "unsupported")
    assert word.get_window_extent().x0 >= axes.bbox.x0
    beside = next(line for line in axes.get_lines() if line.get_transform() == axes.get_xaxis_transform())
    assert beside.get_marker() == style["onnxruntime"].marker and list(beside.get_xdata()) == list(missing)


def test_words_in_the_colour_of_a_name_follow_the_paper():
    figure = drawing.Figure()
    for colour in looks.COLOURS:
        figure.text(0.5, 0.5, "OOM", color=colour)
    svg = drawing.svg_of(figure, "words")
    assert all(f"var(--{colour[1:]})" in svg for colour in looks.COLOURS)


def test_a_png_keeps_the_colours_of_its_names():
    shades = np.random.default_rng(0).integers(0, 256, (200, 200, 3), dtype=np.uint8)
    own = [tuple(bytes.fromhex(colour[1:])) for colour in (*looks.COLOURS, looks.PAPER, looks.INK)]
    shades[0, :len(own)] = own
    few = drawing.few_colours(Image.fromarray(shades))
    assert few.mode == "P" and [few.convert("RGB").getpixel((x, 0)) for x in range(len(own))] == own


def test_lines_of_memory_that_coincide_take_turns():
    def series(name, *held):
        return pictures.Series(name, pd.DataFrame({"x": [512, 1024, 2048][:len(held)], "y": held}))
    naive, fused, flash = series("naive", 10, 40, 160), series("fused", 10, 40.1), series("flash", 11.05, 44.2, 177)
    assert drawing.coincide(naive, fused) and drawing.coincide(naive, naive)
    assert not drawing.coincide(naive, flash) and not drawing.coincide(flash, naive)


def test_panels_of_rates_stand_in_the_order_of_head_dimensions(study):
    cells = [{"b": 4, "hq": 16, "d": 64}, *({"b": 8, "d": d} for d in (16, 32, 64, 128))]
    made = study([row(impl, lq=length, **cell) for impl in ("naive", "cpu.avx2") for cell in cells
                  for length in (256, 1024)])
    panels = [panel.title for one in pictures_of(made, []) if one.kind == "rate" for panel in one.panels]
    dims = [title.split("d ")[-1] for title in panels if "batch 8" in title]
    assert dims == ["16", "32", "64", "128"]
