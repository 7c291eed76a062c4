"""Child process of `fovea bench` that runs Python kernels: speaks the protocol of src/program/worker/protocol.h.

    fovea_worker.py my_kernel.py:function     a function, or a class with the methods of `Kernel`
    fovea_worker.py peers:torch.sdpa          an entry of KERNELS in peers.py beside this file

A function is called as function(q, k, v, mask, scale) and returns out. Tensors are [batch, heads, length, dim]: torch
tensors where torch can be imported, else numpy arrays (bf16 as uint16). mask is the word of the problem line, a str
with the bounds `left` and `right`: how many keys before and after its own a row sees, infinite without a limit.
Gradients come from function.backward(q, k, v, out, dout, mask, scale) -> (dq, dk, dv), or else from torch's autograd.
For device=cuda they are torch tensors on the GPU; work goes to torch's current stream and need not be waited for.
"""

import gc
import importlib.util
import json
import math
import mmap
import os
import sys

from device_clock import FLUSH_BYTES, HostClock, device_clock

INPUTS, OUTPUTS, COMMANDS, REPLIES = 3, 4, 5, 6


class Unsupported(Exception):
    """A kernel raises this for a case that it does not take."""


class Mask(str):
    """The mask's word, with the bounds of its interval."""

    def __new__(cls, problem):
        self = super().__new__(cls, problem["mask"])
        bounds = {"left": math.inf, "right": 0 if self.startswith("causal") else math.inf}
        for name, otherwise in bounds.items():
            text = problem.get(name, "unlimited")
            setattr(self, name, otherwise if text == "unlimited" else int(text))
        return self


class Cell:
    """One case: tensors over shared memory, and what is asked."""

    def __init__(self, command, numpy, torch):
        self.problem = dict(word.split("=", 1) for word in command["problem"].split())
        self.problem.setdefault("lk", self.problem["lq"])
        self.mask = Mask(self.problem)
        self.scale = float(self.problem["scale"])
        self.dtype = self.problem["dtype"]
        self.passes = command["pass"]  # fwd, bwd or e2e
        self.threads = command["threads"]
        self.device = self.problem["device"]
        self.numpy, self.torch = numpy, torch
        # A private copy-on-write view: a kernel that scribbles over its inputs harms nobody else.
        self._inputs = mmap.mmap(INPUTS, max(command["input_bytes"], 1), access=mmap.ACCESS_COPY)
        self._outputs = mmap.mmap(OUTPUTS, max(command["output_bytes"], 1))
        self.arrays = {name: self._array(name, place) for name, place in command["tensors"].items()}

    def _array(self, name, place):
        np = self.numpy
        dtype = {"fp32": np.float32, "fp16": np.float16, "bf16": np.uint16}[place["dtype"]]
        memory = self._inputs if place["input"] else self._outputs
        strides = [stride * np.dtype(dtype).itemsize for stride in place["strides"]]
        return np.ndarray(place["sizes"], dtype, memory, place["offset"], strides)

    def tensor(self, name):
        """The tensor as the kernel gets it: torch if there is one, else numpy; copied to the GPU if that is asked."""
        tensor = self._host_tensor(name)
        return tensor if tensor is None or self.device == "cpu" else tensor.to("cuda")

    def _host_tensor(self, name):
        array = self.arrays.get(name)
        if array is None or self.torch is None:
            return array
        if self.dtype == "bf16" and array.dtype == self.numpy.uint16:
            return self.torch.from_numpy(array.view(self.numpy.int16)).view(self.torch.bfloat16)
        return self.torch.from_numpy(array)

    def store(self, name, value):
        """Copies a result into the shared output of that name; a shape that does not fit is an error."""
        target = self.arrays[name]
        if self.torch is not None and isinstance(value, self.torch.Tensor):
            value = value.detach().cpu()
            if name == "lse" and value.dim() == 3:
                value = value.unsqueeze(-1)
            goal = self._host_tensor(name)
            if tuple(value.shape) != tuple(goal.shape):
                raise ValueError(f"{name} has shape {tuple(value.shape)}, wanted {tuple(goal.shape)}")
            goal.copy_(value)
            return
        value = self.numpy.asarray(value)
        if name == "lse" and value.ndim == 3:
            value = value[..., None]
        if value.shape != target.shape:
            raise ValueError(f"{name} has shape {value.shape}, wanted {target.shape}")
        target[...] = value


