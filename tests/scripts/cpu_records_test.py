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
# Adds a session with two rows to the record. The file `noisy` has a number for each call that measures: how many of its
# rows are noisy. The file `code` has what the sweep ends with.
FOVEA = """#!/usr/bin/env python3
import json, os, sys
words = sys.argv[1:]
here = os.path.dirname(os.path.abspath(__file__))
with open(here + "/calls", "a") as calls:
    calls.write(json.dumps(words) + "\\n")
noisy = json.load(open(here + "/noisy"))
count = noisy.pop(0) if noisy else 0
json.dump(noisy, open(here + "/noisy", "w"))
with open(words[words.index("-o") + 1], "a") as rows:
    rows.write('{"schema": "fovea.env/1"}\\n')
    for n in range(2):
        rows.write(json.dumps({"schema": "fovea.bench/1", "status": "ok", "flags": ["noisy"] * (n < count)}) + "\\n")
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
        self.assertEqual(len(self.record.read_text().splitlines()), 6)  # both sessions
        self.assertTrue(all("--resume" in call for call in self.calls()))

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
