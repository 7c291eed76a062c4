"""How a Python worker times its runs: the host's clock, or CUDA events on the stream that torch works on.

The same protocol as src/cuda/measure/stream_timer.cpp: before every run a write that empties the L2 cache and keeps the
device busy while the host enqueues; a run that the device came to before that is made again behind twice as many
writes. `hot` puts an untimed run after them; `graph` replays up to 100 runs; `eager` enqueues them in a row.
`host` is the protocol of src/cuda/measure/call_timer.cpp: how long a call keeps the host, whatever the device does.
"""

import ctypes
import time

NAMES = {"cold": "cuda_events", "hot": "cuda_events_hot", "graph": "cuda_graph", "eager": "cuda_eager"}
FLUSH_BYTES = 512 << 20
MOST_WRITES = 16
MOST_IN_A_ROW, SECONDS_IN_A_ROW, SETTLING_SECONDS = 100, 2e-3, 0.1
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
        self.torch, self.timing, self.graph, self.in_a_row = torch, timing, None, 0
        self.name = NAMES[timing]
        self.stream = torch.cuda.Stream()
        torch.cuda.set_stream(self.stream)  # what kernels enqueue on
        self.flushed = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
        self.state = DeviceState(torch)
        self.writes = 1  # a power of two

    def sample(self, run, runs, lead):
        if self.timing in ("graph", "eager") and self.in_a_row == 0:
            self.choose_runs_in_a_row(run)
        if self.timing == "eager":
            self.settle(run)
        self.writes = max(1, self.writes // 2)  # what kept the host may be over
        stretches = [self.run_between_events(run) for _ in range(lead + runs)]
        state = self.state.read()
        self.torch.cuda.synchronize()
        times = [start.elapsed_time(end) * 1e-3 / max(1, self.in_a_row) for start, end, _ in stretches]
        return {"seconds": times[lead:], "host_bound": [early for _, _, early in stretches[lead:]], **state}

    def run_between_events(self, run):
        """Two events, and whether the device came to the first before the host had enqueued the second."""
        start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
        if self.timing in ("graph", "eager"):
            start.record(self.stream)
            self.run_in_a_row(run)
            end.record(self.stream)
            return start, end, False
        while True:
            for _ in range(self.writes):
                self.flushed.zero_()
            if self.timing == "hot":
                run()
            start.record(self.stream)
            run()
            end.record(self.stream)
            early = start.query()
            if not early or self.writes == MOST_WRITES:
                return start, end, early
            self.writes *= 2

    def run_in_a_row(self, run):
        if self.graph is not None:
            self.graph.replay()
            return
        for _ in range(max(1, self.in_a_row)):
            run()

    def settle(self, run):
        """Untimed calls in a row: two stretches are always enqueued, so that the chip gets as warm as timed calls make
        it. A wait for each call would let it rest, and its clock would be higher."""
        settled = time.perf_counter() + SETTLING_SECONDS
        ahead = []
        while time.perf_counter() < settled:
            self.run_in_a_row(run)
            ahead.append(self.torch.cuda.Event())
            ahead[-1].record(self.stream)
            if len(ahead) > 2:
                ahead.pop(0).synchronize()

    def choose_runs_in_a_row(self, run):
        run()
        start, end, _ = self.run_between_events(run)
        self.torch.cuda.synchronize()
        once = start.elapsed_time(end) * 1e-3
        self.in_a_row = max(1, min(MOST_IN_A_ROW, int(SECONDS_IN_A_ROW / max(once, 1e-9))))
        if self.timing == "eager":
            return
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph, stream=self.stream):
            for _ in range(self.in_a_row):
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
        sm_clock = 1  # NVML_CLOCK_SM
        has_clock = known and self.library.nvmlDeviceGetClockInfo(self.handle, sm_clock, ctypes.byref(clock)) == 0
        has_power = known and self.library.nvmlDeviceGetPowerUsage(self.handle, ctypes.byref(power)) == 0
        return {
            "clock_mhz": float(clock.value) if has_clock else None,
            "power_w": power.value / 1e3 if has_power else None,
        }
