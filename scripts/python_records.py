"""Records of the Python package: the environment as `fovea bench` has it, times in turns, and rows of JSON lines."""

import datetime
import json
import os
import pathlib
import platform
import random
import shlex
import statistics
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def _said_by_git(*words):
    try:
        ended = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return ended.stdout.strip() if ended.returncode == 0 else None


def source(commit):
    """The commit that a row of a record names. `commit` is for a machine that has no repository."""
    said = commit or _said_by_git("rev-parse", "--short=12", "HEAD")
    changed = "" if commit else _said_by_git("status", "--porcelain", "--untracked-files=no")
    return {"commit": said or "unknown", "dirty": bool(changed)}


def _processor():
    lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def environment(torch, fovea, device, commit):
    """The first line of a record. `torch` and `fovea` are the modules."""
    gibibytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2 ** 30
    cpu, processors = _processor(), len(os.sched_getaffinity(0))
    facts = {"cpu": cpu, "processors": str(processors), "memory": f"{gibibytes:.0f} GiB",
             "system": f"{platform.system()} {platform.release()} {platform.machine()}",
             "load": f"{os.getloadavg()[0]:.2f}", "python": platform.python_version(), "torch": torch.__version__}
    gpu = ""
    if device == "cuda":
        facts["gpu"] = torch.cuda.get_device_name()
        facts["cuda"] = str(torch.version.cuda)
        gpu = ", " + facts["gpu"]
    command = " ".join([pathlib.Path(sys.argv[0]).name, *(shlex.quote(word.split("/")[-1]) for word in sys.argv[1:])])
    date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"schema": "fovea.env/1", "machine": f"{cpu}, {processors} processors, {gibibytes:.0f} GiB{gpu}",
            "date": date, "command": command, "source": source(commit), "version": fovea.__version__,
            "threads": fovea.info()["threads"], "facts": facts, "ceilings": {}}


class Record:
    """A file of JSON lines; None writes none. A row is on the disk before the next is measured."""

    def __init__(self, path, first):
        self._file = open(path, "w", encoding="utf-8") if path else None
        self.write(first)

    def write(self, row):
        if self._file is not None:
            self._file.write(json.dumps(row, separators=(",", ":")) + "\n")
            self._file.flush()
            os.fsync(self._file.fileno())


def summary(samples):
    """Seconds, as the field `time_s` of bench."""
    samples = [round(one, 10) for one in samples]
    q1, median, q3 = statistics.quantiles(samples, n=4, method="inclusive")
    return {"median": median, "min": min(samples), "mean": statistics.fmean(samples), "std": statistics.stdev(samples),
            "q1": q1, "q3": q3, "n": len(samples), "samples": samples}


def in_turns(contenders, turns, calls, wait=None):
    """name -> (host_s, time_s): samples of the mean of `calls` calls, a sample each turn, in a new order each round.

    host_s ends when the last call has returned, time_s when `wait` has, which waits for the GPU.
    """
    wait = wait or (lambda: None)
    samples = {name: ([], []) for name in contenders}
    order = list(contenders)
    for turn in range(-1, turns):  # the first warms up
        random.shuffle(order)
        for name in order:
            call = contenders[name]
            for _ in range(max(1, calls // 10)):
                call()
            wait()
            start = time.perf_counter()
            for _ in range(calls):
                call()
            returned = time.perf_counter()
            wait()
            if turn >= 0:
                samples[name][0].append((returned - start) / calls)
                samples[name][1].append((time.perf_counter() - start) / calls)
    return samples