def bytes_of(tensors):
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor is not None)


class Kernel:
    """What is timed. `forward` and `backward` are the timed calls; `results` hands over what they made."""

    workspace_bytes = None  # set them in prepare or forward if they are known
    saved_bytes = None
    peer = None  # the framework that is measured, with its version, for the record

    def prepare(self, cell):
        raise NotImplementedError

    def forward(self):
        raise NotImplementedError

    def backward(self):
        raise Unsupported("no backward pass")

    def forget(self):
        """Drops what the last calls made, so that the next ones' memory is counted alone."""
        self.out, self.gradients = None, ()

    def release(self):
        """Forgets the case's tensors: the memory that they take may be wanted by others."""

    def results(self):
        """name -> tensor, of out and, after backward, dq, dk, dv; lse if there is one."""
        raise NotImplementedError


class FunctionKernel(Kernel):
    """A plain function with the signature of this file's head."""

    def __init__(self, function):
        self.function = function
        self.by_hand = getattr(function, "backward", None)

    def prepare(self, cell):
        self.cell, self.out, self.gradients = cell, None, ()
        self.q, self.k, self.v, self.dout = (cell.tensor(name) for name in ("q", "k", "v", "dout"))
        self.autograd = cell.passes != "fwd" and self.by_hand is None
        if self.autograd:
            if cell.torch is None:
                raise Unsupported("no function.backward, and no torch whose autograd could do without")
            for tensor in (self.q, self.k, self.v):
                tensor.requires_grad_(True)

    def release(self):
        self.cell = self.q = self.k = self.v = self.dout = self.out = None
        self.gradients = ()

    def forward(self):
        self.out = self.function(self.q, self.k, self.v, self.cell.mask, self.cell.scale)

    def backward(self):
        if self.autograd and not self.out.requires_grad:
            raise Unsupported("no function.backward, and the function's result has no gradient of autograd's")
        if self.autograd:
            inputs = self.q, self.k, self.v
            self.gradients = self.cell.torch.autograd.grad(self.out, inputs, self.dout, retain_graph=True)
        else:
            self.gradients = self.by_hand(self.q, self.k, self.v, self.out, self.dout, self.cell.mask, self.cell.scale)

    def results(self):
        return {"out": self.out, **dict(zip(("dq", "dk", "dv"), self.gradients))}


