"""The program and the reports come to the same verdicts on every committed record."""

import subprocess
from collections import Counter
from pathlib import Path

import pytest
from conftest import FACTS, ROOT

from fovea_report.study import make_study, over_baseline, winners

RECORDS = sorted(ROOT.glob("results/*/*.jsonl"))


@pytest.mark.parametrize("path", RECORDS, ids=lambda one: f"{one.parent.name}-{one.stem}")
def test_wins_ties_and_losses(path: Path, vocabulary):
    printed = subprocess.run([FACTS, "verdicts", str(path)], capture_output=True, text=True, check=True)
    program = Counter(tuple(line.split("\t")) for line in printed.stdout.splitlines())
    study = make_study([path], vocabulary)
    rows = study.all
    pairs = over_baseline(study, rows.assign(Index=rows.index)) if "naive" in set(rows.impl) else rows[:0]
    verdicts = {}
    for pair in pairs[pairs.rival_impl == "naive"].itertuples() if len(pairs) else []:
        if pair.ranked and pair.rival_ranked and pair.impl != "naive":
            verdicts[pair.Index] = "tie" if not pair.apart else "win" if pair.ratio > 1 else "loss"
    best = set(winners(rows).index)
    reports = Counter((row.problem, row.impl, "fastest" if row.Index in best else "-", verdicts.get(row.Index, "-"))
                      for row in rows.itertuples())
    assert reports, "no row was compared"
    assert reports == program
