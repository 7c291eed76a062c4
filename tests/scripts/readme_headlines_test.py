# The first table of the README, with a program that only pretends: which rows a figure is over, what the caption says.
# readme_headlines_test.py ROOT
import json
import pathlib
import shutil
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop() if len(sys.argv) > 1 else ".").resolve()
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "scripts"))
import readme_headlines  # noqa: E402

# Of each record it wins the problems that it ran beside the baseline.
FOVEA = """#!/usr/bin/env python3
import json, pathlib, sys
words = sys.argv[1:]
rows = [json.loads(line) for line in open(words[1])][1:]
tables = pathlib.Path(words[words.index("-o") + 1]) / "tables"
tables.mkdir()
peer = words[words.index("--baseline") + 1]
beside = {row["problem"] for row in rows if row["impl"] == peer and row["status"] == "ok"}
wins = sum(row["impl"] == "cuda.any" and row["problem"] in beside for row in rows)
(tables / "summary.csv").write_text("pass,implementation,mean speed-up,interval,wins,ties,losses\\\\n"
                                    f"forward,{peer},-,-,-,-,-\\\\nforward,cuda.any,1.234,1.1 to 1.4,{wins},0,0\\\\n")
""".replace("\\\\", "\\")
ENVIRONMENT = {"schema": "fovea.env/1", "version": "0.0.1", "date": "2026-11-23T04:09:07Z", "threads": 10,
               "command": "fovea bench --repeat-for 0.04",
               "facts": {"cpu": "a host", "gpu": "NVIDIA H200", "gpu_driver": "580.1", "processors": "32"}}


def rows(head, mask, length):
    problem = f"pass=fwd b={16384 // length} hq={2048 // head} lq={length} d={head} dtype=bf16 mask={mask}"
    row = {"schema": "fovea.bench/1", "problem": problem, "status": "ok", "flags": []}
    yield row | {"impl": "cuda.any", "flags": ["noisy"] * (length == 512)}
    yield row | {"impl": "vectorized"}  # not shown
    yield row | {"impl": "torch.flash", "peer": "PyTorch 2.11"}
    yield row | {"impl": "torch.cudnn", "status": "ok" if head == 64 else "unsupported"}


class Headlines(unittest.TestCase):
    def setUp(self):
        folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, folder)
        self.program, self.record = folder / "fovea", folder / "dense.jsonl"
        self.program.write_text(FOVEA)
        self.program.chmod(0o755)
        readme_headlines.ROOT = folder
        readme_headlines.VERSION = "0.0.2"

    def block(self, **environment):
        found = [row for head in (64, 128) for mask in ("none", "causal") for length in (512, 1024, 2048)
                 if (mask, length) != ("causal", 2048) for row in rows(head, mask, length)]
        self.record.write_text("".join(json.dumps(line) + "\n" for line in [ENVIRONMENT | environment, *found]))
        return readme_headlines.headlines_block(str(self.program), {"gpu": ("d", [self.record])})

    def test_a_figure_is_over_the_problems_of_one_head_dimension_and_mask(self):
        three, two = (f"1.23× [1.1 to 1.4] ({wins}/0/0)" for wins in (3, 2))
        shown = [line for line in self.block().splitlines() if line.startswith("| `cuda.any`")]
        self.assertEqual(shown, [
            f"| `cuda.any`, d = 64 | FlashAttention-2 in PyTorch | {three} | {two} | - | - |",
            f"| `cuda.any`, d = 64 | cuDNN in PyTorch | {three} | {two} | - | - |",
            f"| `cuda.any`, d = 128 | FlashAttention-2 in PyTorch | {three} | {two} | - | - |"])

    def test_the_caption_comes_from_the_record(self):
        caption = " ".join(self.block().split("<sub>")[1].split())
        self.assertIn("NVIDIA H200 (driver 580.1): bf16, 16,384 tokens, heads x d = 2,048, d 64 and 128, lengths 512 "
                      "to 2k; each figure is over 2 to 3 problems. Fovea 0.0.1 and PyTorch 2.11; 2026-11-23.", caption)
        self.assertIn("4 of these 25 cells are noisy (16 %); each was sampled for at most 0.04 s (`dense.jsonl`).",
                      caption)

    def test_an_older_version_is_named(self):
        self.assertIn("The NVIDIA H200 rows were measured with version 0.0.1.", " ".join(self.block().split()))
        self.assertNotIn("measured with version", self.block(version="0.0.2"))


if __name__ == "__main__":
    unittest.main()
