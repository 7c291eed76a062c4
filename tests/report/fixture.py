# What the tests of pictures begin with: TEST.py ROOT; the package of ROOT/python is found, 77 without matplotlib.
import pathlib
import sys

ROOT = pathlib.Path(sys.argv.pop() if len(sys.argv) > 1 else ".").resolve()
PACKAGE = str(ROOT / "python")
sys.path.insert(0, PACKAGE)
try:
    import matplotlib  # noqa: F401
except ImportError as missing:
    print(missing)
    sys.exit(77)
