# scripts/gpu_check with programs that only pretend: counts, records, merging of parts, digests.
# gpu_check_test.py ROOT [PROGRAM], the real `fovea`, which must understand the problem lines.
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock
import zipfile

PROGRAM = sys.argv.pop(2) if len(sys.argv) > 2 else None

from script_loader import load

ROOT = pathlib.Path(sys.argv.pop() if len(sys.argv) > 1 else ".").resolve()
FOVEA = """#!/usr/bin/env python3
import json, os, sys
words = sys.argv[1:]
here = os.path.dirname(os.path.abspath(__file__))
value = lambda key: words[words.index(key) + 1]
with open(here + "/calls", "a") as calls:
    calls.write(json.dumps({"words": words, "jit": os.environ.get("CUDA_FORCE_PTX_JIT"),
                            "cache": os.environ.get("CUDA_CACHE_PATH"),
                            "limit": os.environ.get("FOVEA_CUDA_SHARED_LIMIT")}) + "\\n")
if words[0] == "info":
    print(json.dumps({"facts": {"gpu": "NVIDIA H200, sm_90", "gpu_driver": "580.1, CUDA 13.0"}, "implementations": [],
                      "source_digest": open(here + "/digest").read()}))
elif words[0] == "verify" and "--json" in words:
    if "CUDA_CACHE_PATH" in os.environ and not os.path.exists(here + "/no_ptx"):
        open(os.environ["CUDA_CACHE_PATH"] + "/compiled", "w").close()
    cases, bad = int(value("--cases")) if "--cases" in words else 10, os.path.exists(here + "/bad")
    cell = {"impl": "x", "dtype": "fp32", "pass": "forward", "mask": "none", "layout": "bhld"}
    for operation in value("--op").split(",") if "--op" in words else ["attention"]:
        if operation == "mla" and os.path.exists(here + "/crashes"):
            sys.exit("crashed")
        print(json.dumps({"passed": cases - bad, "failed": int(bad), "refused": 0, "exempt": 1,
                          "operation": operation, "out_of_memory": 0, "failures": [{"impl": "x"}] * bad,
                          "coverage": [{**cell, "head_dims": "d<=16", "executed": 2},
                                       {**cell, "head_dims": value("--seed") if "--seed" in words else "",
                                        "executed": 1},
                                       {**cell, "head_dims": "d>256", "executed": 0}]}))
elif words[0] == "verify":
    print(value("--cases") + " passed, 0 failed")
elif words[0] == "bench" and "--json" in words:
    for impl in ("cuda.sm90", value("--with")):
        print(json.dumps({"schema": "fovea.bench/1", "impl": impl, "status": "ok"}))
elif words[0] == "bench" and "--impl" in words:
    status = "crashed" if os.path.exists(here + "/bad") else "ok"
    with open(value("-o"), "a") as rows:
        rows.write('{"schema": "fovea.environment/1"}\\n')
        rows.write(json.dumps({"schema": "fovea.bench/1", "status": status}) + "\\n")
        rows.write(json.dumps({"schema": "fovea.bench/1", "status": "ok"}) + "\\n")
    sys.exit(status != "ok")
elif words[0] == "profile":
    print(json.dumps({"schema": "fovea.profile/1", "status": "ok"}))
    print(json.dumps({"schema": "fovea.bench/1", "impl": "fovea", "status": "ok"}))
    print(json.dumps({"schema": "fovea.bench/1", "impl": value("--with"),
                      "status": "mismatch" if os.path.exists(here + "/bad") else "ok"}))
elif words[0] == "bench":
    rows = [{"schema": "fovea.environment/1"}, {"schema": "fovea.bench/1", "status": "ok"},
            {"schema": "fovea.bench/1", "status": "oom"}, {"schema": "fovea.bench/1", "status": "mismatch"}]
    open(value("-o"), "w").write("".join(json.dumps({"status": "", **row}) + "\\n" for row in rows))
    sys.exit(1)
"""
DEVICE_CHECK = """#!/usr/bin/env python3
import sys
if sys.argv[1] == "large":
    sys.exit("crashed")
print(f"{sys.argv[1]}: {sys.argv[2] if len(sys.argv) > 2 else 5} passed, 0 failed")
"""


