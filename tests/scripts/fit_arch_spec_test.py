# scripts/fit_arch_spec on the committed sweeps: a short fit finds constants that choose well on problems it has not
# seen, and its copy of the formulas is the library's.
# fit_arch_spec_test.py ROOT
import pathlib
import re
import subprocess
import sys
import unittest

import numpy as np

from script_loader import load

ROOT = pathlib.Path(sys.argv.pop() if len(sys.argv) > 1 else ".").resolve()
JUDGE = ROOT / "results/h200/tile_sweep_judge.jsonl.xz"


def row_of_the_library():
    """The H200's constants, out of the designated initializers."""
    text = (ROOT / "src/cuda/attention/any/arch_spec.cpp").read_text()
    braces = text[text.index("kH200{") + len("kH200"):text.index("};", text.index("kH200{")) + 1]
    return eval(re.sub(r"\.(\w+) = ", r'"\1": ', braces))


def constants_of_the_library(fit, fp32):
    """The constants of one width, under the script's names."""
    width = row_of_the_library()["fp32" if fp32 else "bits16"]
    tables = {}
    for kernel in fit.KERNELS.values():
        tables[kernel] = dict(width[kernel]["costs"])
        for number, way in enumerate(fit.WAYS[fp32]):
            costs = width[kernel]["tiles"].get(way, {})
            tables[kernel].update({f"{key}{number}": value for key, value in costs.items()})
    return tables | {"pair": width["pair"]}


class FitArchSpec(unittest.TestCase):
    def test_a_short_fit_chooses_well_on_other_problems(self):
        ended = subprocess.run([sys.executable, ROOT / "scripts/fit_arch_spec",
                                ROOT / "results/h200/tile_sweep.jsonl.xz",
                                "--judge", JUDGE, "--rounds", "1"],
                               capture_output=True, text=True)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        judged = re.search(r"judged by (\d+) calls: mean ([\d.]+)", ended.stdout)
        self.assertEqual(int(judged[1]), 208)
        self.assertLess(float(judged[2]), 1.03)  # the three formulas of 2026-11-22: 1.04
        self.assertIn("16 bits, forward:", ended.stdout)
        self.assertIn("  wgmma.rate = ", ended.stdout)

    def test_script_and_library_predict_the_same_cycles_and_choose_the_same(self):
        fit = load(ROOT, "fit_arch_spec")
        records = fit.records_of([str(JUDGE)])
        for record in records:
            if "choices" not in record:
                continue
            constants = constants_of_the_library(fit, record["dtype"] == 0)
            predicted = fit.cycles_of_kernel(fit.columns(record), constants[fit.KERNELS[record["kernel"]]])
            printed = np.array([one["cycles"] for one in record["choices"]])
            self.assertLess(np.max(np.abs(predicted / printed - 1)), 1e-4, record)
        chosen = [one["us"] / min(other["us"] for other in record["choices"] if other["us"] > 0)
                  for record in records if record["kernel"] == "forward" for one in record["choices"] if one["chosen"]]
        computed = []
        for fp32 in (False, True):
            forward = fit.groups_of(records, fp32)["forward"]
            computed += fit.regrets_of(forward,
                                       fit.compared_cycles(forward, constants_of_the_library(fit, fp32)["forward"]))
        self.assertGreater(len(chosen), 90)
        np.testing.assert_allclose(sorted(chosen), sorted(computed), rtol=1e-6)

    def test_script_and_library_have_the_same_constants_that_are_not_fitted(self):
        fit, row = load(ROOT, "fit_arch_spec"), row_of_the_library()
        self.assertAlmostEqual(fit.CLOCK_MHZ * 1e6, row["clock_hz"])
        self.assertAlmostEqual(fit.LAUNCH_US * 1e-6, row["launch_seconds"], places=12)
        self.assertEqual(fit.MEMORY_RATE, row["memory_rate"])
        self.assertEqual(fit.WEIGHT_OF_ONE_MORE_KERNEL, row["weight_of_one_more_kernel"])

    def test_a_file_that_is_no_sweep_is_refused(self):
        ended = subprocess.run([sys.executable, ROOT / "scripts/fit_arch_spec", ROOT / "README.md"],
                               capture_output=True,
                               text=True)
        self.assertEqual(ended.returncode, 2)
        self.assertIn("README.md", ended.stderr)


if __name__ == "__main__":
    unittest.main()
