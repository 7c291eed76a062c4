"""The page and the Markdown: everything escaped, nothing loaded, all sections there."""

import re

import pytest
from conftest import ROOT, line, row

from fovea_report import drawing
from fovea_report.published_pages import pages
from fovea_report.render import Report
from fovea_report.study import make_study


def texts(study) -> dict[str, str]:
    return Report(study, pages(study, ROOT / "python/fovea_report/published_tables")).files()


def test_text_of_a_record_is_escaped(study):
    made = texts(study([row("naive", 1),
                        row("<b>my|kernel</b>", status="error", reason="<script>alert(1)</script> | `x`")]))
    assert "<script>alert" not in made["index.html"] and "<b>my" not in made["index.html"]
    assert "\\<b>my\\|kernel" in made["report.md"]


def test_the_page_loads_nothing_and_its_ids_are_unique(study):
    page = texts(study([row("naive", 2, lq=512, d=64, dtype="bf16"),
                        row("cpu.avx2", 1, lq=512, d=64, dtype="bf16")]))["index.html"]
    assert not re.search(r'(src|href)="(https?:)?//', page) and "<link rel=\"icon\" href=\"data:,\">" in page
    names = re.findall(r'\bid="([^"]+)"', page)
    assert len(names) == len(set(names))
    for target in re.findall(r'href="#([^"]+)"', page):
        assert target in names or target == "pictures", target


def test_a_long_reason_is_behind_a_click(study):
    page = texts(study([row("naive", status="oom", reason="CUDA out of memory " * 40),
                        row("cpu.avx2", 1)]))["index.html"]
    assert re.search(r"<details><summary>CUDA out of memory[^<]{0,140}\u2026</summary>", page)


def test_a_long_word_does_not_widen_the_page(study):
    reason = "CUDA out of memory, see https://example.org/" + "optimizing-memory-usage" * 20
    page = texts(study([row("naive", status="oom", reason=reason), row("cpu.avx2", 1)]))["index.html"]
    breaking = re.search(r"\n([^\n{]*) { overflow-wrap: anywhere; }", page)[1].split(", ")
    assert {"p", "li", "figcaption", "summary"} <= set(breaking)
    inside = page[:page.index(reason)]  # what has no such rule scrolls by itself
    assert inside.rfind("<li>") > inside.rfind("</li>") or inside.rfind('class="scroll"') > inside.rfind("</table>")


def test_markdown_rows_have_as_many_cells_as_the_header(study):
    text = texts(study([row("naive", 1), row("fused", status="oom"), row("cpu.avx2", 2)]))["report.md"]
    widths = [[line.count("|") - line.count("\\|") for line in block.splitlines() if line.startswith("|")]
              for block in text.split("\n\n")]
    assert all(len(set(one)) <= 1 for one in widths) and any(widths)


def test_captions_speak_of_models_where_there_are_some(study):
    attention, model = row("naive", 1), row("fovea", 1, problem=line("model", **{"pass": "step", "b": 1, "lq": 128}))
    for rows, said in (([attention], False), ([attention, model], True)):
        assert ("Models of this library as planned" in texts(study(rows))["report.md"]) == said


def test_tables_without_rows_are_left_out(study):
    unchecked = row("naive", 1) | {"error": {}}
    for rows, shown in (([row("naive", 1)], True), ([unchecked], False)):
        made = texts(study(rows))
        assert ("Worst error" in made["index.html"], "Worst error" in made["report.md"],
                "tables/accuracy.csv" in made) == (shown, shown, shown)
    assert "Cells without a time" not in made["report.md"] and "tables/without-a-time.csv" not in made


def test_the_same_records_give_the_same_texts(study):
    rows = [row("naive", 1), row("cpu.avx2", 2)]
    assert texts(study(rows)) == texts(study(rows))


@pytest.fixture(scope="module")
def page_of_h200(vocabulary, tmp_path_factory) -> str:
    """The page of the largest committed records, with the panels that it embeds. Its pictures' files are not made."""
    made = make_study(sorted(ROOT.glob("results/h200/*.jsonl")), vocabulary)
    report = Report(made, pages(made, ROOT / "python/fovea_report/published_tables"))
    folder = tmp_path_factory.mktemp("h200")
    (folder / "pictures").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(drawing, "together", lambda picture, looks: None)
        patch.setattr(drawing, "save_png", lambda figure, path: None)
        report.draw(lambda name: folder / name)
    return report.files()["index.html"]


def test_the_largest_page_can_be_mailed(page_of_h200):
    assert len(page_of_h200.encode()) < 3_000_000


def test_five_pictures_come_first_one_of_each_kind(page_of_h200):
    before = page_of_h200[:page_of_h200.index('<details class="section"')]
    names = re.findall(r'<figure class="picture" id="picture-([a-z]+)-', before)
    assert names == ["rate", "growth", "speedup", "memory", "roofline"]
    assert all("<svg" in one for one in before.split('<figure class="picture"')[1:])


def test_sections_fold_and_only_the_summary_is_open(page_of_h200):
    sections = re.findall(r'<details class="section" id="([^"]+)"( open)?>', page_of_h200)
    assert [name for name, is_open in sections if is_open] == ["summary-section"]
    reports = re.findall(r'href="#(report-[^"]+)"', page_of_h200)
    assert {"times", "memory-section", "failures", "conditions", *reports} <= {name for name, _ in sections}
    assert len(reports) >= 4 and page_of_h200.count('<details class="section"') <= page_of_h200.count("</details>")
    outside = re.sub(r"<details class=\"section\".*</details>", "", page_of_h200, flags=re.DOTALL)
    assert "<table" not in outside, "every table is in a section"


def test_a_report_of_one_implementation_compares_nothing(study):
    rows = [row("cpu.avx2", n, lq=512 * n) for n in (1, 2, 4)]
    alone, two = (Report(study(of), []).files() for of in (rows, [*rows, row("naive", 3, lq=512)]))
    said = ["peed-up", "fastest in", "astest in bold", "Bold: the fastest", "Who is fastest", " of 0"]
    for name in ("index.html", "report.md"):
        assert [one for one in said if one in alone[name]] == []
    assert [one for one in said if one not in two["index.html"]] == [" of 0"]
    assert len({line.count("|") for line in alone["report.md"].splitlines() if line.startswith("| forward")}) == 1
    assert "background:#cfe8e3" not in alone["index.html"] and "background:#cfe8e3" in two["index.html"]
