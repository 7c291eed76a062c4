# `make bench` with a program that only pretends: it ends as its verbs do. make_bench_test.py ROOT
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop() if len(sys.argv) > 1 else ".").resolve()

# Fails if it is the verb that shall fail; else writes a line into the file after -o.
FOVEA = """#!/bin/sh
echo "$1" >>verbs
[ "$1" != "$FAILS" ] || exit 1
while [ "$1" != -o ]; do shift; done
[ "$2" = out/report ] || echo "{}" >"$2"
"""


class Bench(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        shutil.copy(ROOT / "Makefile", self.folder)
        programs = {"scripts/setup": "#!/bin/sh\n", "bin/cmake": "#!/bin/sh\n", "build/release/fovea": FOVEA}
        for name, text in programs.items():
            path = self.folder / name
            path.parent.mkdir(parents=True)
            path.write_text(text)
            path.chmod(0o755)

    def bench(self, fails):
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        done = subprocess.run(["make", "bench"], cwd=self.folder, capture_output=True, check=False,
                              env={**os.environ, "PATH": path, "FAILS": fails})
        self.assertEqual((self.folder / "verbs").read_text().split(), ["bench", "profile", "report"])
        return done.returncode

    def test_it_fails_if_bench_or_profile_fails(self):
        for fails in ("bench", "profile"):
            with self.subTest(fails):
                self.assertNotEqual(self.bench(fails), 0)
                (self.folder / "verbs").unlink()

    def test_a_missing_report_is_no_failure(self):
        for fails in ("none", "report"):
            with self.subTest(fails):
                self.assertEqual(self.bench(fails), 0)
                (self.folder / "verbs").unlink()


if __name__ == "__main__":
    unittest.main()
