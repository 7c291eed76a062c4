"""The examples of the README and of docs/python print what the pages say."""

import importlib.util
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
NEEDS = {"numpy": ["numpy"], "pytorch": ["torch"], "jax": ["jax"], "hugging_face": ["torch", "transformers"]}
PAGES = sorted((ROOT / "docs/python").glob("*.md"))


def check(text):
    program = re.search(r"```python\n(.*?)```", text, re.DOTALL)[1]
    printed = re.search(r"```text\n(.*?)```", text, re.DOTALL)[1]
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=300)
    assert ended.stdout == printed, ended.stderr


def test_the_readme():
    check(re.search(r"^## In Python$(.*?)^## ", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)[1])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page(page):
    missing = [name for name in NEEDS[page.stem] if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"needs {', '.join(missing)}")
    check(page.read_text())
