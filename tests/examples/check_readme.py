# The C++ example of the README is the one that is built here, and prints what the README says: check_readme.py PROGRAM
import pathlib
import re
import subprocess
import sys

root = pathlib.Path(__file__).resolve().parents[2]
found = re.search(r"```cpp\n(.*?)```.*?```text\n(.*?)```", (root / "README.md").read_text(), re.DOTALL)
if not found:
    sys.exit("README.md has no ```cpp block followed by a ```text block")
if found[1] != (root / "examples/forward.cpp").read_text():
    sys.exit("the first ```cpp block of README.md is not examples/forward.cpp")
printed = subprocess.run([sys.argv[1]], capture_output=True, text=True, check=True).stdout
if printed != found[2]:
    sys.exit(f"README.md shows\n{found[2]}but the example prints\n{printed}")
