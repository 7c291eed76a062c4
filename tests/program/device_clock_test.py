# python/device_clock.py with a torch that only pretends: what is timed, and what is waited for. device_clock_test.py ROOT
import math
import pathlib
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop() if len(sys.argv) > 1 else ".").resolve()
sys.path.insert(0, str(ROOT / "python"))
sys.dont_write_bytecode = True

import device_clock  # noqa: E402


class Stream:
    """Done when it is asked the second time."""

    name = "stream"

    def __init__(self, said):
        self.said, self.asked = said, 0

    def query(self):
        self.said.append("ask")
        self.asked += 1
        return self.asked % 2 == 0


class Cuda:
    """Notes what a clock asks of the device."""

    def __init__(self):
        self.said = []

    def Stream(self):
        return Stream(self.said)

    def set_stream(self, stream):
        self.said.append("set " + stream.name)

    def synchronize(self):
        self.said.append("wait")


class Torch:
    def __init__(self):
        self.cuda = Cuda()


class Time:
    """A clock that moves when it is told to."""

    def __init__(self):
        self.now = 10.0

    def perf_counter(self):
        return self.now


class HostTiming(unittest.TestCase):
    def setUp(self):
        self.torch, self.time, self.real = Torch(), Time(), device_clock.time
        device_clock.time = self.time

    def tearDown(self):
        device_clock.time = self.real

    def call(self):
        self.torch.cuda.said.append("call")
        self.time.now += 1e-3

    def test_calls_in_a_row_on_a_drained_device_that_was_busy_before(self):
        clock = device_clock.device_clock(self.torch, "host")
        self.assertEqual(clock.name, "cuda_host")
        reply = clock.sample(self.call, runs=3, lead=1)
        self.assertEqual(len(reply["seconds"]), 3)
        for seconds in reply["seconds"]:
            self.assertAlmostEqual(seconds, 1e-3, places=9)
        calls = device_clock.HOST_LEADING_CALLS + device_clock.HOST_CALLS
        sample = ["ask", "ask", "wait"] + ["call"] * calls
        settling = math.ceil(device_clock.HOST_SETTLING_SECONDS / (1e-3 * calls))
        self.assertEqual(self.torch.cuda.said, ["set stream"] + sample * (settling + 4) + ["wait"])

    def test_counts_of_both_kinds_of_worker_agree(self):
        text = (ROOT / "src/cuda/measure/call_timer.cpp").read_text()
        self.assertIn(f"kCalls = {device_clock.HOST_CALLS};", text)
        self.assertIn(f"kLeadingCalls = {device_clock.HOST_LEADING_CALLS};", text)
        self.assertIn(f"kSettlingSeconds = {device_clock.HOST_SETTLING_SECONDS};", text)


if __name__ == "__main__":
    unittest.main()
