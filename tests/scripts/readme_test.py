# The blocks that scripts/readme makes of records: readme_test.py ROOT
import json
import pathlib
import shutil
import sys
import tempfile
import unittest

from script_loader import load

ROOT = pathlib.Path(sys.argv.pop() if len(sys.argv) > 1 else ".").resolve()
readme = load(ROOT, "readme")
import readme_layers  # noqa: E402


def environment(version):
    return {"schema": "fovea.env/1", "version": version, "threads": 2, "date": "2026-01-31T12:00:00Z",
            "facts": {"cpu": "Some CPU"}}


def row(impl, seconds, dtype="fp32", which="fwd", flags=()):
    return {"schema": "fovea.bench/1", "problem": f"op=attention pass={which} lq=512 dtype={dtype} mask=none",
            "impl": impl, "status": "ok" if seconds else "oom", "flags": list(flags),
            "time_s": {"median": seconds} if seconds else None}


class Blocks(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def record(self, *lines):
        path = self.folder / "run.jsonl"
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    def test_baselines_that_miss_the_goal_are_counted_and_named(self):
        times = {("fp32", "fwd"): 1.0, ("fp32", "bwd"): 1.1, ("bf16", "fwd"): 0.5, ("bf16", "bwd"): 1.2}
        block = readme.peers_block([self.record(environment("1"), *(
            row(impl, seconds * ratio, *of) for of, ratio in times.items()
            for impl, seconds in (("naive", ratio), ("fused", 1), ("torch.eager", 1 / ratio), ("torch.compile", 1))))])
        self.assertIn("| `fused` / `torch.compile` | 1.00-1.00 (1 cells) |", block)
        self.assertIn("`naive` in 2 of 4 cells (bf16 backward, no mask; fp32 backward, no mask) and `fused` in 0 of 4",
                      " ".join(block.split()))

    def test_noise_is_a_share_of_the_timed_cells(self):
        record = self.record(environment("1"), row("naive", 1), row("fused", 1, flags=["noisy"]), row("flash", None))
        self.assertEqual(readme.noise([record]), "1 of 2 timed cells are noisy, 50 %")

    def test_a_profile_tells_whose_times_are_noisy(self):
        some = [("fovea", 1, ()), ("torch.eager", 2, ["noisy"]), ("torch.eager", 3, ["noisy"]),
                ("torch.compile", 4, ["noisy"]), ("torch.compile", None, ())]
        said = readme_layers.noise_sentence([row(impl, seconds, flags=flags) for impl, seconds, flags in some])
        self.assertEqual(said, "3 of 4 times are noisy: 2 of `torch.eager`, 1 of `torch.compile`.")
        self.assertEqual(readme_layers.noise_sentence([row("fovea", 1)]), "0 of 1 times are noisy.")

    def test_totals_of_layers_have_their_largest_ratio_and_the_mean_of_wide_heads(self):
        times = [("fwd", 128, 9.0), ("e2e", 64, 1.25), ("e2e", 128, 0.5), ("e2e", 128, 2.0), ("e2e", 128, 1.0)]
        record = self.record(environment("1"), *(
            row(impl, seconds, which=which) | {"problem": f"op=mha pass={which} lq={length} d={dim}"}
            for length, (which, dim, ratio) in enumerate(times)
            for impl, seconds in (("cuda.sm90", ratio), ("torch.flash", 2), ("torch.cudnn", 1))))
        self.assertEqual(readme_layers.totals_sentence(record), "The largest of the 4 totals is 2.000. The 3 totals of "
                         "head dimension 128 have the geometric mean 1.000.")

    def test_steps_that_a_resumed_training_repeats_count_once(self):
        steps = [{"schema": "fovea.train/1", "step": number, "loss": 6.0 - number, "seconds": 2.0}
                 for number in (1, 2, 2, 3)]
        steps[-1] |= {"held_out": 3.5, "trigram": 4.0}
        facts = {"machine": "Some CPU, 2 processors", "facts": {"model": "a model"}}
        readme_layers.ROOT = self.folder
        block = readme_layers.training_block(self.record(environment("1") | facts, *steps))
        self.assertIn("| training, mean of the last 3 of 3 steps | 4.000 |", block)
        self.assertIn("6 s of steps", block)

    def test_records_of_an_older_version_are_called_older(self):
        self.assertTrue(readme.age_block(self.record(environment("0.0.1"))).startswith(
            "These older figures of version 0.0.1 compare Fovea with its own baselines only (Some CPU, 2 threads)."))
        self.assertTrue(readme.age_block(self.record(environment(readme.VERSION))).startswith("These figures compare"))


if __name__ == "__main__":
    unittest.main()
