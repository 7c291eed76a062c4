"""Labels: every sentence, row, panel and title tells its cells from all others."""

import itertools
import json
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from conftest import ENVIRONMENT, ROOT, line, row
from matplotlib.text import Text

from fovea_report import drawing, looks
from fovea_report.observations import observations
from fovea_report.pictures import Picture, pictures_of
from fovea_report.published_pages import Page, pages
from fovea_report.render import Report
from fovea_report.study import Study, make_study, where
from fovea_report.tables import failures_table

FOLDERS = sorted({path.parent for path in ROOT.glob("results/*/*.jsonl")})


@pytest.fixture(scope="module", params=FOLDERS, ids=lambda one: one.name)
def committed(request, vocabulary) -> Study:
    return make_study(sorted(request.param.glob("*.jsonl")), vocabulary)


@pytest.fixture(scope="module")
def published(committed) -> list[Page]:
    return pages(committed, ROOT / "python/fovea_report/published_tables")


@pytest.fixture(scope="module")
def drawn(committed, published) -> list[Picture]:
    return pictures_of(committed, published)


def ambiguous(study: Study) -> list[str]:
    """The labels that more than one cell has."""
    cells: defaultdict[str, set[int]] = defaultdict(set)
    for one in study.all.itertuples():
        cells[where(study, one)].add(one.at)
    return [label for label, of in cells.items() if len(of) > 1]


def repeated(labels: list) -> list:
    return [label for label, n in Counter(labels).items() if n > 1]


def test_no_two_cells_of_the_committed_records_share_a_label(committed):
    assert ambiguous(committed) == []


def test_tables_of_the_committed_records_name_each_row_once(committed, published):
    report = Report(committed, published)
    tables = report.tables()
    assert repeated([one.id for one in tables]) == [] and repeated([one.title for one in tables]) == []
    for one in [*report.times, *report.memory[:1]]:
        heads = [column.head for column in one.columns]
        keys = next(n for n, head in enumerate(heads) if head in committed.implementations)
        assert repeated([tuple(cell.text for cell in cells[:keys]) for cells in one.rows]) == [], one.title


def test_panels_of_the_committed_records_have_one_title_each(drawn):
    assert repeated([one.title for one in drawn]) == [] and repeated([one.name for one in drawn]) == []
    for kind, pass_ in {(one.kind, one.name.split("-")[1]) for one in drawn}:
        titles = [panel.title for one in drawn if (one.kind, one.name.split("-")[1]) == (kind, pass_)
                  for panel in one.panels]
        assert repeated(titles) == [], (kind, pass_)
    empty = [panel.title for one in drawn for panel in one.panels if all(each.points.empty for each in panel.series)]
    assert empty == []


def test_heads_of_the_widest_panels_do_not_meet(committed, drawn):
    several = [one for one in drawn if len(one.panels) > 1]
    widest = max(several, key=lambda one: max(len(panel.title) for panel in one.panels))
    figure = drawing.together(widest, looks.Looks(committed.implementations, committed.own(committed.all)))
    figure.draw_without_rendering()
    heads = [one.get_window_extent() for axes in figure.axes for one in axes.findobj(Text)
             if one.get_text() and one.get_text() == axes.get_title(loc="left")]
    assert len(heads) == len(widest.panels)
    assert all(figure.bbox.x0 <= head.x0 and head.x1 <= figure.bbox.x1 for head in heads)
    assert not any(one.overlaps(other) for one, other in itertools.combinations(heads, 2))


@pytest.mark.parametrize("keys", [
    {"hkv": 2}, {"dv": 32}, {"lk": 1024}, {"layout": "blhd"}, {"scale": 0.5}, {"device": "cuda"}, {"data": "sink"},
    {"seed": 3}, {"mask": "none"}, {"dtype": "bf16"}])
def test_a_label_names_the_key_that_varies(study, keys):
    made = study([row("naive", hq=4), row("naive", hq=4, **keys)])
    assert ambiguous(made) == []


def test_labels_name_threads_operations_and_timings(study):
    alike = line("rowscale", **{"pass": "fwd", "rows": 128}), line("rowsum", **{"pass": "fwd", "rows": 128})
    made = study([row("naive", threads=1), row("naive", threads=2), *(row("naive", problem=one) for one in alike),
                  *(row("cuda.any", device="cuda", timer=timer) for timer in (
                      "cuda_events", "cuda_events_hot", "cuda_graph", "cuda_host"))])
    assert ambiguous(made) == []
    labels = [where(made, one) for one in made.all.itertuples()]
    assert any("1 thread" in one for one in labels) and any("rowsum" in one for one in labels)


def test_sentences_and_the_table_of_failures_name_threads_and_operation(study):
    problem = line("rowscale", **{"pass": "fwd", "rows": 128})
    made = study([*(row("naive", 2 * n, threads=n) for n in (1, 2)), *(row("cpu.avx2", 1, threads=n) for n in (1, 2)),
                  *(row("fused", status="oom", threads=n) for n in (1, 2)),
                  row("fused", status="oom", problem=problem)])
    over = next(said for said in observations(made) if said.startswith("cpu.avx2 over naive"))
    assert over.index("1 thread)") < over.index("2 threads)")
    assert next(said for said in observations(made) if said.startswith("fused: OOM")).count("forward") == 1
    named = [cells[2].text for cells in failures_table(made).rows]
    assert len(set(named)) == 3 and sum("rowscale" in one for one in named) == 1


def test_panels_name_the_operation(study):
    made = study([row("naive", problem=line(op, **{"pass": "fwd", "rows": rows, "dtype": "fp32"}))
                  for op in ("rowscale", "rowsum") for rows in (128, 256)])
    for one in pictures_of(made, []):
        if one.kind != "roofline":
            assert sorted(panel.title.split(", ")[0] for panel in one.panels) == ["rowscale", "rowsum"], one.name


def test_times_of_a_gpu_are_named_by_the_gpu_alone(tmp_path: Path, vocabulary):
    path = tmp_path / "gpus.jsonl"
    hosts = [("Some CPU, 16 processors, 126 GiB", "GPU A"), ("Some CPU, 32 processors, 252 GiB", "GPU A"),
             ("Some CPU, 32 processors, 252 GiB", "GPU B")]
    records = []
    for n, (host, gpu) in enumerate(hosts):
        machine = f"{host}, {gpu}"
        records += [ENVIRONMENT | {"machine": machine, "facts": {"cpu": "Some CPU", "gpu": gpu}},
                    *(row(impl, ms, device="cuda", timer=timer, lq=length) | {"machine": machine}
                      for impl, ms in (("naive", 2), ("cuda.any", 1)) for timer in ("cuda_events", "cuda_graph")
                      for length in (512 << n, 2048 << n))]
    path.write_text("".join(json.dumps(one) + "\n" for one in records))
    made = make_study([path], vocabulary)
    titles = [panel.title for one in pictures_of(made, []) for panel in one.panels]
    assert any("GPU A" in one for one in titles) and any("GPU B" in one for one in titles)
    tables = Report(made, []).tables()
    assert not any("processors" in one or "GiB" in one for one in [*titles, *(table.title for table in tables)])
    assert repeated([one.title for one in tables]) == []
    assert ambiguous(made) == [] and sum(made.rows.x == 2048) == 4, "two kinds of GPU, two implementations"
