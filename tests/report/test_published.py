"""Published tables: all their figures are read, presets measure them all, and sentences follow from them."""

import subprocess

import pytest
from conftest import FACTS, ROOT, row

from fovea_report.published import findings, pages, read_published
from fovea_report.vocabulary import parse_case

FOLDER = ROOT / "data/published"
FIGURES = {"A": 48 * 3, "B": 56 * 6, "D2": 20 * 2, "D3": 54 * 6, "E": 96}
REPORTS = [read_published(one) for one in sorted(FOLDER.glob("*.toml"))]


def test_every_table_has_one_description():
    assert {one.with_suffix(".csv").name for one in FOLDER.glob("*.toml")} == {one.name for one in FOLDER.glob("*.csv")}
    assert {one.letter: len(one.figures) for one in REPORTS} == FIGURES


@pytest.mark.parametrize("report", REPORTS, ids=lambda one: one.letter)
def test_every_table_names_its_source_and_the_docs_do_too(report):
    repository = report.source.split(",")[0]
    assert repository.startswith("github.com/") or "its repository is not known" in report.source
    if repository.startswith("github.com/"):
        assert repository in (ROOT / "docs/reports.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("report", REPORTS, ids=lambda one: one.letter)
def test_a_preset_measures_exactly_the_figures_of_its_report(report):
    printed = subprocess.run([FACTS, "presets", report.preset], capture_output=True, text=True, check=True)
    cases = [parse_case(one) for one in printed.stdout.splitlines()]
    measured = {(report.measurement(case), case["pass"]) for case in cases}
    wanted = {(one.measurement, pass_) for one in report.figures.itertuples() for pass_ in one.pass_.split("+")}
    assert measured == wanted


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
