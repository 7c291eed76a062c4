"""Reading, ordering and ranking of records."""

import pytest
from conftest import line, row

from fovea_report.observations import headline, winners
from fovea_report.pictures import pictures_of
from fovea_report.study import fit_power_laws, make_study, over_baseline, over_peers, short_machines, speed_ups
from fovea_report.tables import memory_table, rate_tables, time_tables
from fovea_report.vocabulary import Refused


def best(study) -> list[str]:
    return list(study.rows[study.rows.best].impl)


def test_the_fastest_must_be_told_apart(study):
    assert best(study([row("naive", 2), row("cpu.avx2", 1)])) == ["cpu.avx2"]
    assert best(study([row("naive", 1.01, flags=("noisy",)), row("cpu.avx2", 1)])) == []
    assert best(study([row("naive", 2, flags=("noisy",)), row("cpu.avx2", 1)])) == ["cpu.avx2"]
    assert best(study([row("cpu.avx2", 1)])) == [], "there is no other"


def test_a_failure_is_beaten_and_a_launch_bound_row_prevents_a_winner(study):
    assert best(study([row("naive", status="oom"), row("cpu.avx2", 1)])) == ["cpu.avx2"]
    assert best(study([row("naive", 0.5, flags=("launch_bound",)), row("cpu.avx2", 1)])) == []
    assert best(study([row("naive", 0.1, flags=("impossible",)), row("cpu.avx2", 1)])) == ["cpu.avx2"]


def test_speed_ups_count_where_both_are_ranked_and_told_apart(study):
    ups = over_baseline(made := study([
        row("naive", 2), row("cpu.avx2", 1), row("naive", 2, lq=1024), row("cpu.avx2", 1.99, lq=1024, flags=("noisy",)),
        row("naive", 2, lq=2048), row("cpu.avx2", 1, lq=2048, flags=("launch_bound",)),
        row("naive", status="oom", lq=4096), row("cpu.avx2", 1, lq=4096)]), made.rows)
    own = ups[ups.impl == "cpu.avx2"].sort_values("x")
    assert list(own.ratio.round(3)) == [2, 1.005, 2]
    assert list(own.counted) == [True, False, False]


def test_peers_are_neither_baselines_nor_of_this_library(study):
    made = study([row("naive", 4), row("torch.flash", 2), row("torch.math", 3), row("cpu.avx2", 1)])
    assert list(over_peers(made.rows).ratio) == [2]
    assert made.implementations == ["naive", "torch.flash", "torch.math", "cpu.avx2"]


def test_of_duplicate_rows_the_file_with_more_peers_wins(write, vocabulary):
    alone = write([row("cpu.avx2", 1)], "alone.jsonl")
    beside = write([row("cpu.avx2", 2), row("torch.flash", 3)], "beside.jsonl")
    for files in ([alone, beside], [beside, alone]):
        made = make_study(files, vocabulary)
        assert list(made.rows[made.rows.impl == "cpu.avx2"]["median"]) == [0.002]


def test_the_last_of_equal_rows_counts(study):
    assert list(study([row("naive", 1), row("naive", 2)]).rows["median"]) == [0.002]


def test_labels_name_as_few_words_of_a_machine_as_tell_it_from_the_others(study):
    a, b, c = (f"{cpu} processors{rest}" for cpu, rest in (
        ("Some CPU, 16", ", 126 GiB, NVIDIA H200"), ("Some CPU, 32", ", 252 GiB, NVIDIA H200"), ("Other, 32", "")))
    assert short_machines([a]) == {a: ""}
    assert short_machines([a, b]) == {a: "16 processors", b: "32 processors"}
    assert len(set(short_machines([a, b, c]).values())) == 3 and short_machines(["x, y", "x"])["x"] == "x"
    made = study([row("naive", 2) | {"machine": a}, row("naive", 1) | {"machine": b}])
    labels = [table.title for table in time_tables(made)]
    assert len(set(labels)) == 2 and not any("NVIDIA" in label for label in labels)


def test_an_unknown_baseline_is_refused_with_the_nearest(study):
    with pytest.raises(Refused, match="did you mean `naive`"):
        study([row("naive"), row("cpu.avx2")], "naiv")


def test_flash_names_whichever_of_this_library_ran(study):
    assert study([row("naive"), row("cpu.avx2")], "flash").baseline == "cpu.avx2"


def test_a_torn_last_line_is_left_out_with_a_warning(write, vocabulary):
    path = write([row("naive"), row("cpu.avx2")])
    path.write_text(path.read_text()[:-9])
    made = make_study([path], vocabulary)
    assert list(made.rows.impl) == ["naive"]
    assert "the last line is torn" in made.warnings[0]


