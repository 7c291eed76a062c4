# python/device_clock.py with a torch that only pretends: what is timed, and what is waited for. device_clock_test.py ROOT
import pathlib
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop() if len(sys.argv) > 1 else ".").resolve()
sys.path.insert(0, str(ROOT / "python"))
sys.dont_write_bytecode = True

import device_clock  # noqa: E402


class Cuda:
    """Notes what a clock asks of the device."""

    def __init__(self):
        self.said = []

    def Stream(self):
        return "stream"

    def set_stream(self, stream):
        self.said.append("set " + stream)

    def synchronize(self):
        self.said.append("wait")


class Torch:
    def __init__(self):
        self.cuda = Cuda()


class HostTiming(unittest.TestCase):
    def test_calls_in_a_row_on_a_drained_device(self):
        torch = Torch()
        clock = device_clock.device_clock(torch, "host")
        self.assertEqual(clock.name, "cuda_host")
        reply = clock.sample(lambda: torch.cuda.said.append("call"), runs=3, lead=1)
        self.assertEqual(len(reply["seconds"]), 3)
        sample = ["wait"] + ["call"] * (device_clock.HOST_FIRST_CALLS + device_clock.HOST_CALLS)
        self.assertEqual(torch.cuda.said, ["set stream"] + sample * 4 + ["wait"])

    def test_a_sample_is_the_mean_of_its_calls(self):
        ticks = iter([10.0, 10.0 + 64e-6])
        real, device_clock.time.perf_counter = device_clock.time.perf_counter, lambda: next(ticks)
        try:
            seconds = device_clock.device_clock(Torch(), "host").sample(lambda: None, 1, 0)["seconds"]
        finally:
            device_clock.time.perf_counter = real
        self.assertAlmostEqual(seconds[0], 64e-6 / device_clock.HOST_CALLS, places=12)

    def test_counts_of_both_kinds_of_worker_agree(self):
        text = (ROOT / "src/cuda/measure/call_timer.cpp").read_text()
        self.assertIn(f"kCalls = {device_clock.HOST_CALLS};", text)
        self.assertIn(f"kFirstCalls = {device_clock.HOST_FIRST_CALLS};", text)


if __name__ == "__main__":
    unittest.main()
