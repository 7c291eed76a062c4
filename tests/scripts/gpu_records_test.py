# scripts/gpu_records with programs that only pretend: what runs where and when, what is left of what failed.
# gpu_records_test.py ROOT
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop() if len(sys.argv) > 1 else ".").resolve()
FOVEA = """#!/usr/bin/env python3
import json, os, sys
words = sys.argv[1:]
here = os.path.dirname(os.path.abspath(__file__))
if words[0] == "info":
    print(json.dumps({"facts": {"gpu": open(here + "/gpu").read(), "gpu_driver": "580.1, CUDA 13.0"},
                      "source_digest": "0"}))
    sys.exit()
record = words[words.index("-o") + 1]
bad = record == "graph.jsonl" and os.path.exists(here + "/bad")
with open(here + "/calls", "a") as calls:
    calls.write(json.dumps({"words": words, "gpu": os.environ["CUDA_VISIBLE_DEVICES"],
                            "processors": sorted(os.sched_getaffinity(0))}) + "\\n")
with open(record, "a") as rows:
    rows.write('{"schema": "fovea.env/1"}\\n{"schema": "fovea.bench/1", "status": "ok"}\\n')
    rows.write('{"schema": "fovea.bench/1", "status": "oom"}\\n')
sys.exit(130 if os.path.exists(here + "/interrupted") else bad)
"""


class GpuRecords(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        for name in ("bin", "scripts"):
            (self.folder / name).mkdir()
        for name in ("gpu_check", "gpu_check_cases.py", "gpu_check_outcomes.py", "gpu_check_python.py",
                     "gpu_records"):
            shutil.copy(ROOT / "scripts" / name, self.folder / "scripts")
        for name, text in (("fovea", FOVEA), ("with_torch", "#!/bin/sh\nexit 0\n"), ("without", "#!/bin/sh\nexit 1\n")):
            (self.folder / "bin" / name).write_text(text)
            (self.folder / "bin" / name).chmod(0o755)
        (self.folder / "bin/gpu").write_text("NVIDIA H200, sm_90")
        self.h200 = self.folder / "results/h200"

    def run_it(self, *words):
        ended = subprocess.run([str(self.folder / "scripts/gpu_records"), *words], cwd=self.folder, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.said = ended.stdout
        return ended.returncode

    def calls(self):
        return [json.loads(line) for line in (self.folder / "bin/calls").read_text().splitlines()]

    def test_records_are_stored_and_the_host_is_timed_first_and_alone(self):
        self.assertEqual(self.run_it("--gpus", "0,2", "--python", "bin/with_torch"), 0, self.said)
        calls = self.calls()
        self.assertIn("host-bf16.jsonl", calls[0]["words"])
        self.assertEqual({call["gpu"] for call in calls}, {"0", "2"})
        names = {path.name for path in self.h200.iterdir()}
        self.assertEqual(len(names) + 1, len(calls))  # and one beside
        self.assertEqual([path.name for path in (self.folder / "results/h200-24g").iterdir()], ["report-e.jsonl"])
        self.assertIn("heads1-bf16.jsonl: 1 of 2 rows ok", self.said)
        for call in calls:
            self.assertEqual("--with" in call["words"], "--python" in call["words"])
        self.assertTrue(any("torch.flash,torch.cudnn" in call["words"] for call in calls))

    def test_each_gpu_gets_its_own_processors(self):
        self.run_it("--gpus", "0,1", "--only", "graph,baselines", "--python", "bin/without")
        calls, allowed = self.calls(), sorted(os.sched_getaffinity(0))
        half = len(allowed) // 2
        shares = {"0": allowed[:half] or allowed, "1": allowed[half:2 * half] or allowed}
        for call in calls:
            self.assertEqual(call["processors"], shares[call["gpu"]])
        self.assertIn("has no torch", self.said)
        self.assertFalse(any("--with" in call["words"] for call in calls))

    def test_a_failed_sweep_is_resumed(self):
        (self.folder / "bin/bad").touch()
        self.assertEqual(self.run_it("--only", "graph", "--python", "bin/without"), 1)
        self.assertIn("graph: ended with 1", self.said)
        self.assertFalse((self.h200 / "graph.jsonl").exists())
        (self.folder / "bin/bad").unlink()
        self.assertEqual(self.run_it("--only", "graph", "--python", "bin/without"), 0, self.said)
        self.assertEqual(["--resume" in call["words"] for call in self.calls()], [False, True])
        self.assertEqual([path.name for path in self.h200.iterdir()], ["graph.jsonl"])

    def test_an_interrupt_ends_the_sweeps(self):
        (self.folder / "bin/interrupted").touch()
        for n, sweeps in enumerate(("graph,baselines,report-e", "host-bf16,host-fp32,graph")):
            self.assertEqual(self.run_it("--only", sweeps, "--python", "bin/without"), 1)
            self.assertEqual(len(self.calls()), n + 1, sweeps)

    def test_no_device_and_no_such_sweep(self):
        self.assertNotEqual(self.run_it("--only", "grap"), 0)
        self.assertIn("got `grap`, wanted a list of host", self.said)
        (self.folder / "bin/gpu").write_text("none")
        self.assertNotEqual(self.run_it(), 0)
        self.assertIn("no device", self.said)


if __name__ == "__main__":
    unittest.main()
