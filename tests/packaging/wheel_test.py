# The source distribution builds a wheel, and the wheel, an installation and the sources run the same Python files:
# wheel_test.py ROOT PREFIX FOLDER
import collections
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

ROOT, PREFIX, FOLDER = (pathlib.Path(word).resolve() for word in sys.argv[1:4])
PROGRAM, SHARE, WHEEL = PREFIX / "bin/fovea", PREFIX / "share/fovea/python", FOLDER / "wheel"
RECORD = ROOT / "results/epyc/report-a.jsonl"  # of a published report, so that the tables beside it are needed too
# What the test is about does not depend on the kernels: only those of the CPU, and compiled fast.
SETTINGS = {"cmake.define.FOVEA_CUDA": "OFF", "cmake.define.FOVEA_KERNEL_LEVEL": "1", "cmake.build-type": "Debug",
            "cmake.define.CMAKE_CXX_FLAGS_DEBUG": ""}


def run(*words, folder=FOLDER, **variables):
    """The output of a command that succeeds."""
    environment = {name: value for name, value in os.environ.items() if name != "FOVEA_PYTHON_FOLDER"}
    ended = subprocess.run(list(map(str, words)), cwd=folder, capture_output=True, text=True, check=False,
                           env={**environment, "PYTHONDONTWRITEBYTECODE": "1", **variables})
    if ended.returncode != 0:
        raise AssertionError(f"{words} ended with {ended.returncode}, wanted 0:\n{ended.stdout[-4000:]}{ended.stderr}")
    return ended.stdout


def files_below(folder):
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        shutil.rmtree(FOLDER, ignore_errors=True)
        FOLDER.mkdir(parents=True)
        build = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"
        run(sys.executable, "-c", build, FOLDER, folder=ROOT)
        (archive,) = FOLDER.glob("fovea-*.tar.gz")
        shutil.unpack_archive(archive, FOLDER)
        cls.unpacked = FOLDER / archive.name.removesuffix(".tar.gz")
        settings = [word for name, value in SETTINGS.items() for word in ("--config-settings", f"{name}={value}")]
        run(sys.executable, "-m", "pip", "wheel", ".", "--no-deps", "--no-build-isolation", "-w", FOLDER, *settings,
            folder=cls.unpacked)
        (cls.wheel,) = FOLDER.glob("*.whl")
        shutil.unpack_archive(cls.wheel, WHEEL, "zip")
        cls.files = {name: text for name, text in files_below(WHEEL).items()
                     if ".dist-info/" not in name and not name.endswith(".so")}

    def test_one_wheel_serves_every_python_from_3_10_on(self):
        self.assertRegex(self.wheel.name, r"^fovea-[0-9.]+-cp310-abi3-linux_\w+\.whl$")
        metadata = next(WHEEL.glob("*.dist-info/METADATA")).read_text()
        for package in ("jinja2", "matplotlib", "pandas"):
            self.assertRegex(metadata, rf"(?m)^Requires-Dist: {package}\b.*extra == ['\"]report['\"]")

    def test_the_source_distribution_has_every_committed_source(self):
        if not (ROOT / ".git").exists():
            self.skipTest("no list of committed files")
        listed = run("git", "ls-files", "include", "src", "cmake", "python", folder=ROOT).splitlines()
        self.assertEqual([name for name in listed if not (self.unpacked / name).exists()], [])

    def test_all_ways_have_the_files_of_the_sources(self):
        self.assertEqual({name.split("/")[0] for name in self.files}, {"fovea", "fovea_bench", "fovea_report"})
        for name, text in self.files.items():
            self.assertEqual(text, (ROOT / "python" / name).read_bytes(), name)
            if not name.startswith("fovea/"):
                self.assertEqual(text, (SHARE / name).read_bytes(), name)

    def test_the_sources_hold_no_copy_of_them(self):
        folders = ("examples", "python", "scripts", "src", "tests")
        held = collections.Counter(text for folder in folders for text in files_below(ROOT / folder).values())
        self.assertEqual([name for name, text in self.files.items() if text and held[text] != 1], [])

    def test_all_ways_make_the_same_report(self):
        words = ["--no-pictures", RECORD]
        run(sys.executable, "-m", "fovea_report", "-o", "module", *words, PYTHONPATH=str(WHEEL),
            PATH=f"{PREFIX}/bin:{os.environ['PATH']}")
        run(PROGRAM, "report", "--python", sys.executable, "-o", "installed", *words)
        for name, python in (("wheel", WHEEL), ("sources", ROOT / "python")):
            run(PROGRAM, "report", "--python", sys.executable, "-o", f"by_{name}", *words,
                FOVEA_PYTHON_FOLDER=str(python))
        report = (FOLDER / "module/report.md").read_text()
        self.assertIn("## Report A", report)
        for name in ("installed", "by_wheel", "by_sources"):
            self.assertEqual((FOLDER / name / "report.md").read_text(), report, name)

    def test_the_program_finds_the_workers_of_the_wheel(self):
        run(PROGRAM, "bench", "--problem", "lq=4 d=4", "--impl", ROOT / "examples/my_kernel.py:attention", "--python",
            sys.executable, "--repeat-for", "0.01", "-o", "run.jsonl", FOVEA_PYTHON_FOLDER=str(WHEEL))
        rows = [json.loads(line) for line in (FOLDER / "run.jsonl").read_text().splitlines()]
        self.assertEqual([row["status"] for row in rows if row["schema"] == "fovea.bench/1"], ["ok"])

    def test_it_can_be_imported(self):
        program = "import time; start = time.perf_counter(); import fovea; print(time.perf_counter() - start)"
        seconds = min(float(run(sys.executable, "-c", program, PYTHONPATH=str(WHEEL))) for _ in range(3))
        print(f"import fovea takes {1e3 * seconds:.0f} ms")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
