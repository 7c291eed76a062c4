"""Published tables: all their figures are read, presets measure them all, and sentences follow from them."""

import subprocess

import pytest
from conftest import FACTS, ROOT, line, row

from fovea_report import drawing, looks
from fovea_report.pictures import published_pictures
from fovea_report.published import read_published
from fovea_report.published_pages import findings, pages
from fovea_report.vocabulary import parse_case

FOLDER = ROOT / "python/fovea_report/published_tables"
FIGURES = {"A": 48 * 3, "B": 56 * 6, "C": 15 * 9, "D1": 3 * 4, "D2": 20 * 2, "D3": 54 * 6, "E": 96}
REPORTS = [read_published(one) for one in sorted(FOLDER.glob("*.toml"))]


def test_every_table_has_one_description():
    assert {one.with_suffix(".csv").name for one in FOLDER.glob("*.toml")} == {one.name for one in FOLDER.glob("*.csv")}
    assert {one.letter: one.printed for one in REPORTS} == FIGURES


@pytest.mark.parametrize("report", REPORTS, ids=lambda one: one.letter)
def test_every_table_names_its_source_and_the_docs_do_too(report):
    repository = report.source.split(",")[0]
    assert repository.startswith("github.com/") or "its repository is not known" in report.source
    if repository.startswith("github.com/"):
        assert repository in (ROOT / "docs/reports.md").read_text(encoding="utf-8")


def measured(report, scale: str) -> set:
    is_profile = report.says.get("verb") == "profile"
    asked = {"presets": "profiles", "cuts": "profile_cuts"}[scale] if is_profile else scale
    printed = subprocess.run([FACTS, asked, report.preset], capture_output=True, text=True, check=True)
    more = {"bwd", "e2e"} if is_profile else set()  # without the optimizer, which the report does not tell apart
    return {(report.measurement(case), case["pass"]) for case in map(parse_case, printed.stdout.splitlines())
            if case["pass"] not in more}


def wanted(report, cut: bool) -> set:
    return {(one.measurement, pass_) for one in report.figures.itertuples() if one.cut == cut
            for pass_ in one.pass_.split("+")}


@pytest.mark.parametrize("report", REPORTS, ids=lambda one: one.letter)
def test_a_preset_measures_exactly_the_figures_of_its_report(report):
    assert measured(report, "presets") == wanted(report, cut=False)


def test_the_quick_scale_measures_the_smaller_sizes_that_a_description_names():
    cut = [one for one in REPORTS if "cut" in one.says]
    assert [one.letter for one in cut] == ["C", "D1"]
    for report in cut:
        assert measured(report, "cuts") == wanted(report, cut=True)


@pytest.mark.parametrize("report", REPORTS, ids=lambda one: one.letter)
def test_sentences_have_all_their_figures(report):
    said = findings(report)
    assert said and not any("nan" in one or "{" in one or "- " in one[:2] for one in said)


def test_words_are_kept_as_words():
    e = next(one for one in REPORTS if one.letter == "E")
    assert (e.figures.word == "OOM").sum() == 17 and e.figures["mean"].isna().sum() == 17


def test_figures_measured_here_stand_beside_the_printed_ones(study):
    keys = {"lq": 512, "d": 64, "dtype": "bf16"}
    made = study([row("naive", 4, **keys), row("cpu.avx2", 1, **keys), row("cpu.scalar", 9, **keys)])
    page = next(one for one in pages(made, FOLDER) if one.report.letter == "B")
    heads = [column.title for column in page.tables[0].columns]
    found = {(one[heads.index("figures")].text, one[heads.index("implementation")].text): dict(zip(heads, one))
             for one in page.tables[0].rows}
    assert set(found) == {("here", "naive"), ("here", "flash"), ("published", "torch"), ("published", "triton")}
    assert found["here", "flash"]["forward (mean)"].text == "1.01", "the faster of the two of this library"
    assert found["here", "flash"]["forward (speed-up)"].text == "4.00\u00d7"
    assert any("4.00\u00d7 here" in said for said in page.comparisons)
    assert ("forward, bf16: flash is faster at every d from length 512 on (here) and from length 512 on (published)."
            in page.comparisons)


