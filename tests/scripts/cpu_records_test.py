# scripts/cpu_records with a program that only pretends: where records go, what is left of an interrupted sweep, and how
# long it waits for a quiet machine. cpu_records_test.py ROOT
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop() if len(sys.argv) > 1 else ".").resolve()
# Adds a session to the record, with a row for each of two problems that the record lacks. The file `noisy` has a number
# for each call that measures: how many of its rows are noisy. The file `code` has what the sweep ends with.
FOVEA = """#!/usr/bin/env python3
import json, os, sys
words = sys.argv[1:]
here = os.path.dirname(os.path.abspath(__file__))
with open(here + "/calls", "a") as calls:
    calls.write(json.dumps(words) + "\\n")
noisy = json.load(open(here + "/noisy"))
count = noisy.pop(0) if noisy else 0
json.dump(noisy, open(here + "/noisy", "w"))
path = words[words.index("-o") + 1]
lines = open(path).read().splitlines() if os.path.exists(path) else []
done = [json.loads(line).get("problem") for line in lines]
with open(path, "a") as rows:
    rows.write(json.dumps({"schema": "fovea.env/1", "session": len(open(here + "/calls").readlines())}) + "\\n")
    for n, problem in enumerate([one for one in ("lq=1", "lq=2") if one not in done]):
        row = {"schema": "fovea.bench/1", "problem": problem, "status": "ok", "flags": ["noisy"] * (n < count)}
        rows.write(json.dumps(row) + "\\n")
sys.exit(int(open(here + "/code").read()))
"""


class CpuRecords(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "fovea").write_text(FOVEA)
        (self.folder / "fovea").chmod(0o755)
        self.record = self.folder / "epyc/report-a.jsonl"

    def run_it(self, *words, noisy=(), code=0):
        (self.folder / "noisy").write_text(json.dumps(noisy))
        (self.folder / "code").write_text(str(code))
        ended = subprocess.run([str(ROOT / "scripts/cpu_records"), "epyc", "--program", "./fovea", "--only", "report-a",
                                "--minute", "0", *words], cwd=self.folder, text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT)
        self.said = ended.stdout
        return ended.returncode

    def calls(self):
        return [" ".join(json.loads(line)) for line in (self.folder / "calls").read_text().splitlines()]

    def test_a_sweep_is_measured_once_and_told(self):
        self.assertEqual(self.run_it(noisy=[1]), 0, self.said)
        self.assertEqual(self.said, "report-a: 1 of 2 timed rows are noisy\n")
        self.assertEqual(len(self.calls()), 1)
        self.assertIn("--preset report-a", self.calls()[0])
        self.assertTrue(self.record.exists())

    def test_it_waits_while_the_probe_is_noisy(self):
        self.assertEqual(self.run_it("--wait", "9", noisy=[2, 1, 0, 1]), 0, self.said)
        self.assertEqual(["preset" in call for call in self.calls()], [False, False, False, True])
        self.assertIn("minute 2 of 9: 1 of 2 cells of a probe are noisy, waiting", self.said)

    def test_it_waits_no_longer_than_told(self):
        self.assertEqual(self.run_it("--wait", "2", noisy=[2, 2, 2]), 0, self.said)
        self.assertEqual(["preset" in call for call in self.calls()], [False, False, True])

    def test_an_interrupted_sweep_goes_on(self):
        self.assertEqual(self.run_it(code=130), 1)
        self.assertIn("report-a: `fovea bench` ended with 130; call again to go on", self.said)
        self.assertFalse(self.record.exists())
        self.assertEqual(self.run_it(), 0, self.said)
        self.assertEqual(len(self.record.read_text().splitlines()), 4)  # both sessions, each problem once
        self.assertTrue(all("--resume" in call for call in self.calls()))

    def rows(self):
        """(session, problem, whether it is noisy) for each row of the record."""
        found, session = [], None
        for row in map(json.loads, self.record.read_text().splitlines()):
            session = row.get("session", session)
            found += [(session, row["problem"], bool(row["flags"]))] if "problem" in row else []
        return found

    def test_noisy_problems_are_measured_again(self):
        self.assertEqual(self.run_it("--again", "5", noisy=[1, 1, 0]), 0, self.said)
        self.assertEqual(self.rows(), [(1, "lq=2", False), (3, "lq=1", False)])
        self.assertEqual(self.said.count("1 of 2 timed rows were noisy, their problems were measured again"), 2)
        self.assertIn("report-a: 0 of 2 timed rows are noisy", self.said)

    def test_the_earlier_rows_stay_if_the_new_ones_are_as_noisy(self):
        self.assertEqual(self.run_it("--again", "1", noisy=[1, 1]), 0, self.said)
        self.assertEqual(self.rows(), [(1, "lq=1", True), (1, "lq=2", False)])

    def test_an_interrupted_second_measurement_loses_nothing(self):
        self.assertEqual(self.run_it(noisy=[2]), 0, self.said)
        unfinished = self.folder / "epyc/unfinished"
        unfinished.mkdir(exist_ok=True)
        (unfinished / "report-a.earlier").write_text(self.record.read_text())
        (unfinished / "report-a.jsonl").write_text("")
        self.record.unlink()
        self.assertEqual(self.run_it(noisy=[1]), 0, self.said)
        self.assertEqual(self.rows(), [(1, "lq=1", True), (2, "lq=2", False)])
        self.assertFalse((unfinished / "report-a.earlier").exists())

    def test_wrong_rows_are_told_and_kept(self):
        self.assertEqual(self.run_it(code=1), 1)
        self.assertIn("some rows are wrong", self.said)
        self.assertTrue(self.record.exists())

    def test_a_python_of_a_path_is_found_from_elsewhere(self):
        self.assertEqual(self.run_it("--only", "peers-1", "--python", "my venv/bin/python"), 0, self.said)
        self.assertIn(str(self.folder / "my venv/bin/python"), self.calls()[0])

    def test_an_unknown_sweep_is_named(self):
        self.assertEqual(self.run_it("--only", "report-z"), 2)
        self.assertIn("no sweep is named report-z; there are quick, ", self.said)


if __name__ == "__main__":
    unittest.main()