@pytest.mark.parametrize("text, said", [
    ("no record\n", "at byte 0"), ('{"schema": "fovea.bench/1"}\n', "`problem`"),
    ('{"schema": "other/1"}\n', "other/1"),
    ("", "holds no records"), ("[" * 100_000 + "\n", "at byte 0")])
def test_a_file_without_records_is_refused(tmp_path, vocabulary, text, said):
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    with pytest.raises(Refused, match=said):
        make_study([path], vocabulary)


@pytest.mark.parametrize("key", ["n", "workspace_bytes", "saved_bytes", "memory_before_backward_bytes"])
@pytest.mark.parametrize("value", [1e300, 1.5, "many", True, float("inf")])
def test_a_number_that_is_not_whole_is_refused_by_name(write, vocabulary, key, value):
    wrong = row("naive")
    (wrong["time_s"] if key == "n" else wrong)[key] = value
    with pytest.raises(Refused, match=f"`{key}`"):
        make_study([write([wrong])], vocabulary)


WRONG = {"threads": 1.5, "time_s": 0.1, "clock_mhz": [1], "power_w": "much", "tflops": -1, "ceiling": 2e11,
         "flags": [["noisy"]], "error": {"out": 3}, "source": {"commit": "a", "dirty": "no"}}


@pytest.mark.parametrize("key", WRONG)
def test_a_value_of_the_wrong_type_is_refused_by_name(write, vocabulary, key):
    said = {"error": "out", "source": "dirty"}.get(key, key)
    with pytest.raises(Refused, match=f"`{said}`"):
        make_study([write([row("naive") | {key: WRONG[key]}])], vocabulary)


def test_a_row_that_was_timed_has_a_time(write, vocabulary):
    wrong = row("naive")
    wrong["time_s"]["median"] = None
    with pytest.raises(Refused, match="`median`"):
        make_study([write([wrong])], vocabulary)
    with pytest.raises(Refused, match="no time"):
        make_study([write([wrong | {"time_s": None}])], vocabulary)


def test_parts_of_a_profile_are_left_out(write, vocabulary):
    sizes = dict.fromkeys(("batch", "context", "parameters", "state_bytes", "activation_bytes", "workspace_bytes",
                           "planned_bytes", "flops", "threads"), 1)
    profile = {"schema": "fovea.profile/1", "model": "sm", "sizes": "layers=1", "passes": "step", "status": "oom",
               "reason": "no memory", "parts": {}, **sizes}
    assert len(make_study([write([profile, row("naive")])], vocabulary).rows) == 1
    with pytest.raises(Refused, match="the records hold no row"):
        make_study([write([profile])], vocabulary)


def test_titles_name_the_threads_if_records_differ(study):
    assert set(study([row("naive"), row("naive", threads=1)]).rows.title) == {
        "forward, fp32, causal, batch 1, heads 1, 2 threads", "forward, fp32, causal, batch 1, heads 1, 1 thread"}
    assert set(study([row("naive")]).rows.title) == {"forward, fp32, causal, batch 1, heads 1"}


def curve(impl: str, power: float, lengths: tuple, **more) -> list[dict]:
    return [row(impl, 1e-3 * n**power, lq=n, **more) for n in lengths]


def test_a_power_of_the_length_is_found(study):
    made = study(curve("naive", 2, (128, 256, 512, 1024, 2048)))
    law = fit_power_laws(made.rows)["naive"]
    assert law.exponent == pytest.approx(2) and (law.start, law.end) == (512, 2048)
    assert fit_power_laws(made.rows[:2]) == {}


def test_powers_are_fitted_over_one_common_range_without_launch_bound_cells(study):
    lengths = (128, 256, 512, 1024, 2048, 4096)
    rows = curve("naive", 2, lengths) + curve("cpu.avx2", 1, lengths[:2], flags=("launch_bound",))
    rows += curve("cpu.avx2", 2, lengths[2:])
    laws = fit_power_laws(study(rows).rows)
    assert {law.start for law in laws.values()} == {1024}
    assert laws["cpu.avx2"].exponent == pytest.approx(2)


def test_a_curve_that_ends_early_does_not_shorten_the_range_of_the_others(study):
    lengths = (128, 256, 512, 1024, 2048, 4096)
    laws = fit_power_laws(study(curve("naive", 2, lengths) + curve("fused", 1, lengths[:3])).rows)
    assert set(laws) == {"naive"} and (laws["naive"].start, laws["naive"].end) == (1024, 4096)