def test_rows_of_one_machine_and_thread_count_are_compared(study):
    keys = {"lq": 512, "d": 64, "dtype": "bf16"}
    made = study([row("naive", 4, **keys), row("cpu.avx2", 1, threads=1, **keys)])
    page = next(one for one in pages(made, FOLDER) if one.report.letter == "B")
    assert not page.comparisons


def test_memory_is_compared_with_the_formula(study):
    keys = {"lq": 256, "d": 16, "b": 8, "mask": "none", "pass": "bwd"}
    held = 8 * 256 * 4 * (4 * 16 + 256 + 1)
    page = pages(study([row("naive", 1, held=held, **keys)]), FOLDER)[0]
    assert page.report.letter == "D2" and "at most 0 % in 1 cell" in page.comparisons[0]


def layer_line(op: str, pass_: str, **keys) -> str:
    shape = {"b": 2, "hq": 12, "lq": 2048, "d": 64, "e": 768, "dtype": "bf16", "mask": "none", "bias": "no",
             "scale": 0.125}
    rest = {"device": "cuda", "data": "normal", "place": "contiguous", "seed": 0}
    return line(op, **{"pass": pass_, **shape, **keys, **rest})


@pytest.fixture
def report_c(study):
    """The page of report C, where the fused form is fastest here."""
    times = {"naive": 4, "fused": 1, "cuda.any": 2}
    made = study([row(impl, ms, problem=layer_line("mha_fused", pass_)) for impl, ms in times.items()
                  for pass_ in ("fwd", "bwd", "e2e")])
    return next(one for one in pages(made, FOLDER) if one.report.letter == "C")


def cells(table) -> dict[tuple, dict]:
    heads = [column.title for column in table.columns]
    last = heads.index("implementation") if "implementation" in heads else heads.index("figures")
    return {tuple(cell.text for cell in one[heads.index("figures"):last + 1]): dict(zip(heads, one))
            for one in table.rows}


def test_incomplete_cells_are_marked_with_their_floor_and_not_ranked(report_c):
    found = cells(report_c.tables[0])
    backward = found["published", "triton"]["backward (mean)"]
    assert backward.text == "0.367" and backward.detail == "incomplete, floor 0.284" and backward.style == "muted"
    speed_up = found["published", "triton"]["backward (speed-up)"]
    assert (speed_up.detail, speed_up.style) == ("incomplete", "muted")
    assert found["published", "triton"]["forward (speed-up)"].detail == "", "this pass computes all of it"
    assert found["published", "flash"]["backward (speed-up)"].style == "best", "the fastest complete one"
    assert found["published", "triton"]["forward (mean)"].detail == ""
    assert found["here", "fused"]["backward (speed-up)"].style == "best", "ours computes every gradient"


def test_twelve_cells_are_below_their_floor():
    c = next(one for one in REPORTS if one.letter == "C").figures.drop_duplicates("number")
    assert (c["mean"] < c.floor).sum() == 12 and c.incomplete.sum() == 30
    report_c = next(one for one in REPORTS if one.letter == "C")
    assert any(said.startswith("12 of its 15 backward times") for said in findings(report_c))


def test_the_best_speed_up_names_who_has_it(report_c):
    found = cells(report_c.tables[1])
    assert (found["here",]["backward"].text, found["here",]["backward"].detail) == ("4.00\u00d7", "fused")
    assert (found["published",]["forward"].text, found["published",]["forward"].detail) == ("3.20\u00d7", "flash")
    assert found["published",]["backward"].detail == "flash", "not the incomplete one"


