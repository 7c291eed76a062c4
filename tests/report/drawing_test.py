# How drawing ends that cannot go on: Ctrl-C, a killed parent, a full disk. drawing_test.py ROOT; 77 without matplotlib.
import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import tempfile
import unittest

from fixture import PACKAGE

# Two processes draw pictures, each of which says that it is begun and never ends.
ENDLESS = f"""
import functools, os, sys, time
sys.path.insert(0, {PACKAGE!r})
from fovea_report import __main__ as drawing
def draw(picture, looks):
    os.write(1, b"begun\\n")  # in one piece
    time.sleep(3600)
drawing.DRAW["heat"] = draw
drawing.ProcessPoolExecutor = functools.partial(drawing.ProcessPoolExecutor, 2)
drawing.main()
"""
DRAW = f"import sys; sys.path.insert(0, {PACKAGE!r}); from fovea_report.__main__ import main; main()"
WITHIN_S = 30  # far more than it takes; a process that is left behind stays for ever


class Ends(unittest.TestCase):
    def start(self, code: str, **more) -> subprocess.Popen:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        picture = {"name": "heat", "kind": "heat", "title": "", "conditions": "", "columns": ["naive"],
                   "rows": [{"label": "n8", "cells": [{"text": "1", "best": False, "ratio": 1.0}]}]}
        description = pathlib.Path(folder.name) / "pictures.json"
        description.write_text(json.dumps(
            {"schema": "fovea.pictures/1", "implementations": ["naive"], "pictures": [picture] * 6}))
        process = subprocess.Popen([sys.executable, "-c", code, str(description), folder.name], text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, **more)
        self.addCleanup(self.sweep, process)
        return process

    @staticmethod
    def sweep(process: subprocess.Popen) -> None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
        process.stdout.close()

    def all_are_gone(self, process: subprocess.Popen) -> None:
        process.communicate(timeout=WITHIN_S)  # the pipe ends when none that could write to it is left

    def test_an_interrupt_ends_every_process(self):
        process = self.start(ENDLESS)
        for _ in range(2):
            self.assertEqual(process.stdout.readline(), "begun\n")
        os.killpg(process.pid, signal.SIGINT)
        self.all_are_gone(process)
        self.assertEqual(process.returncode, -signal.SIGINT)

    def test_the_pool_ends_with_the_process_that_made_it(self):
        process = self.start(ENDLESS)
        for _ in range(2):
            self.assertEqual(process.stdout.readline(), "begun\n")
        process.kill()
        self.all_are_gone(process)

    def test_a_full_disk_is_told_from_a_failure(self):
        full = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
        process = self.start(DRAW, preexec_fn=full)
        said, _ = process.communicate(timeout=WITHIN_S)
        self.assertEqual(process.returncode, 3, said)
        self.assertIn("File too large", said)


if __name__ == "__main__":
    unittest.main()
