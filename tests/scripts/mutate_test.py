# scripts/mutate: what it changes, and what it leaves alone; nothing is built.
# mutate_test.py ROOT
import pathlib
import re
import subprocess
import sys
import unittest

from script_loader import load

ROOT = pathlib.Path(sys.argv.pop() if len(sys.argv) > 1 else ".").resolve()
mutate = load(ROOT, "mutate")

SOURCE = """// a + b
#include <a/b.h>
static_assert(1 < 2);
template <int kN = 3>
int f(const std::vector<int>& v, int* p) {
  if (v.size() < 4 && p != nullptr) return std::min(1, *p);
  g("a + 1", '2');
  return v[0] + 0x1f + sizeof v[7];  // 5 - 3
}
"""


def changes(source):
    return {(one.old, one.new) for one in mutate.mutations_of("f.cpp", source)}


class Mutations(unittest.TestCase):
    def test_operators_bounds_and_constants_change(self):
        self.assertEqual(changes(SOURCE), {
            ("<", "<="), ("<", ">="), ("4", "5"), ("4", "3"), ("&&", "||"), ("!=", "=="), ("std::min", "std::max"),
            ("1", "2"), ("1", "0"), ("0", "1"), ("+", "-")})

    def test_a_mutation_changes_one_place(self):
        for one in mutate.mutations_of("f.cpp", SOURCE):
            changed = one.apply(SOURCE)
            self.assertNotEqual(changed, SOURCE)
            self.assertEqual(sum(a != b for a, b in zip(SOURCE.splitlines(), changed.splitlines())), 1)
            self.assertIn("f.cpp:", one.describe(SOURCE))

    def test_a_seed_names_the_same_mutations(self):
        texts = {path.name: path.read_text() for path in (ROOT / "src/cpu").glob("*.cpp")}
        first = mutate.sample(texts, 30, 7)
        self.assertEqual(first, mutate.sample(dict(reversed(texts.items())), 30, 7))
        self.assertEqual(first[:10], mutate.sample(texts, 10, 7))
        self.assertNotEqual(first, mutate.sample(texts, 30, 8))
        self.assertEqual(len({(one.path, one.start) for one in first}), 30)

    def test_the_sources_have_thousands(self):
        texts = [path.read_text() for folder in ("src/cpu", "src/core") for path in (ROOT / folder).rglob("*.[hc]*")]
        self.assertGreater(sum(len(list(mutate.mutations_of("a", text))) for text in texts), 2000)

    def test_every_test_program_runs_that_sees_the_sources(self):
        declared = set()
        for path in (ROOT / "tests").glob("*/CMakeLists.txt"):
            text, folder = path.read_text(), path.parent.name
            names = re.findall(r"^ *fovea_test\(test_(\w+)", text, re.M) + re.findall(r"^c99_test\((\w+) ", text, re.M)
            declared |= {f"{folder}/{name}" for name in names if folder not in ("cuda", "documentation")}
        declared |= {"attention/exit", "attention/exhaustion"}
        declared |= {f"c_api/header_of_{path.stem.removeprefix('fovea-').replace('.', '_')}"
                     for path in (ROOT / "tests/c_api/frozen").glob("fovea-*.h")}
        self.assertGreater(len(declared), 15)
        self.assertEqual(set(mutate.TESTS), declared)
        self.assertEqual(len(mutate.TESTS), len(declared))

    def test_the_help_names_the_options(self):
        text = subprocess.run([sys.executable, ROOT / "scripts/mutate", "--help"], check=True, text=True,
                              capture_output=True).stdout
        for option in ("--seed", "--list", "--only", "--tree"):
            self.assertIn(option, text)


if __name__ == "__main__":
    unittest.main()
