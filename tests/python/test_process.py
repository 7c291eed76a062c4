"""What a call does to its process: imports, the GIL, Ctrl-C, memory."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import threading
import time

import numpy
import pytest

import fovea
import formulas
from process_memory import leaks


def run(program, **environment):
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120,
                          env=os.environ | environment)


def test_importing_it_imports_no_framework():
    ended = run("import sys, fovea; print([n for n in ('torch', 'jax', 'cupy', 'numpy') if n in sys.modules])")
    assert ended.returncode == 0 and ended.stdout == "[]\n", ended.stderr


LONG = """
import os, signal, threading, numpy, fovea
big = numpy.ones((1, 8, 20000, 64), numpy.float32)  # takes much longer than the test
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    fovea.attention(big, big, big, implementation="cpu.scalar")
except KeyboardInterrupt:
    small = numpy.ones((1, 1, 4, 8), numpy.float32)
    print("interrupted", fovea.attention(small, small, small)[0].sum())
"""


def test_ctrl_c_ends_a_long_call():
    ended = run(LONG)
    assert ended.stdout == "interrupted 32.0\n", ended.stderr


IN_FLIGHT = """
import threading, time, numpy, fovea
q = numpy.ones((1, 8, {length}, 64), numpy.float32)
def call():
    while True:
        fovea.attention(q, q, q, implementation="cpu.scalar")
for _ in range({threads}):
    threading.Thread(target=call, daemon=True).start()
time.sleep(0.3)
print("ends")
"""


@pytest.mark.parametrize("length, threads", [(20000, 1), (8, 4), (500, 4)])  # the first takes much longer than the test
def test_the_interpreter_ends_while_a_call_runs(length, threads):
    ended = run(IN_FLIGHT.format(length=length, threads=threads))
    assert (ended.returncode, ended.stdout) == (0, "ends\n"), ended.stderr


NO_MEMORY = """
import resource, numpy, fovea
q = numpy.ones((1, 4, 20000, 64), numpy.float32)
k, out, lse = q[:, :, :100], numpy.empty_like(q), numpy.empty((1, 4, 20000), numpy.float32)
fovea.attention(k, k, k)
for mib in (0, 1, 2, 4, 8, 64):
    held = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + (mib << 20), resource.RLIM_INFINITY))
    try:
        fovea.attention(q, k, k, out=out, lse=lse)
    except MemoryError:  # OutOfMemory is one too
        pass
    resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print(fovea.attention(q, k, k)[0].mean())
"""


def test_without_memory_a_call_runs_or_raises_memory_error():
    ended = run(NO_MEMORY)
    assert ended.stdout == "1.0\n", ended.stderr


def test_a_build_without_kernels_for_gpus_says_so(monkeypatch):
    monkeypatch.setattr(fovea._core, "implementations", lambda: [("cpu.scalar", "cpu", True, "")])
    missing = "this build has no kernels for GPUs; wanted an nvcc of CUDA 12.8 or newer where it was built"
    assert fovea.info()["cuda"] == missing
    on_gpu = {"line": "op=attention pass=fwd device=cuda"}
    assert str(fovea.errors.exception_of("refused", "unsupported", on_gpu)) == f"refused\n  cuda:   {missing}"
    for status, details in (("unsupported", {}), ("invalid", on_gpu)):
        assert str(fovea.errors.exception_of("refused", status, details)) == "refused"
    monkeypatch.setattr(fovea._core, "implementations", lambda: [("cuda.any", "cuda", True, "")])
    assert fovea.info()["cuda"] == "available"
    assert str(fovea.errors.exception_of("refused", "unsupported", on_gpu)) == "refused"


NO_GPU = """
import json, numpy, fovea
one = numpy.ones((1, 1, 4, 8), numpy.float32)
assert fovea.attention(one, one, one)[0].sum() == 32
print(json.dumps([reason for device, _, reason in fovea.implementations().values() if device == "cuda"]))
"""


def test_a_machine_without_a_gpu_runs_on_the_cpu_and_tells_why():
    ended = run(NO_GPU, CUDA_VISIBLE_DEVICES="")
    assert all(json.loads(ended.stdout)), ended.stderr


def test_an_old_driver_is_named_with_the_one_that_is_wanted(tmp_path):
    compiler = shutil.which("cc")
    if compiler is None or not json.loads(run(NO_GPU).stdout):
        pytest.skip("needs a C compiler and kernels for GPUs")
    driver = pathlib.Path(__file__).resolve().parents[1] / "cuda/old_driver.c"
    subprocess.run([compiler, "-shared", "-fPIC", str(driver), "-o", str(tmp_path / "libcuda.so.1")], check=True)
    ended = run(NO_GPU, LD_LIBRARY_PATH=str(tmp_path))
    for reason in json.loads(ended.stdout):
        assert re.search(r"too old, it speaks CUDA 11\.4, this build \d+\.\d", reason), reason


@pytest.mark.parametrize("length", [100, 1000])  # a call on this thread, and on one of its own
def test_other_threads_run_meanwhile(length):
    counted, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0)  # gives the GIL away
    thread, interval = threading.Thread(target=count), sys.getswitchinterval()
    p = formulas.problem(heads=(8, 8), lengths=(length, length), columns=(64, 64))
    thread.start()
    sys.setswitchinterval(1000)  # seconds: from now on the other thread runs only while a call lets it
    try:
        before = counted[0]
        for _ in range(20):
            fovea.attention(*p.inputs, implementation="cpu.scalar")
        assert counted[0] > before
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        thread.join()


def test_threads_may_call_at_once():
    p = formulas.problem(lengths=(100, 100))
    wanted = fovea.attention(*p.inputs)[0]
    results = [None] * 8

    def work(n):
        results[n] = [fovea.attention(*p.inputs)[0] for _ in range(20)]
    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(results))]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert all(numpy.array_equal(out, wanted) for many in results for out in many)


def refused(*inputs):
    with contextlib.suppress(fovea.InvalidArgument):
        fovea.attention(*inputs, threads=-1)


@pytest.mark.parametrize("kind", ["forward", "backward", "refused", "plan"])
def test_ten_thousand_calls_leak_nothing(kind):
    p = formulas.problem(batch=1, heads=(1, 1), lengths=(4, 4))
    out, lse = fovea.attention(*p.inputs)
    call = {"forward": lambda: fovea.attention(*p.inputs),
            "backward": lambda: fovea.attention_backward(p.dout, *p.inputs, out, lse),
            "refused": lambda: refused(*p.inputs),
            "plan": lambda: fovea.Plan(*p.inputs)(*p.inputs)}[kind]
    references = [sys.getrefcount(one) for one in (*p.inputs, p.dout, out, lse)]
    kib, files = leaks(call)
    assert references == [sys.getrefcount(one) for one in (*p.inputs, p.dout, out, lse)]
    assert kib < 64 and files == 0  # an object of 16 bytes a call would be 156 KiB
