"""The part `python` of gpu_check: the tests of the Python package, by a Python that has PyTorch and pytest."""

import os
import re
import tempfile
import zipfile

# Each part of tests/python that has tests on a GPU, and what it needs.
NEEDS = {"cupy": "cupy", "flash_attn": "torch", "hf": "transformers", "hf_layers": "transformers", "jax": "jax",
         "torch": "torch", "torch_autograd": "torch", "torch_layers": "torch", "torch_registry": "torch"}


def wheels_of(root):
    """Of the package, and of others that the Python lacks: all are unpacked, none is installed."""
    return sorted(path for folder in ("wheels", "out/wheels") for path in (root / folder).glob("*.whl"))


def counts_of(code, text):
    """(passed, failed) of pytest; a run that ends otherwise has failed."""
    last = (text.splitlines() or [""])[-1]
    counts = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed|error)", last)}
    failed = counts.get("failed", 0) + counts.get("error", 0)
    nothing_ran = code == 5 or (code == 0 and not counts.get("passed"))  # such as a file that was skipped as a whole
    return counts.get("passed", 0), failed if code in (0, 1) or nothing_ran else max(failed, 1)


def check_python(run, python, root):
    """Outcome of the part. `run` is a function of a command and variables that returns the exit code and the text."""
    total = {"passed": 0, "failed": 0}
    with tempfile.TemporaryDirectory() as folder:
        for wheel in wheels_of(root):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder)
        paths = os.pathsep.join(filter(None, (folder, os.environ.get("PYTHONPATH"))))
        variables = {"PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}

        def has(module):
            return run([python, "-c", f"import {module}"], **variables)[0] == 0
        for module in ("fovea", "pytest"):
            if not has(module):
                print(f"python: not run: got {python} without {module}; wanted one with it, or its wheel in wheels")
                return total
        for part, module in NEEDS.items():
            if not has(module):
                print(f"python: {part} not run: {python} lacks {module}")
                continue
            code, text = run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider",
                              str(root / f"tests/python/test_{part}.py")], **variables)
            passed, failed = counts_of(code, text)
            print(f"python: {part}: {passed} passed, {failed} failed" + (f"\n{text[-1500:]}" if failed else ""))
            total["passed"] += passed
            total["failed"] += failed
    return total