def test_means_are_over_all_pairs_with_an_interval(study):
    made = study([row("naive", 2), row("cpu.avx2", 1), row("naive", 1, lq=1024), row("cpu.avx2", 2, lq=1024),
                  row("naive", 4, lq=2048, flags=("launch_bound",)), row("cpu.avx2", 1, lq=2048)])
    pairs = over_baseline(made, made.rows)
    ups = speed_ups(pairs[pairs.impl == "cpu.avx2"])
    assert ups.mean == pytest.approx(4 ** (1 / 3)), "the cell that cannot be told apart counts as well"
    assert (ups.wins, ups.ties, ups.losses, ups.pairs) == (1, 1, 1, 3)
    assert ups.low < ups.mean < ups.high and ups == speed_ups(pairs[pairs.impl == "cpu.avx2"])


def test_wins_are_counted_over_cells_with_the_same_implementations(study):
    made = study([row("naive", 2), row("cpu.avx2", 1), row("naive", 2, lq=1024), row("cpu.avx2", 1, lq=1024),
                  row("naive", 2, lq=2048), row("torch.sdpa", 1, lq=2048)])
    assert ("In 2 of the 2 configurations of naive and cpu.avx2, one implementation is clearly faster than every "
            "other: cpu.avx2 in 2." in headline(made))
    assert "torch.sdpa 1" not in headline(made)


def test_implementations_that_the_library_chose_among_win_together(study):
    chosen = [row("naive", 2), row("cpu.avx512", 1), row("naive", 2, dtype="bf16"),
              row("cpu.avx512_bf16", 1, dtype="bf16")]
    assert ("In 2 of the 2 configurations of naive and Fovea, one implementation is clearly "
            "faster than every other: Fovea in 2." in headline(study(chosen)))
    both = study([*chosen, row("cpu.avx512", 3, dtype="bf16")])
    assert any("of naive, cpu.avx512 and cpu.avx512_bf16, one" in said for said in winners(both))


@pytest.mark.parametrize("keys", [
    ({"hq": 8, "hkv": 8}, {"hq": 8, "hkv": 2}), ({"d": 64, "dv": 64}, {"d": 64, "dv": 32}), ({"lk": 512}, {"lk": 1024}),
    ({"layout": "bhld"}, {"layout": "blhd"}), ({"scale": 0.125}, {"scale": 1.0}),
    ({"place": "contiguous"}, {"place": "strided"}),
    ({"threads": 1}, {"threads": 2}), ({"device": "cpu"}, {"device": "cuda"}), ({"seed": 0}, {"seed": 7})],
    ids=lambda keys: next(iter(keys[1])))
def test_labels_name_every_key_that_varies(study, keys):
    made = study([row(impl, 1, **one) for one in keys for impl in ("naive", "cpu.avx2")])
    for picture in pictures_of(made, []):
        labels = [panel.title for panel in picture.panels]
        assert len(labels) == len(set(labels)), picture.name
    for table in [*time_tables(made), *rate_tables(made), memory_table(made)]:
        heads = [n for n, column in enumerate(table.columns) if not column.unit]
        lines = [tuple(one[n].text for n in heads) for one in table.rows]
        assert len(lines) == len(set(lines)), (table.id, lines)
    assert len({table.id for table in time_tables(made)}) == len(time_tables(made))
    said = {(one.title, made.label(one)) for one in made.rows.itertuples()}
    assert len(said) == 2


def test_an_operation_that_nobody_described_is_reported(study):
    lines = [line("rowscale", **{"pass": "fwd", "rows": n, "columns": 64, "dtype": "fp32"}) for n in (128, 256, 4096)]
    made = study([row(impl, ms, problem=one) for one in lines for impl, ms in (("reference", 2), ("cpu.plain", 1))])
    assert list(made.rows["axis"].unique()) == ["128", "256", "4k"]
    assert set(made.rows.title) == {"forward, fp32, columns 64"}
    assert "cpu.plain in 3" in headline(made)


def test_records_of_two_operations_make_one_report(study):
    line = ("op=linear pass={} b=1 m={} k=32 n=48 h=1 dtype=fp32 bias=no accumulate=no layout=blhd device=cpu "
            "data=normal place=contiguous seed=0")
    linear = [row("cpu.own", 1, problem=line.format(pass_, m)) for pass_ in ("fwd", "bwd") for m in (32, 64)]
    made = study([row("naive", 2), row("naive", 2, lq=256), *linear])
    titles = [table.title for table in time_tables(made)]
    for words in ("attention, forward", "linear, forward", "linear, backward"):
        assert sum(title.startswith(words) for title in titles) == 1, titles
