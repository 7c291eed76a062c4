# scripts/cpu_records with a program that only pretends: which measurement of a noisy cell counts, and what is left of an
# interrupted sweep. cpu_records_test.py ROOT
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop() if len(sys.argv) > 1 else ".").resolve()
# Measures the cells of the file `cells` that the record lacks. A cell's list has the quartile ranges of its two contenders
# for each time that it is measured, in percent; null: it ran into a limit.
FOVEA = """#!/usr/bin/env python3
import json, os, sys
words = sys.argv[1:]
here = os.path.dirname(os.path.abspath(__file__))
record = words[words.index("-o") + 1]
with open(here + "/calls", "a") as calls:
    calls.write(json.dumps(words) + "\\n")
known = [json.loads(line).get("problem") for line in open(record)] if os.path.exists(record) else []
cells = json.load(open(here + "/cells"))
with open(record, "a") as rows:
    rows.write('{"schema": "fovea.env/1", "command": "bench"}\\n')
    for problem, measurements in cells.items():
        if problem in known:
            continue
        if problem == "interrupted":
            sys.exit(130)
        for impl, spread in zip(("naive", "flash"), measurements.pop(0)):
            time = spread and {"q1": 1, "q3": 1 + spread / 100, "median": 1}
            rows.write(json.dumps({"schema": "fovea.bench/1", "problem": problem, "impl": impl, "time_s": time,
                                   "status": "timeout" if spread is None else "ok",
                                   "flags": ["noisy"] if spread and spread > 5 else []}) + "\\n")
json.dump(cells, open(here + "/cells", "w"))
"""


class CpuRecords(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "fovea").write_text(FOVEA)
        (self.folder / "fovea").chmod(0o755)
        self.record = self.folder / "epyc/report-a.jsonl"

    def run_it(self, cells, *words):
        (self.folder / "cells").write_text(json.dumps(cells))
        ended = subprocess.run([str(ROOT / "scripts/cpu_records"), str(self.folder / "epyc"), "--program",
                                str(self.folder / "fovea"), *(words or ("--only", "report-a"))], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.said = ended.stdout
        return ended.returncode

    def spreads(self):
        rows = [json.loads(line) for line in self.record.read_text().splitlines()]
        found = {}
        for row in (row for row in rows if "problem" in row):
            time = row["time_s"]
            found.setdefault(row["problem"], []).append(time and round(100 * (time["q3"] - time["q1"])))
        return found

    def calls(self):
        return [json.loads(line) for line in (self.folder / "calls").read_text().splitlines()]

    def test_the_quietest_measurement_of_all_contenders_counts(self):
        cells = {"quiet": [[1, 1]], "once": [[9, 2], [2, 3]], "worse": [[9, 2], [9, 9], [9, 8], [9, 3]],
                 "fewer": [[9, 9], [2, 9], [9, 2], [1, 8]]}
        self.assertEqual(self.run_it(cells), 0, self.said)
        self.assertEqual(self.spreads(), {"quiet": [1, 1], "once": [2, 3], "worse": [9, 2], "fewer": [1, 8]})
        self.assertIn("report-a: measured; 4 of 8 timed rows are noisy", self.said)
        self.assertIn("noisy cells measured again, 3 of up to 3 times; 2 of 8 timed rows are noisy", self.said)
        self.assertEqual(len(self.calls()), 4)

    def test_a_quiet_sweep_is_measured_once(self):
        self.assertEqual(self.run_it({"quiet": [[1, 1]]}), 0, self.said)
        self.assertEqual(len(self.calls()), 1)
        self.assertIn("--preset report-a", " ".join(self.calls()[0]))

    def test_a_contender_that_only_then_ran_into_a_limit_does_not_count_as_quiet(self):
        self.assertEqual(self.run_it({"limit": [[9, 9], [1, None]]}, "--only", "report-a", "--again", "1"), 0, self.said)
        self.assertEqual(self.spreads(), {"limit": [9, 9]})

    def test_an_interrupted_sweep_goes_on(self):
        self.assertEqual(self.run_it({"first": [[1, 1]], "interrupted": []}), 1)
        self.assertIn("report-a: `fovea bench` ended with 130; call again to go on", self.said)
        self.assertFalse(self.record.exists())
        self.assertEqual(self.run_it({"first": [], "second": [[2, 2]]}), 0, self.said)
        self.assertEqual([*self.spreads()][-1], "second")

    def test_an_unknown_sweep_is_named(self):
        self.assertEqual(self.run_it({}, "--only", "report-z"), 2)
        self.assertIn("no sweep is named report-z; there are quick, ", self.said)


if __name__ == "__main__":
    unittest.main()