def test_a_published_row_that_stands_for_several_problems_is_printed_once(study):
    times = {("none", "naive"): 8, ("none", "cuda.any"): 2, ("causal", "naive"): 6, ("causal", "cuda.any"): 1}
    made = study([row(impl, ms, problem=layer_line("mha", "fwd", mask=mask)) for (mask, impl), ms in times.items()])
    page = next(one for one in pages(made, FOLDER) if one.report.letter == "C")
    table, best = page.tables
    heads = [column.title for column in table.columns]
    assert "key length" not in heads, "no layer of the report has one"
    shown = ("operation", "heads", "mask", "figures", "implementation", "forward (speed-up)")
    assert [[one[heads.index(head)].text for head in shown] for one in table.rows] == [
        ["mha", "12", "not stated", "published", "torch", "1.00\u00d7"],
        ["mha", "12", "not stated", "published", "flash", "2.97\u00d7"],
        ["mha", "12", "none", "here", "naive", "1.00\u00d7"], ["mha", "12", "none", "here", "flash", "4.00\u00d7"],
        ["mha", "12", "causal", "here", "naive", "1.00\u00d7"], ["mha", "12", "causal", "here", "flash", "6.00\u00d7"]]
    heads = [column.title for column in best.columns]
    assert [[one[heads.index(head)].text for head in ("mask", "figures", "forward")] for one in best.rows] == [
        ["not stated", "published", "2.97\u00d7"], ["none", "here", "4.00\u00d7"], ["causal", "here", "6.00\u00d7"]]
    assert "flash over naive in 2 shared configurations: 4.90\u00d7 here, 2.97\u00d7 published" in page.comparisons[0]


def test_smaller_sizes_have_their_own_tables(study):
    lines = {pass_: layer_line("gqa", pass_, hq=8, hkv=2, lq=512, e=512) for pass_ in ("fwd", "bwd")}
    made = study([row(impl, ms, problem=lines[pass_]) for impl, ms in (("naive", 4), ("cpu.avx2", 1))
                  for pass_ in lines])
    page = next(one for one in pages(made, FOLDER) if one.report.letter == "C")
    assert (page.matched, page.matched_cut) == (0, 4) and not page.comparisons
    assert [one.id for one in page.tables] == ["published-c-cut", "published-c-best-cut"]
    assert "length 512" in page.tables[0].conditions
    found = {key: [line[head].text for head in ("operation", "heads", "length", "mask")]
             for key, line in cells(page.tables[0]).items()}
    assert found["published", "torch"] == ["gqa", "32", "2048", "not stated"], "the sizes of the published figure"
    assert found["here", "naive"] == ["gqa", "8", "512", "none"]


def profile_row(impl: str, pass_: str, ms: float | None = None, **keys) -> dict:
    sizes = {"layers": 12, "width": 768, "heads": 12, "hidden": 3072, "vocabulary": 10000, "params": 128625408}
    said = line("model", **{"pass": pass_, "model": "report-d1:sm", "b": 2, "lq": 512, **sizes, "dtype": "fp32",
                            "device": "cuda", **keys})
    return row(impl, ms, problem=said, status="ok" if ms else "oom")


def test_a_profile_stands_beside_report_d1(study):
    rows = [profile_row("fovea", "fwd", 10), profile_row("torch.eager", "fwd", 20), profile_row("fovea", "step", 40),
            profile_row("torch.eager", "step"), profile_row("fovea", "step_rest", 30)]
    page = next(one for one in pages(study(rows), FOLDER) if one.report.letter == "D1")
    assert page.matched == 3 and page.matched_cut == 0
    found = cells(page.tables[0])
    assert set(found) == {("here", "torch.eager"), ("here", "fovea"), ("published", "torch")}
    published, own = found["published", "torch"], found["here", "fovea"]
    assert published["forward of a step (mean)"].text == "22.5"
    assert published["step with optimizer (mean)"].text == "64.5"
    assert own["forward (speed-up)"].text == "2.00\u00d7" and own["forward (sum)"].text == "30.3"
    assert found["here", "torch.eager"]["step with optimizer (mean)"].text == "OOM"
    assert found["here", "torch.eager"]["step with optimizer (speed-up)"].text == "OOM"
    assert own["step with optimizer (mean)"].text == "40.4"
    assert own["step with optimizer (speed-up)"].text == "-", "only the peer ran out of memory"


def test_this_library_alone_stands_beside_report_d1_at_smaller_sizes_too(study):
    page = next(one for one in pages(study([profile_row("fovea", "step", 40, b=1, lq=128)]), FOLDER)
                if one.report.letter == "D1")
    assert page.matched == 0 and page.matched_cut == 1
    assert set(cells(page.tables[0])) == {("here", "fovea"), ("published", "torch")}


