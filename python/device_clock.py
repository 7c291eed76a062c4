"""How a Python worker times its runs: the host's clock, or CUDA events on the stream that torch works on.

The same protocol as src/cuda/measure/stream_timer.cpp: before every run a write that empties the L2 cache, as often as
keeps the device busy while the host enqueues; `hot` puts an untimed run after it; `graph` replays up to 100 runs.
`host` is the protocol of src/cuda/measure/call_timer.cpp: how long a call keeps the host, whatever the device does.
"""

import ctypes
import math
import time

FLUSH_BYTES = 512 << 20
MOST_WRITES, HOST_MARGIN = 16, 2.0
GRAPH_RUNS, GRAPH_SECONDS = 100, 2e-3
HOST_CALLS, HOST_LEADING_CALLS, HOST_SETTLING_SECONDS = 32, 4, 0.1


class HostClock:
    name = "perf_counter"

    def sample(self, run, runs, lead):
        seconds = []
        for _ in range(lead + runs):
            start = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - start)
        return {"seconds": seconds[lead:]}


class DeviceClock:
    def __init__(self, torch, timing):
        self.torch, self.timing, self.graph, self.graph_runs = torch, timing, None, 1
        self.name = {"cold": "cuda_events", "hot": "cuda_events_hot", "graph": "cuda_graph"}[timing]
        self.stream = torch.cuda.Stream()
        torch.cuda.set_stream(self.stream)  # what kernels enqueue on
        self.flushed = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
        self.state = DeviceState(torch)
        self.enqueue_seconds = 0.0  # the least that a run kept the host so far; 0: none yet
        self.write_seconds = None if timing == "graph" else self.time_write()

    def sample(self, run, runs, lead):
        if self.timing == "graph" and self.graph is None:
            self.capture(run)
        stretches = [self.run_between_events(run) for _ in range(lead + runs)]
        state = self.state.read()
        self.torch.cuda.synchronize()
        times = [start.elapsed_time(end) * 1e-3 / self.graph_runs for start, end in stretches]
        return {"seconds": times[lead:], **state}

    def run_between_events(self, run):
        start, end = self.events()
        if self.timing != "graph":
            for _ in range(self.writes()):
                self.flushed.zero_()
        begun = time.perf_counter()
        if self.timing == "hot":
            run()
        start.record(self.stream)
        run() if self.graph is None else self.graph.replay()
        end.record(self.stream)
        enqueued = time.perf_counter() - begun
        self.enqueue_seconds = min(self.enqueue_seconds or enqueued, enqueued)
        return start, end

    def writes(self):
        """As many as keep the device busy until all that is timed is enqueued, also where the host is slower now."""
        return min(max(1, math.ceil(HOST_MARGIN * self.enqueue_seconds / self.write_seconds)), MOST_WRITES)

    def time_write(self):
        self.flushed.zero_()
        start, end = self.events()
        start.record(self.stream)
        self.flushed.zero_()
        end.record(self.stream)
        self.torch.cuda.synchronize()
        return start.elapsed_time(end) * 1e-3

    def events(self):
        return tuple(self.torch.cuda.Event(enable_timing=True) for _ in range(2))

    def capture(self, run):
        run()
        start, end = self.run_between_events(run)
        self.torch.cuda.synchronize()
        once = start.elapsed_time(end) * 1e-3
        self.graph_runs = max(1, min(GRAPH_RUNS, int(GRAPH_SECONDS / max(once, 1e-9))))
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph, stream=self.stream):
            for _ in range(self.graph_runs):
                run()
        self.graph = graph


class CallClock:
    name = "cuda_host"

    def __init__(self, torch):
        self.torch, self.stream = torch, torch.cuda.Stream()
        torch.cuda.set_stream(self.stream)

    def sample(self, run, runs, lead):
        settled = time.perf_counter() + HOST_SETTLING_SECONDS
        while time.perf_counter() < settled:
            self.seconds_of(run)
        seconds = [self.seconds_of(run) for _ in range(lead + runs)]
        self.torch.cuda.synchronize()
        return {"seconds": seconds[lead:]}

    def seconds_of(self, run):
        while not self.stream.query():
            pass
        self.torch.cuda.synchronize()  # whatever else was enqueued
        for _ in range(HOST_LEADING_CALLS):
            run()
        start = time.perf_counter()
        for _ in range(HOST_CALLS):
            run()
        return (time.perf_counter() - start) / HOST_CALLS


def device_clock(torch, timing):
    return CallClock(torch) if timing == "host" else DeviceClock(torch, timing)


class DeviceState:
    """Clock and power of torch's current device, from the driver's management library; null where it is missing."""

    def __init__(self, torch):
        self.handle = None
        try:
            self.library = ctypes.CDLL("libnvidia-ml.so.1")
            name = f"GPU-{torch.cuda.get_device_properties(torch.cuda.current_device()).uuid}"
            handle = ctypes.c_void_p()
            if self.library.nvmlInit_v2() == 0:
                if self.library.nvmlDeviceGetHandleByUUID(name.encode(), ctypes.byref(handle)) == 0:
                    self.handle = handle
        except (OSError, AttributeError):
            pass

    def read(self):
        clock, power = ctypes.c_uint(), ctypes.c_uint()
        known = self.handle is not None
        multiprocessors = 1
        has_clock = known and self.library.nvmlDeviceGetClockInfo(self.handle, multiprocessors, ctypes.byref(clock)) == 0
        has_power = known and self.library.nvmlDeviceGetPowerUsage(self.handle, ctypes.byref(power)) == 0
        return {
            "clock_mhz": float(clock.value) if has_clock else None,
            "power_w": power.value / 1e3 if has_power else None,
        }
