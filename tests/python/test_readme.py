"""The Python of the README prints what the README says."""

import pathlib
import re
import subprocess
import sys

README = pathlib.Path(__file__).resolve().parents[2] / "README.md"


def test_the_example_prints_its_output():
    section = re.search(r"^## In Python$(.*?)^## ", README.read_text(), re.MULTILINE | re.DOTALL)[1]
    program = re.search(r"```python\n(.*?)```", section, re.DOTALL)[1]
    printed = re.search(r"```text\n(.*?)```", section, re.DOTALL)[1]
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert ended.stdout == printed, ended.stderr
