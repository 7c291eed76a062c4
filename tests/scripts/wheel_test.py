# scripts/wheel: which wheels it refuses, and the size of CUDA code. tests/packaging/wheel_test.py builds one.
# wheel_test.py ROOT
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from script_loader import load

ROOT = pathlib.Path(sys.argv.pop() if len(sys.argv) > 1 else ".").resolve()
GOOD = "fovea-0.2.0-cp310-abi3-manylinux_2_34_x86_64.whl"


class Script(unittest.TestCase):
    def setUp(self):
        self.script = load(ROOT, "wheel")
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def refusal(self, name=GOOD, size=1000, files=("fovea/_core.abi3.so",)):
        wheel = self.folder / name
        with wheel.open("wb") as file:
            file.truncate(size)
        try:
            self.script.check(wheel, files)
        except self.script.Refused as refused:
            return str(refused)
        return ""

    def test_a_good_wheel_is_taken(self):
        self.assertEqual(self.refusal(size=60_000_000), "")

    def test_others_are_refused(self):
        self.assertIn("60,000,001 bytes, wanted at most 60,000,000", self.refusal(size=60_000_001))
        for name in ("fovea-0.2.0-cp310-abi3-linux_x86_64.whl", "fovea-0.2.0-cp311-cp311-manylinux_2_34_x86_64.whl"):
            self.assertIn(f"the wheel is {name}, wanted", self.refusal(name))
        self.assertIn("wanted none: fovea.libs/libm.so", self.refusal(files=["fovea.libs/libm.so"]))

    def test_a_command_that_fails_is_a_refusal(self):
        with self.assertRaisesRegex(self.script.Refused, r"(?s)ended with 3, wanted 0:\nwhy"):
            self.script.run(sys.executable, "-c", "import sys; print('why'); sys.exit(3)")

    def test_cuda_code_is_what_its_section_holds(self):
        (self.folder / "code").write_bytes(b"for a GPU")
        module = self.folder / "module.o"
        for section, wanted in ((".nv_fatbin", b"for a GPU"), (".other", b"")):
            subprocess.run(["objcopy", "-I", "binary", "-O", "elf64-x86-64", "--rename-section", f".data={section}",
                            self.folder / "code", module], check=True)
            self.assertEqual(self.script.cuda_code(module), wanted)


if __name__ == "__main__":
    unittest.main()