class GpuCheck(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        for name in ("bin", "scripts"):
            (self.folder / name).mkdir()
        for name in ("gpu_check", "gpu_check_cases.py", "gpu_check_outcomes.py", "gpu_check_python.py",
                     "gpu_check_parallel"):
            shutil.copy(ROOT / "scripts" / name, self.folder / "scripts")
        for name, text in (("fovea", FOVEA), ("fovea_cuda_check", DEVICE_CHECK)):
            (self.folder / "bin" / name).write_text(text)
            (self.folder / "bin" / name).chmod(0o755)
        self.digest("abc")

    def digest(self, text):
        (self.folder / "bin/digest").write_text(text)

    def run_it(self, *words, script="gpu_check"):
        ended = subprocess.run([str(self.folder / "scripts" / script), *words], cwd=self.folder, text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.said = ended.stdout
        return ended.returncode

    def groups(self):
        record = json.loads((self.folder / "results/h200/check.json").read_text())
        self.assertEqual((record["gpu"], record["driver"]), ("NVIDIA H200", "580.1, CUDA 13.0"))
        return {name: (group["passed"], group["failed"]) for name, group in record["groups"].items()}

    def test_parts_of_several_runs_make_one_record(self):
        self.assertEqual(self.run_it("--parts", "unit,verify", "--cases", "100"), 0, self.said)
        self.assertEqual(self.run_it("--parts", "refusals,repeat,exhaustion", "--repeats", "7"), 0, self.said)
        self.assertEqual(self.groups(), {"unit": (65, 0), "verify": (100, 0), "refusals": (10000, 0), "repeat": (7, 0),
                                         "exhaustion": (5, 0)})
        self.run_it("--parts", "verify", "--cases", "30", "--seed", "17", "--add")
        self.assertEqual(self.group("verify")["seeds"], "1,17")
        self.assertEqual(self.groups()["verify"], (130, 0))

    def group(self, name):
        return json.loads((self.folder / "results/h200/check.json").read_text())["groups"][name]

    def test_the_record_holds_the_request(self):
        self.run_it("--parts", "verify,repeat,refusals", "--cases", "100", "--repeats", "7", "--descriptors", "9")
        self.run_it("--parts", "verify", "--cases", "30", "--seed", "17", "--add")
        self.assertEqual(self.group("verify")["cases"], 130)
        self.assertEqual(self.group("repeat")["launches"], 7)
        self.assertEqual(self.group("refusals")["descriptors"], 9)
        for preset in ("report-a", "report-e"):
            self.run_it("--parts", "bench", "--bench", f"--preset {preset}", "--add")
        self.assertEqual(self.group("bench")["arguments"], "--preset report-e")

    def test_parallel_processes_lose_no_part(self):
        command = [str(self.folder / "scripts/gpu_check"), "--parts"]
        running = [subprocess.Popen(command + [part], cwd=self.folder, stdout=subprocess.DEVNULL)
                   for part in ("unit", "repeat", "refusals", "exhaustion")]
        self.assertEqual([one.wait() for one in running], [0, 0, 0, 0])
        self.assertEqual(set(self.groups()), {"unit", "repeat", "refusals", "exhaustion"})

    def test_side_by_side_every_part_is_recorded(self):
        script = load(ROOT, "gpu_check")
        code = self.run_it("--gpus", "0,1", "--cases", "64", "--repeats", "7", script="gpu_check_parallel")
        self.assertEqual(set(self.groups()), set(script.PARTS) - {"bench"}, self.said)
        self.assertEqual(code, 1, self.said)  # the pretended `large` crashes
        self.assertIn("GPU 1", self.said)
        for words in (["--gpus", "0,0"], ["--gpus", "a"], ["--parts", "unit"]):
            self.assertEqual(self.run_it(*words, script="gpu_check_parallel"), 2, self.said)

    def test_other_sources_begin_a_new_record(self):
        self.run_it("--parts", "verify", "--cases", "100")
        self.digest("def")
        self.run_it("--parts", "unit")
        self.assertEqual(self.groups(), {"unit": (65, 0)})

    def test_another_model_of_one_folder_begins_a_new_record(self):
        self.run_it("--parts", "verify", "--cases", "100")
        path = self.folder / "results/h200/check.json"
        path.write_text(path.read_text().replace('"NVIDIA H200"', '"NVIDIA H200 NVL"'))
        self.run_it("--parts", "unit")
        self.assertEqual(self.groups(), {"unit": (65, 0)})

    def test_failures_are_counted(self):
        (self.folder / "bin/bad").touch()
        self.assertEqual(self.run_it("--parts", "verify,large,bench", "--cases", "1"), 1)
        self.assertEqual(self.groups(), {"verify": (0, 1), "large": (0, 1), "bench": (2, 1)})

    def calls(self, verb):
        said = [json.loads(line) for line in (self.folder / "bin/calls").read_text().splitlines()]
        return [call for call in said if call["words"][0] == verb]

    def test_parts_set_their_own_environment(self):
        with unittest.mock.patch.dict(os.environ, {"FOVEA_CUDA_SHARED_LIMIT": "1", "FOVEA_IMPL": "naive"}):
            self.run_it("--parts", "verify,shared99", "--cases", "10")
        limits = {call["limit"] for call in self.calls("verify")}
        self.assertEqual(limits, {None, str(99 * 1024)})

    def test_counts_of_all_processes_are_added(self):
        self.run_it("--parts", "verify", "--cases", "50", "--seed", "5")
        seeds = {call["words"][call["words"].index("--seed") + 1] for call in self.calls("verify")}
        self.assertEqual(min(map(int, seeds)), 5)
        group = self.group("verify")
        self.assertEqual((group["passed"], group["exempt"], group["cells"]), (50, len(seeds), 1 + len(seeds)))
        self.run_it("--parts", "verify", "--cases", "1", "--seed", "6", "--add")
        group = self.group("verify")
        self.assertEqual((group["passed"], group["exempt"], group["cells"]), (51, len(seeds) + 1, 1 + len(seeds)))

    def test_layers_of_every_kind_are_drawn(self):
        code = self.run_it("--parts", "verify_layers", "--layer-cases", "50", "--processes", "3")
        self.assertEqual(code, 0, self.said)
        group = self.group("verify_layers")
        self.assertEqual((group["passed"], group["failed"], group["cases"]), (300, 0, 300))
        self.assertEqual(group["operations"], "mha_fused,mha,gqa,mqa,mla,linear")
        self.assertEqual((group["exempt"], group["cells"]), (6 * 3, 6 * (1 + 3)))
        shares = [call["words"][call["words"].index("--cases") + 1] for call in self.calls("verify")]
        self.assertEqual(sorted(shares), ["16", "17", "17"])
        self.run_it("--parts", "verify_layers", "--layer-cases", "10", "--seed", "17", "--add")
        self.assertEqual(self.group("verify_layers")["cases"], 360)
        self.assertEqual(self.group("verify_layers")["operations"], group["operations"])

    def test_an_operation_that_says_nothing_fails(self):
        (self.folder / "bin/crashes").touch()
        self.assertEqual(self.run_it("--parts", "verify_layers", "--layer-cases", "50", "--processes", "2"), 1)
        self.assertIn("verify ended with 1", self.said)
        self.assertEqual(self.groups(), {"verify_layers": (0, 2)})

    def test_portable_parts_fill_the_cache_of_the_driver_first(self):
        self.assertEqual(self.run_it("--parts", "portable,portable99", "--cases", "100", "--repeats", "7"), 0,
                         self.said)
        self.assertEqual(self.groups(), {"portable": (6 * 10 + 5 + 7 + 20, 0), "portable99": (6 * 10 + 5 + 7 + 20, 0)})
        calls = self.calls("verify")
        self.assertEqual({(call["jit"], "cuda.any" in call["words"]) for call in calls}, {("1", True)})
        self.assertEqual(len({call["cache"] for call in calls}), 1)
        self.assertFalse(pathlib.Path(calls[0]["cache"]).exists())
        half = len(calls) // 2
        for part, limit in ((calls[:half], None), (calls[half:], str(99 * 1024))):
            self.assertEqual({call["limit"] for call in part}, {limit})
            kinds = ["--cases" in call["words"] for call in part]
            self.assertEqual(kinds, [False] * 6 + [True] * (half - 6))

    def test_a_driver_that_compiles_nothing_fails(self):
        (self.folder / "bin/no_ptx").touch()
        self.assertEqual(self.run_it("--parts", "portable", "--cases", "100", "--repeats", "7"), 1)
        self.assertIn("the driver compiled no PTX", self.said)
        self.assertEqual(self.groups(), {"portable": (6 * 10 + 5 + 7 + 20, 1)})

    def test_hostile_asks_for_every_input_in_every_type_and_pass(self):
        self.assertEqual(self.run_it("--parts", "hostile"), 0, self.said)
        calls = self.calls("verify")
        self.assertEqual(self.groups(), {"hostile": (10 * len(calls), 0)})
        line_of = lambda call: call["words"][call["words"].index("--problem") + 1]
        lines = [line_of(call) for call in calls if "--hostile" in call["words"]]
        for line in lines:
            self.assertIn("dtype=fp32,bf16,fp16", line)
        self.assertEqual(sum("pass=fwd" in line for line in lines), sum("pass=bwd" in line for line in lines))
        fixed = [line_of(call) for call in calls if "--hostile" not in call["words"]]
        self.assertIn("pass=e2e b=1 hq=6 hkv=3 lq=17 lk=17 d=127 dtype=bf16 mask=causal layout=blhd data=outliers "
                      "place=strided seed=1149451895", fixed)
        self.assertFalse([call for call in calls if "--impl" in call["words"]])

    def test_the_program_understands_the_lines(self):
        if PROGRAM is None:
            self.skipTest("no program was built")
        script = load(ROOT, "gpu_check")
        for shape in script.SHAPES:
            line = f"{shape} dtype={','.join(script.TYPES)} pass={','.join(script.PASSES)}"
            ended = subprocess.run([PROGRAM, "verify", "--device", "cpu", "--impl", "reference", "--json", "--problem",
                                    line], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.assertEqual(ended.returncode, 0, ended.stdout)
            said = json.loads(ended.stdout)
            self.assertEqual((said["passed"], said["failed"]), (len(script.TYPES) * len(script.PASSES), 0))
            cells = script.cells_of(said)
            self.assertEqual(len(cells), len(set(cells)))
            self.assertEqual({cell[0] for cell in cells}, {"attention"})
            self.assertEqual({name for cell in cells for name, value in cell[1:]},
                             {"impl", "dtype", "pass", "mask", "layout", "head_dims"})
        for line in script.ONCE_WRONG:
            ended = subprocess.run([PROGRAM, "verify", "--device", "cpu", "--impl", "reference", "--problem", line],
                                   text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.assertIn("1 passed, 0 failed", ended.stdout)
        words = ["verify", "--device", "cpu", "--json", "--op", ",".join(script.LAYERS), "--cases", "2"]
        ended = subprocess.run([PROGRAM, *words], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        summaries = script.summaries_of(words, ended.stdout)
        self.assertEqual([summary["operation"] for summary in summaries], list(script.LAYERS))
        for summary in summaries:
            self.assertTrue(script.cells_of(summary))

    def python(self, code):
        """A Python that has every module, or none."""
        path = self.folder / "python"
        path.write_text(f"#!/bin/sh\nexit {code}\n")
        path.chmod(0o755)
        return str(path)

    def test_examples_count_their_rows(self):
        (self.folder / "bin/libmy_cuda_kernel.so").touch()
        for _ in range(2):  # rows of an earlier run do not count
            self.assertEqual(self.run_it("--parts", "examples", "--python", self.python(0)), 0, self.said)
            self.assertEqual(self.groups(), {"examples": (4, 0)})
        self.assertTrue((self.folder / "results/h200/examples.jsonl").exists())
        kernels = [call["words"][call["words"].index("--impl") + 1] for call in self.calls("bench")]
        self.assertEqual(set(kernels), {"bin/libmy_cuda_kernel.so:my_attention,flash",
                                        "examples/my_triton.py:attention,flash"})
        self.assertEqual(self.run_it("--parts", "examples", "--python", self.python(1)), 0, self.said)
        self.assertIn("lacks triton", self.said)
        self.assertEqual(self.groups(), {"examples": (2, 0)})
        (self.folder / "bin/bad").touch()
        self.assertEqual(self.run_it("--parts", "examples", "--python", self.python(0)), 1)
        self.assertEqual(self.groups(), {"examples": (2, 2)})

    def test_peers_count_the_rows_of_pytorch(self):
        self.assertEqual(self.run_it("--parts", "peers", "--python", self.python(0)), 0, self.said)
        self.assertEqual(self.groups(), {"peers": (4, 0)})
        self.assertEqual({call["words"][call["words"].index("--dtype") + 1] for call in self.calls("profile")},
                         {"fp32", "bf16"})
        self.assertEqual(self.run_it("--parts", "peers", "--python", self.python(1)), 0, self.said)
        self.assertIn("lacks torch", self.said)
        self.assertEqual(self.groups(), {"peers": (0, 0)})
        (self.folder / "bin/bad").touch()
        self.assertEqual(self.run_it("--parts", "peers", "--python", self.python(0)), 1)
        self.assertGreater(self.groups()["peers"][1], 0)

    def test_a_missing_example_fails(self):
        self.assertEqual(self.run_it("--parts", "examples", "--python", self.python(0)), 1)
        self.assertIn("no libmy_cuda_kernel.so", self.said)
        self.assertEqual(self.groups(), {"examples": (2, 1)})

    def python_with_tests(self, last_line, code=0):
        """A Python without jax and transformers; each run of tests ends with this line."""
        path = self.folder / "python"
        path.write_text(f"""#!/bin/sh
case "$*" in
    *"import fovea"*) test -e "${{PYTHONPATH%%:*}}/fovea/module.py" ;;
    *"import jax"* | *"import transformers"*) exit 1 ;;
    *pytest*tests/python/test_*) echo "$*" >> {self.folder}/tests; echo "{last_line}"; exit {code} ;;
esac
""")
        path.chmod(0o755)
        return str(path)

    def test_the_tests_of_the_python_package_are_counted(self):
        command = ["--parts", "python", "--python"]
        self.assertEqual(self.run_it(*command, self.python_with_tests("3 passed in 1.0s")), 0, self.said)
        self.assertIn("without fovea; wanted one with it, or its wheel in wheels", self.said)
        self.assertEqual(self.groups(), {"python": (0, 0)})
        (self.folder / "wheels").mkdir()
        with zipfile.ZipFile(self.folder / "wheels/fovea-0.2.0-cp310-abi3-linux_x86_64.whl", "w") as wheel:
            wheel.writestr("fovea/module.py", "")
        self.assertEqual(self.run_it(*command, self.python_with_tests("3 passed, 2 skipped in 1.0s")), 0, self.said)
        self.assertIn("jax not run", self.said)
        self.assertEqual(self.groups(), {"python": (3 * 6, 0)})
        ran = (self.folder / "tests").read_text()
        for name in ("cupy", "flash_attn", "torch", "torch_autograd", "torch_layers", "torch_registry"):
            self.assertIn(f"tests/python/test_{name}.py\n", ran)
        for line, code, counts in (("1 failed, 2 passed in 1.0s", 1, (2, 1)), ("2 passed, 1 error in 1.0s", 1, (2, 1)),
                                   ("no tests ran in 0.1s", 5, (0, 0)), ("2 skipped in 0.1s", 0, (0, 0)),
                                   ("2 errors during collection", 2, (0, 2)), ("Segmentation fault", 139, (0, 1))):
            ended = self.run_it(*command, self.python_with_tests(line, code))
            self.assertEqual(self.groups(), {"python": tuple(6 * count for count in counts)}, self.said)
            self.assertEqual(ended, int(counts[1] > 0))

    def test_a_missing_sanitizer_fails(self):
        if shutil.which("compute-sanitizer"):
            self.skipTest("there is one")
        self.assertEqual(self.run_it("--parts", "memcheck"), 1)
        self.assertIn("no compute-sanitizer on this machine", self.said)
        self.assertEqual(self.groups(), {"memcheck": (0, 4)})

    def test_compare_warns_and_does_not_fail(self):
        self.run_it("--parts", "unit")
        (self.folder / "cmake").mkdir()
        shutil.copy(ROOT / "cmake/source_digest.cmake", self.folder / "cmake")
        (self.folder / "CMakeLists.txt").touch()
        self.assertEqual(self.run_it("--compare"), 0)
        self.assertIn("warning: results/h200/check.json is of other sources (abc, here ", self.said)
        here = self.said.split("here ")[1][:12]
        whole = subprocess.run(["cmake", f"-DSOURCE_DIR={self.folder}", "-DPRINT=ON", "-P",
                                str(self.folder / "cmake/source_digest.cmake")], text=True, stdout=subprocess.PIPE)
        self.assertTrue(whole.stdout.startswith(here))
        self.digest(whole.stdout.strip())
        self.run_it("--parts", "unit")
        self.assertEqual(self.run_it("--compare"), 0)
        self.assertIn("results/h200/check.json is of these sources: NVIDIA H200", self.said)


if __name__ == "__main__":
    unittest.main()
