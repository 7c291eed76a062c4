# fovea_bench/device_clock.py with a torch that only pretends: what is timed and waited for. device_clock_test.py ROOT
import math
import pathlib
import sys
import unittest

ROOT = pathlib.Path(sys.argv.pop() if len(sys.argv) > 1 else ".").resolve()
sys.path.insert(0, str(ROOT / "python/fovea_bench"))
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

    def test_consecutive_calls_run_on_a_drained_device(self):
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

    def test_both_kinds_of_worker_have_the_same_counts(self):
        text = (ROOT / "src/cuda/measure/call_timer.cpp").read_text()
        self.assertIn(f"kCalls = {device_clock.HOST_CALLS};", text)
        self.assertIn(f"kLeadingCalls = {device_clock.HOST_LEADING_CALLS};", text)
        self.assertIn(f"kSettlingSeconds = {device_clock.HOST_SETTLING_SECONDS};", text)


class Event:
    """Notes the times of a device that works off its queue."""

    def __init__(self, cuda):
        self.cuda, self.at = cuda, None

    def record(self, stream):
        self.at = max(self.cuda.done, self.cuda.time.now)

    def query(self):
        return self.at <= self.cuda.time.now

    def synchronize(self):
        self.cuda.time.now = max(self.cuda.time.now, self.at)

    def elapsed_time(self, end):
        return (end.at - self.at) * 1e3


class QueueingCuda(Cuda):
    """A device whose kernels begin when they are enqueued and those before have ended."""

    def __init__(self, time):
        super().__init__()
        self.time, self.done, self.writes, self.rests = time, 0.0, 0, 0

    def Event(self, enable_timing=False):
        return Event(self)

    def enqueue(self, host_seconds, device_seconds):
        self.time.now += host_seconds
        self.rests += self.time.now > self.done
        self.done = max(self.done, self.time.now) + device_seconds

    def synchronize(self):
        self.time.now = max(self.time.now, self.done)

    def get_device_properties(self, device):
        raise AttributeError("no device")

    def current_device(self):
        return 0


class Flushed:
    WRITE_SECONDS = 130e-6

    def __init__(self, cuda):
        self.cuda = cuda

    def zero_(self):
        self.cuda.writes += 1
        self.cuda.enqueue(5e-6, self.WRITE_SECONDS)


class QueueingTorch:
    uint8 = "uint8"

    def __init__(self, time):
        self.cuda = QueueingCuda(time)

    def empty(self, size, dtype, device):
        return Flushed(self.cuda)


class DeviceTiming(unittest.TestCase):
    """What is timed is the device's work, however long the host takes to enqueue it."""

    def setUp(self):
        self.time, self.real = Time(), device_clock.time
        device_clock.time = self.time
        self.torch = QueueingTorch(self.time)

    def tearDown(self):
        device_clock.time = self.real

    def sample(self, timing, run, runs):
        self.clock = device_clock.device_clock(self.torch, timing)
        self.clock.sample(run, runs=1, lead=0)  # the warm-up
        self.torch.cuda.writes = 0
        reply = self.clock.sample(run, runs=runs, lead=1)
        self.assertEqual(len(reply["seconds"]), runs)
        self.assertEqual(len(reply["host_bound"]), runs)
        return reply

    def kernels(self, count, host_seconds, device_seconds):
        def run():
            for _ in range(count):
                self.torch.cuda.enqueue(host_seconds, device_seconds)
        return run

    def assert_each(self, seconds, wanted):
        for one in seconds:
            self.assertAlmostEqual(one, wanted, places=9)

    def test_a_short_call_follows_one_write(self):
        reply = self.sample("cold", self.kernels(1, 10e-6, 20e-6), 5)
        self.assert_each(reply["seconds"], 20e-6)
        self.assertFalse(any(reply["host_bound"]))
        self.assertEqual(self.torch.cuda.writes, 6)

    def test_the_host_of_many_kernels_is_not_timed(self):
        for timing in ("cold", "hot"):
            reply = self.sample(timing, self.kernels(12, 20e-6, 3e-6), 5)
            self.assert_each(reply["seconds"], 36e-6)
            self.assertFalse(any(reply["host_bound"]))

    def test_a_host_bound_run_is_repeated(self):
        runs = []

        def run():
            runs.append(len(runs))
            self.torch.cuda.enqueue(1.5e-3 if len(runs) == 4 else 10e-6, 5e-6)
            self.torch.cuda.enqueue(1e-3 if len(runs) == 5 else 10e-6, 5e-6)
        reply = self.sample("cold", run, 5)
        self.assert_each(reply["seconds"], 10e-6)
        self.assertFalse(any(reply["host_bound"]))
        self.assertEqual(len(runs), 1 + 6 + 2)
        self.assertEqual(self.clock.writes, 4)
        self.clock.sample(run, runs=1, lead=0)
        self.assertEqual(self.clock.writes, 2)

    def test_a_slow_host_is_waited_for_up_to_a_limit_and_flagged(self):
        reply = self.sample("cold", self.kernels(1, 1.0, 1e-6), 3)
        self.assertEqual(self.torch.cuda.writes, 8 + 4 * device_clock.MOST_WRITES)
        self.assertEqual(reply["host_bound"], [True] * 3)

    def test_eager_runs_take_as_long_as_the_slower_of_host_and_device(self):
        settling = device_clock.SETTLING_SECONDS
        for host_seconds, device_seconds in ((20e-6, 3e-6), (3e-6, 20e-6)):
            started = self.time.now
            reply = self.sample("eager", self.kernels(5, host_seconds, device_seconds), 4)
            self.assertEqual(self.clock.name, "cuda_eager")
            for one in reply["seconds"]:
                self.assertAlmostEqual(one, 100e-6, delta=20e-6)
            self.assertFalse(any(reply["host_bound"]))
            self.assertEqual(self.torch.cuda.writes, 0)
            self.assertGreater(self.time.now, started + 2 * settling)

    def test_the_device_rests_at_no_time_of_an_eager_turn(self):
        run = self.kernels(5, 3e-6, 400e-6)
        clock = device_clock.device_clock(self.torch, "eager")
        clock.sample(run, runs=1, lead=0)  # the warm-up
        self.time.now = self.torch.cuda.done + 1
        self.torch.cuda.rests = 0
        clock.sample(run, runs=10, lead=1)
        self.assertEqual(self.torch.cuda.rests, 1, "but before its first call")

    def test_both_kinds_of_worker_make_as_many_runs_in_a_row(self):
        folder = ROOT / "src/cuda/measure"
        text = (folder / "stream_timer.h").read_text() + (folder / "stream_timer.cpp").read_text()
        self.assertIn(f"kMostInARow = {device_clock.MOST_IN_A_ROW};", text)
        self.assertIn(f"kSecondsInARow = {device_clock.SECONDS_IN_A_ROW * 1e3:.0f}e-3;", text)
        self.assertIn(f"kSettling{{{device_clock.SETTLING_SECONDS * 1e3:.0f}}};", text)

    def test_both_kinds_of_worker_flush_as_much(self):
        text = (ROOT / "src/cuda/measure/stream_timer.cpp").read_text()
        self.assertIn(f"kFlushBytes = std::int64_t{{{device_clock.FLUSH_BYTES >> 20}}} << 20;", text)
        self.assertIn(f"kMostWrites = {device_clock.MOST_WRITES};", text)


if __name__ == "__main__":
    unittest.main()
