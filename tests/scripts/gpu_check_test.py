# scripts/gpu_check with programs that only pretend: counts, records, merging of parts, digests. gpu_check_test.py ROOT
import json
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
value = lambda key: words[words.index(key) + 1]
if words[0] == "info":
    print(json.dumps({"facts": {"gpu": "NVIDIA H200, sm_90", "gpu_driver": "580.1, CUDA 13.0"}, "implementations": [],
                      "source_digest": open(here + "/digest").read()}))
elif words[0] == "verify" and "--json" in words:
    cases, bad = int(value("--cases")), os.path.exists(here + "/bad")
    print(json.dumps({"passed": cases - bad, "failed": int(bad), "refused": 0, "failures": [{"impl": "x"}] * bad}))
elif words[0] == "verify":
    print(value("--cases") + " passed, 0 failed")
elif words[0] == "bench":
    rows = [{"schema": "fovea.environment/1"}, {"schema": "fovea.bench/1", "status": "ok"},
            {"schema": "fovea.bench/1", "status": "oom"}, {"schema": "fovea.bench/1", "status": "mismatch"}]
    open(value("-o"), "w").write("".join(json.dumps({"status": "", **row}) + "\\n" for row in rows))
    sys.exit(1)
"""
DEVICE_CHECK = """#!/usr/bin/env python3
import sys
if sys.argv[1] == "large":
    sys.exit("crashed")
print(f"{sys.argv[1]}: {sys.argv[2] if len(sys.argv) > 2 else 5} passed, 0 failed")
"""


class GpuCheck(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        for name in ("bin", "scripts"):
            (self.folder / name).mkdir()
        shutil.copy(ROOT / "scripts/gpu_check", self.folder / "scripts")
        for name, text in (("fovea", FOVEA), ("fovea_cuda_check", DEVICE_CHECK)):
            (self.folder / "bin" / name).write_text(text)
            (self.folder / "bin" / name).chmod(0o755)
        self.digest("abc")

    def digest(self, text):
        (self.folder / "bin/digest").write_text(text)

    def run_it(self, *words):
        ended = subprocess.run([str(self.folder / "scripts/gpu_check"), *words], cwd=self.folder, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.said = ended.stdout
        return ended.returncode

    def groups(self):
        record = json.loads((self.folder / "results/h200/check.json").read_text())
        self.assertEqual((record["gpu"], record["driver"]), ("NVIDIA H200", "580.1, CUDA 13.0"))
        return {name: (group["passed"], group["failed"]) for name, group in record["groups"].items()}

    def test_parts_of_several_runs_make_one_record(self):
        self.assertEqual(self.run_it("--parts", "unit,verify", "--cases", "100"), 0, self.said)
        self.assertEqual(self.run_it("--parts", "refusals,repeat,exhaustion", "--repeats", "7"), 0, self.said)
        self.assertEqual(self.groups(), {"unit": (15, 0), "verify": (100, 0), "refusals": (10000, 0), "repeat": (7, 0),
                                         "exhaustion": (5, 0)})
        self.run_it("--parts", "verify", "--cases", "30", "--seed", "17", "--add")
        self.assertEqual(self.groups()["verify"], (130, 0))

    def test_other_sources_begin_a_new_record(self):
        self.run_it("--parts", "verify", "--cases", "100")
        self.digest("def")
        self.run_it("--parts", "unit")
        self.assertEqual(self.groups(), {"unit": (15, 0)})

    def test_failures_are_counted(self):
        (self.folder / "bin/bad").touch()
        self.assertEqual(self.run_it("--parts", "verify,large,bench", "--cases", "1"), 1)
        self.assertEqual(self.groups(), {"verify": (0, 1), "large": (0, 1), "bench": (2, 1)})

    def test_a_missing_sanitizer_fails(self):
        if shutil.which("compute-sanitizer"):
            self.skipTest("there is one")
        self.assertEqual(self.run_it("--parts", "memcheck"), 1)
        self.assertIn("no compute-sanitizer on this machine", self.said)
        self.assertEqual(self.groups(), {"memcheck": (0, 2)})

    def test_compare_warns_and_does_not_fail(self):
        self.run_it("--parts", "unit")
        (self.folder / "cmake").mkdir()
        shutil.copy(ROOT / "cmake/source_digest.cmake", self.folder / "cmake")
        (self.folder / "CMakeLists.txt").touch()
        self.assertEqual(self.run_it("--compare"), 0)
        self.assertIn("warning: results/h200/check.json is of other sources (abc, here ", self.said)
        here = self.said.split("here ")[1][:12]
        whole = subprocess.run(["cmake", f"-DSOURCE_DIR={self.folder}", "-DPRINT=ON", "-P",
                                str(self.folder / "cmake/source_digest.cmake")], text=True, stdout=subprocess.PIPE)
        self.assertTrue(whole.stdout.startswith(here))
        self.digest(whole.stdout.strip())
        self.run_it("--parts", "unit")
        self.assertEqual(self.run_it("--compare"), 0)
        self.assertIn("results/h200/check.json is of these sources: NVIDIA H200", self.said)


if __name__ == "__main__":
    unittest.main()