class Worker:
    def __init__(self, spec):
        self.spec, self.kernel, self.cell, self.clock = spec, None, None, HostClock()
        self.numpy = self.torch = None  # imported for the first case

    def load(self):
        import numpy

        try:
            import torch
        except ImportError:
            torch = None
        self.numpy, self.torch = numpy, torch
        if self.is_peer():
            return
        where, name = self.spec.rsplit(":", 1)
        description = importlib.util.spec_from_file_location("fovea_kernel", where)
        module = importlib.util.module_from_spec(description)
        sys.path.insert(0, os.path.dirname(where))
        description.loader.exec_module(module)
        found = getattr(module, name, None)
        if found is None:
            raise ValueError(f"{where} has no `{name}`")
        self.kernel = found() if isinstance(found, type) else FunctionKernel(found)

    def is_peer(self):
        return self.spec.startswith("peers:")

    def peer_of(self, operation):
        """The peer in its form for the operation."""
        import layer_peers
        import peers

        name = self.spec.split(":", 1)[1]
        forms = layer_peers.KERNELS if operation in layer_peers.OPERATIONS else peers.KERNELS
        if name not in forms or (forms is peers.KERNELS and operation != "attention"):
            raise Unsupported(f"{name} has no op={operation} here")
        return forms[name]()

    def prepare(self, command):
        if self.numpy is None:
            self.load()
        if self.torch is not None:
            self.torch.set_num_threads(command["threads"])
        operation = command["problem"].split()[0].removeprefix("op=")
        if self.is_peer():
            self.kernel = self.peer_of(operation)
        elif operation != "attention":
            raise Unsupported(f"kernels in Python take attention, not {operation}")
        self.cell = Cell(command, self.numpy, self.torch)
        if self.cell.device == "cuda":
            self.use_gpu(command)
        self.kernel.prepare(self.cell)
        return {}

    def use_gpu(self, command):
        torch = self.torch
        if torch is None or not torch.cuda.is_available():
            raise Unsupported("this Python has no torch that sees a GPU")
        # The memory that empties the cache is not the kernel's.
        share = (command["memory_limit"] + FLUSH_BYTES) / torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(share, 1.0))
        self.clock = device_clock(torch, command["timing"])

    def run_pass(self):
        if self.cell.passes != "bwd":
            self.kernel.forward()
        if self.cell.passes != "fwd":
            self.kernel.backward()

    def run(self, command):
        counts = self.run_counting_memory() if self.cell.device == "cuda" else self.run_once()
        self.store_outputs(command)
        peer = {"peer": str(self.kernel.peer)} if self.kernel.peer else {}
        return {"timer": self.clock.name, **peer, **counts}

    def load_outputs(self, command):
        """Nothing to do: a kernel makes its results anew."""
        return {}

    def store_outputs(self, command):
        for name, value in self.kernel.results().items():
            if name in self.cell.arrays:
                self.cell.store(name, value)
        return {}

    def run_once(self):
        self.kernel.forward()
        if self.cell.passes != "fwd":
            self.kernel.backward()
        return {"workspace_bytes": self.kernel.workspace_bytes, "saved_bytes": self.kernel.saved_bytes}

    def run_counting_memory(self):
        """A second run, when libraries have what they keep for good: workspace is the most that torch's allocator gave
        beyond results and saved state, saved state what a forward call leaves behind beside its result."""
        self.run_once()
        self.kernel.forget()
        held, peak = self.memory_of(self.kernel.forward)
        results = self.kernel.results()
        saved = held - bytes_of([results.get("out", results.get("y"))])
        if self.kernel.saved_bytes is not None:
            saved = self.kernel.saved_bytes
        workspace = peak - held
        if self.cell.passes != "fwd":
            held, peak = self.memory_of(self.kernel.backward)
            workspace = max(workspace, peak - held)
        known = self.kernel.workspace_bytes
        return {"workspace_bytes": max(workspace, 0) if known is None else known, "saved_bytes": max(saved, 0)}

    def memory_of(self, call):
        """Bytes of the GPU that a call leaves taken, and the most that it took."""
        cuda = self.torch.cuda
        cuda.synchronize()
        before = cuda.memory_allocated()
        cuda.reset_peak_memory_stats()
        call()
        cuda.synchronize()
        return cuda.memory_allocated() - before, cuda.max_memory_allocated() - before

    def sample(self, command):
        return self.clock.sample(self.run_pass, command["runs"], command["lead"])

    def drop(self, command):
        if self.kernel is not None:
            self.kernel.release()
        on_gpu = self.cell is not None and self.cell.device == "cuda"
        self.cell, self.clock = None, HostClock()
        if on_gpu:
            gc.collect()
            self.torch.cuda.empty_cache()
        return {}

    def answer(self, command):
        try:
            return {"ok": True, **getattr(self, command["command"])(command)}
        except (Unsupported, NotImplementedError) as error:
            return {"ok": False, "status": "unsupported", "reason": str(error)}
        except MemoryError as error:
            return {"ok": False, "status": "oom", "reason": str(error) or "an allocation failed"}
        except Exception as error:  # a kernel may raise anything
            text = f"{type(error).__name__}: {error}"
            if "No available kernel" in text:  # of torch's SDPA, if the one kernel that is allowed refuses the case
                return {"ok": False, "status": "unsupported", "reason": text[:2000]}
            memory = "out of memory" in text.lower() or "can't allocate memory" in text
            return {"ok": False, "status": "oom" if memory else "error", "reason": text[:2000]}


def main():
    if len(sys.argv) != 2:
        sys.exit("fovea_worker.py: is started by `fovea bench` only")
    sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
    sys.modules.setdefault("fovea_worker", sys.modules["__main__"])  # what kernels import is this very module
    worker = Worker(sys.argv[1])
    with os.fdopen(COMMANDS, "r") as commands, os.fdopen(REPLIES, "w") as replies:
        for line in commands:
            command = json.loads(line)
            if command["command"] == "quit":
                break
            replies.write(json.dumps(worker.answer(command)) + "\n")
            replies.flush()
    os._exit(0)  # libraries of the kernel may misbehave at exit; nothing is left to be saved


if __name__ == "__main__":
    main()
