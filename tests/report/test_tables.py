"""Tables: what stands in a cell, and that no number is lost."""

import csv
import io
import math

from conftest import line, row

from fovea_report import observations
from fovea_report.calls import call_table, said_of_calls, ways
from fovea_report.render import rows_csv
from fovea_report.table import figure, ratio, size
from fovea_report.tables import (accuracy_table, failures_table, memory_table, rate_tables, step_memory_table,
                                 summary_table, time_tables)


def cells(table) -> list[dict[str, str]]:
    return [{column.title: cell.text for column, cell in zip(table.columns, line)} for line in table.rows]


def test_figures_have_three_digits_and_no_exponent():
    values = (0.0123, 1.234, 12.34, 1234.6, 0, float("nan"))
    assert [figure(value) for value in values] == ["0.0123", "1.23", "12.3", "1235", "0", "-"]
    assert (ratio(1.934), size(999), size(1.5e6), size(2e12)) == ("1.93\u00d7", "999 B", "1.50 MB", "2.00 TB")


def test_a_cell_without_a_time_holds_its_status(study):
    table = time_tables(study([row("naive", status="oom", reason="too large"), row("cpu.avx2", 1),
                               row("fused", status="timeout")]))[0]
    assert cells(table)[0]["naive (ms)"] == "OOM" and cells(table)[0]["fused (ms)"] == "timeout"
    assert cells(table)[0]["cpu.avx2 (speed-up)"] == "OOM", "there is nothing to compare with"
    assert table.rows[0][1].note == "too large"


def test_speed_ups_losses_and_marks(study):
    table = time_tables(study([row("naive", 1), row("cpu.avx2", 2, flags=("noisy",))]))[0]
    assert cells(table)[0]["cpu.avx2 (ms)"] == "2.00 n" and cells(table)[0]["cpu.avx2 (speed-up)"] == "0.500\u00d7"
    assert table.rows[0][-1].style == "loss"


def test_times_are_shaded_by_the_ratio_to_the_fastest(study):
    made = study([row("naive", 4), row("fused", status="oom"), row("cpu.avx2", 1),
                  row("torch.sdpa", 0.1, flags=("impossible",))])
    table = time_tables(made)[0]
    shades = {column.title: cell.shade for column, cell in zip(table.columns, table.rows[0])}
    assert (shades["naive (ms)"], shades["cpu.avx2 (ms)"]) == (4, 1)
    assert math.isnan(shades["fused (ms)"]) and math.isnan(shades["torch.sdpa (ms)"])


def test_csv_has_full_precision(study):
    text = time_tables(study([row("naive", 1.23456789)]))[0].csv()
    assert "1.23456789" in text


def test_the_summary_counts_wins_and_losses(study):
    made = study([row("naive", 1), row("cpu.avx2", 2), row("naive", 4, lq=1024), row("cpu.avx2", 1, lq=1024)])
    found = cells(summary_table(made))
    assert [one["fastest in"] for one in found] == ["1 of 2", "1 of 2"]
    assert found[1]["losses"] == "1" and found[1]["mean speed-up"] == "1.41\u00d7"


def test_memory_shares_a_row_between_passes(study):
    made = study([row("naive", 1, held=1), row("naive", 1, held=5_000_000, **{"pass": "bwd"})])
    found = cells(memory_table(made))
    assert len(found) == 1 and found[0]["naive (before backward)"] == "5.00 MB"


def test_memory_shares_a_row_with_passes_that_lack_a_key(study):
    sizes = "b=1 hq=4 lq=512 d=64 e=256 dtype=bf16 mask=none bias=no"
    made = study([row("naive", 1, problem=f"op=mha pass={pass_} {sizes}{more} device=cpu", held=held)
                  for pass_, more, held in (("fwd", "", 1), ("bwd", " accumulate=no", 5_000_000),
                                            ("bwd", " accumulate=yes", 6_000_000))])
    assert [(one["accumulate"], one["naive (before backward)"]) for one in cells(memory_table(made))] == [
        ("-", "5.00 MB"), ("yes", "6.00 MB")]


def test_accuracy_and_failures_count_every_row(study):
    made = study([row("naive"), row("naive", timer="cuda_graph", device="cuda"), row("fused", status="crashed")])
    assert cells(accuracy_table(made))[0]["cells checked"] == "2"
    assert cells(failures_table(made))[0]["reason"] == "for a reason"


def test_rates_of_a_gpu_stand_beside_its_peer(study):
    made = study([row("torch.flash", 2, device="cuda"), row("cuda.any", 1, device="cuda"),
                  row("torch.cudnn", 0.5, device="cuda")])
    found = cells(rate_tables(made)[0])[0]
    assert found["cuda.any (TFLOP/s)"] == "1.00" and found["cuda.any (speed-up over torch.flash)"] == "2.00\u00d7"
    assert found["cuda.any (over the fastest peer)"] == "0.500\u00d7"