def test_published_words_and_times_are_drawn(study):
    keys = {"hq": 12, "dtype": "fp16", "d": 64}
    made = study([row(impl, ms * n / 512, lq=n, spread=spread, **keys)
                  for impl, ms, spread in (("naive", 4, 0.02), ("cpu.avx2", 1, 0.8)) for n in (512, 1024)]
                 + [row("naive", status="timeout", lq=16384, **keys), row("cpu.avx2", 9, lq=16384, **keys)])
    book = next(page.book for page in pages(made, FOLDER) if page.report.letter == "E")
    ratios, times = published_pictures(book)
    assert {one.name: len(one.points) for one in times.panels[0].series}["flash, published"] == 3
    naive = {one.name: one.missing for one in times.panels[0].series}
    assert naive["naive, here"] == [(16384, "timeout")] and naive["naive, published"] == [(16384, "OOM (published)")]
    assert {one.name for one in ratios.panels[0].series if len(one.points)} == {"flash, here", "flash, published"}
    bars = {one.name: one.points[["low", "y", "high"]].iloc[0].tolist() for one in ratios.panels[0].series
            if len(one.points)}
    assert bars["flash, here"] == pytest.approx([4 * 0.98 / 1.8, 4, 4 * 1.02 / 0.2])
    assert bars["flash, published"][0] != bars["flash, published"][0]  # NaN
    low, high = drawing.together(ratios, looks.Looks(ratios.names())).axes[0].get_ylim()
    assert low < bars["flash, here"][0] and bars["flash, here"][2] < high, "bars stand inside the panel"
    assert {one.name: one.missing for one in ratios.panels[0].series if one.missing} == {
        name: missing for name, missing in naive.items() if missing}  # they tell why curves end


def test_published_d2_marks_our_own_timeouts(study, tmp_path):
    keys = {"mask": "none", "b": 8, "d": 64}
    made = study([row(impl, ms * n / 256, lq=n, held=n * 1000, **keys, **{"pass": pass_})
                  for impl, ms in (("naive", 4), ("cpu.avx2", 1)) for n in (256, 1024) for pass_ in ("fwd", "bwd")]
                 + [row("naive", status="timeout", lq=16384, **keys, **{"pass": pass_}) for pass_ in ("fwd", "bwd")])
    picture = next(published_pictures(next(
        page.book for page in pages(made, FOLDER) if page.report.letter == "D2")))
    missing = {one.name: one.missing for one in picture.panels[0].series}
    assert missing["naive, here"] == [(16384, "timeout")]
    drawn = drawing.together(picture, looks.Looks(["naive", "cpu.avx2"])).axes[0]
    assert {"timeout", "OOM (published)"} <= {one.get_text() for one in drawn.texts}


def test_published_b_keeps_its_line_of_failures(study):
    keys = {"dtype": "bf16", "d": 128}
    made = study([row(impl, ms * n / 512, lq=n, **keys)
                  for impl, ms in (("naive", 4), ("cpu.avx2", 1)) for n in (512, 1024)])
    book = next(page.book for page in pages(made, FOLDER) if page.report.letter == "B")
    series = {one.name: one for one in next(published_pictures(book)).panels[0].series}
    assert [word for _, word in series["flash, published"].missing] == ["OOM (published)"] * 2


def test_published_times_of_models_have_a_panel_for_each_pass(study):
    sizes = "b=2 lq=512 vocabulary=10000 dtype=fp32 device=cuda"
    models = {"sm": (12, 768, 12, 3072, 128625408), "md": (24, 1024, 16, 4096, 423183360)}
    made = study([row("fovea", ms, problem=f"op=model pass={pass_} model=report-d1:{name} layers={layers} "
                      f"width={width} heads={heads} hidden={hidden} params={params} {sizes}")
                  for name, (layers, width, heads, hidden, params) in models.items()
                  for pass_, ms in (("fwd", 1e-7 * params), ("step", 3e-7 * params))])
    picture, = published_pictures(next(
        page.book for page in pages(made, FOLDER) if page.report.letter == "D1"))
    assert [panel.title.split(", ")[0] for panel in picture.panels] == [
        "forward", "forward of a step", "backward + optimizer", "step with optimizer"]
    for panel, ours in zip(picture.panels, (2, 0, 0, 2)):
        assert panel.along == "parameters" and panel.title.endswith(", fp32, batch 2, context 512")
        of = {one.name: list(one.points.x) for one in panel.series}
        assert of["torch.eager, published"] == [128625408, 423183360] and len(of.get("fovea, here", [])) == ours
