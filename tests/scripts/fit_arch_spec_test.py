# scripts/fit_arch_spec on the committed sweeps: a short fit finds constants that choose well on problems it has not seen.
# fit_arch_spec_test.py ROOT
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop() if len(sys.argv) > 1 else ".").resolve()


class FitArchSpec(unittest.TestCase):
    def test_a_short_fit_chooses_well_on_other_problems(self):
        ended = subprocess.run([sys.executable, ROOT / "scripts/fit_arch_spec", ROOT / "results/h200/tile_sweep.jsonl.xz",
                                "--judge", ROOT / "results/h200/tile_sweep_judge.jsonl.xz", "--rounds", "1"],
                               capture_output=True, text=True)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        judged = re.search(r"judged by (\d+) calls: mean ([\d.]+)", ended.stdout)
        self.assertEqual(int(judged[1]), 168)
        self.assertLess(float(judged[2]), 1.03)  # the three formulas of 2026-11-22: 1.04
        self.assertIn("16 bits, forward:", ended.stdout)
        self.assertIn("  wgmma.rate = ", ended.stdout)

    def test_a_file_that_is_no_sweep_is_refused(self):
        ended = subprocess.run([sys.executable, ROOT / "scripts/fit_arch_spec", ROOT / "README.md"], capture_output=True,
                               text=True)
        self.assertEqual(ended.returncode, 2)
        self.assertIn("README.md", ended.stderr)


if __name__ == "__main__":
    unittest.main()