def test_calls_have_their_own_tables(study):
    made = study([row("cuda.any", 1e-3, device="cuda", timer="cuda_graph"),
                  row("torch.flash", 2e-3, device="cuda", timer="cuda_graph"),
                  row("cuda.any", 1e-3, device="cuda", timer="cuda_host"),
                  row("torch.flash", 8e-3, device="cuda", timer="cuda_eager"),
                  row("cuda.any", 2e-3, device="cuda", timer="cuda_eager")])
    assert len(made.rows) == 0 and len(made.calls) == 5
    found = {timer: cells(call_table(made, timer, rows))[0] for timer, rows in ways(made)}
    assert found["cuda_graph"]["cuda.any (us)"] == "1.00"
    assert found["cuda_graph"]["cuda.any (over the fastest other)"] == "2.00\u00d7"
    assert found["cuda_eager"]["cuda.any (over the fastest other)"] == "4.00\u00d7"
    assert "cuda.any (over the fastest other)" not in found["cuda_host"]
    said = list(said_of_calls(made))
    assert any("takes 1.00 to 1.00 us in 1 cell" in one for one in said)
    assert "Called in a row, cuda.any takes 2.00 to 2.00 us in 1 cell; another implementation is faster in 0." in said


def test_an_operation_that_was_timed_in_graphs_only_has_these_times(study):
    layer = {"pass": "fwd", "b": 1, "lq": 512, "d": 64, "dtype": "bf16", "device": "cuda"}
    made = study([row("naive", 1, device="cuda", timer="cuda_graph"), row("cuda.any", 1, device="cuda"),
                  row("cuda.any", 1, timer="cuda_eager", problem=line("mha", **layer, hq=4, mask="none")), *(
        row(impl, ms, timer="cuda_graph", problem=line(op, **layer, hq=heads, mask=mask)) for impl, ms in
        (("naive", 2), ("cuda.any", 1)) for op in ("mha_fused", "mha") for heads in (4, 8)
        for mask in ("none", "causal"))])
    assert {one.op for one in made.rows.itertuples() if "in a graph" in one.setting} == {"mha_fused", "mha"}
    assert [(way, rows.op.iloc[0]) for way, rows in ways(made)] == [("cuda_eager", "mha"), ("cuda_graph", "attention")]
    assert "mha, forward, bf16, in a graph" in [table.title for table in time_tables(made)]


def test_shapes_with_one_line_share_a_table(study):
    one_each = [row(impl, ms, hq=heads) for impl, ms in (("naive", 2), ("cpu.avx2", 1)) for heads in (2, 4, 8)]
    assert [len(table.rows) for table in time_tables(study(one_each))] == [3]
    curves = [*one_each, *(row(impl, 1, hq=heads, lq=1024) for impl in ("naive", "cpu.avx2") for heads in (2, 4, 8))]
    assert [len(table.rows) for table in time_tables(study(curves))] == [2, 2, 2]


def test_all_rows_are_in_one_csv_file(study):
    made = study([row("naive", 1.5), row("fused", status="oom", reason="a, b"),
                  row("cuda.any", 1, timer="cuda_host", device="cuda")])
    found = list(csv.DictReader(io.StringIO(rows_csv(made))))
    assert [one["impl"] for one in found] == ["naive", "fused", "cuda.any"]
    assert found[0]["median_s"] == "0.0015" and found[1]["reason"] == "a, b" and found[0]["lq"] == "512"


def test_a_step_s_memory_is_compared_beyond_the_state(study):
    def step(impl: str, before: int | None, workspace: int) -> dict:
        problem = line("model", **{"pass": "step", "model": "report-d1:sm", "b": 4, "lq": 1024, "device": "cuda"})
        known = {"memory_before_forward_bytes": before, "workspace_bytes": workspace} if before else {}
        return {**row(impl, problem=problem, held=before and before + int(2e9), device="cuda"), **known}
    rows = [step("fovea", int(3e9), int(1e9)), step("torch.compile", int(5e9), int(2e9)), step("torch.eager", None, 0)]
    found = {one["implementation"]: one for one in cells(step_memory_table(study(rows)))}
    assert {name: (one["bytes"], one["Fovea's share"]) for name, one in found.items()} == {
        "fovea": ("3.00 GB", "1.00"), "torch.compile": ("4.00 GB", "0.75")}, "of the other it is not known"
    assert not step_memory_table(study(rows[1:])).rows


def test_operations_are_told_apart(study):
    scaled = line("rowscale", **{"pass": "fwd", "rows": 128, "dtype": "fp32"})
    made = study([row("naive"), row("cpu.plain", problem=scaled)])
    assert {table.title.split(",")[0] for table in time_tables(made)} == {"attention", "rowscale"}
    assert len(rows_csv(made).splitlines()) == 3 and observations.observations(made)


def test_a_share_above_the_ceiling_is_explained(study):
    said = [next(one for one in observations.observations(study([row("cpu.avx2", ms)])) if "ceiling" in one)
            for ms in (4, 10)]
    assert "125 % of the ceiling" in said[0] and "the probes ran slower than this kernel" in said[0]
    assert "50 % of the ceiling" in said[1] and "above" not in said[1]
