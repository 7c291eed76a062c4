"""Child process of `fovea profile`: the model of src/model/model.h in PyTorch, with the weights that it is given.

    model_worker.py torch.eager|torch.compile|torch.eager.graph|torch.compile.graph

Commands and replies are JSON lines, as in fovea_worker.py. `prepare` makes the model, `compare` computes the loss and
writes all gradients to the shared outputs, `step` makes one step and tells the seconds of its phases. `train` makes
steps with an optimizer of their own and writes all weights to the outputs; in every second step tokens and targets
change places. Products are true fp32. A model in bf16 has weights and activations in bf16, and the optimizer has fp32
copies of the weights. q, k and v are one product. Attention is PyTorch's fastest of these sizes, sines and cosines are
tabled, and AdamW is the fused one. Of gate and up, and of rotary, a peer has the form that is faster in it on an H200.
A peer that ends with .graph captures each phase in a CUDA graph, and its steps replay these: the kernels of the same
model, without the time that the host takes to enqueue them.
"""

import contextlib
import json
import mmap
import os
import resource
import sys
import time

INPUTS, OUTPUTS, COMMANDS, REPLIES = 3, 4, 5, 6
SETTLE = 10e-3  # seconds of untimed products before a step on a CPU: threads of a process that was stopped wake slowly


def transformer(torch, c, compiles):
    """The module, which returns the mean loss of a batch. Parameters have this library's names; gate_up is both."""
    from torch import nn
    from torch.nn import functional as F

    def matrix(inputs, outputs):
        return nn.Linear(inputs, outputs, bias=False)

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out = matrix(c["width"], 3 * c["width"]), matrix(c["width"], c["width"])

        def forward(self, x, *angles):
            batch, length, width = x.shape
            qk, v = self.qkv(x).view(batch, length, 3, c["heads"], -1).split((2, 1), 2)
            q, k = (rotated_by_pairs if compiles else rotated)(qk, *angles).transpose(1, 3).unbind(2)
            y = F.scaled_dot_product_attention(q, k, v.squeeze(2).transpose(1, 2), is_causal=True)
            return self.out(y.transpose(1, 2).reshape(batch, length, width))

    def rotated(x, turns):
        """Neighbouring columns are a pair, the parts of a complex number. q and k at once, in three kernels."""
        pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
        return torch.view_as_real(pairs * turns).flatten(-2).to(x.dtype)

    def rotated_by_pairs(x, cos, sin):
        """The same without complex numbers, which torch.compile does not fuse: a cos - b sin, b cos + a sin."""
        pairs = x.unflatten(-1, (-1, 2))
        return torch.addcmul(pairs * cos, pairs.flip(-1), sin).flatten(-2)

    class FeedForward(nn.Module):
        def __init__(self):
            super().__init__()
            if compiles:
                self.gate_up = matrix(c["width"], 2 * c["hidden"])
            else:  # kernels of halves of rows are slower than those of whole ones
                self.gate, self.up = matrix(c["width"], c["hidden"]), matrix(c["width"], c["hidden"])
            self.down = matrix(c["hidden"], c["width"])

        def forward(self, x):
            gate, up = self.gate_up(x).chunk(2, -1) if compiles else (self.gate(x), self.up(x))
            return self.down(F.silu(gate) * up)

    class Block(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention_norm, self.attention = nn.RMSNorm(c["width"], c["epsilon"]), Attention()
            self.feed_forward_norm, self.feed_forward = nn.RMSNorm(c["width"], c["epsilon"]), FeedForward()

        def forward(self, x, *angles):
            x = x + self.attention(self.attention_norm(x), *angles)
            return x + self.feed_forward(self.feed_forward_norm(x))

    class Transformer(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(c["vocabulary"], c["width"])
            self.layers = nn.ModuleList(Block() for _ in range(c["layers"]))
            self.norm, self.head = nn.RMSNorm(c["width"], c["epsilon"]), matrix(c["width"], c["vocabulary"])
            columns = c["width"] // c["heads"]
            rates = c["theta"] ** (-torch.arange(columns // 2, dtype=torch.float64) * 2 / columns)
            angles = (torch.arange(c["length"], dtype=torch.float64)[:, None] * rates)[:, None, None, :, None]
            if compiles:
                self.register_buffer("cos", angles.cos().float())
                self.register_buffer("sin", torch.cat((-angles.sin(), angles.sin()), -1).float())
            else:
                self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles).squeeze(-1).cfloat())

        def forward(self, tokens, targets):
            x, angles = self.embedding(tokens), (self.cos, self.sin) if compiles else (self.turns,)
            for layer in self.layers:
                x = layer(x, *angles)
            return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1).float(), targets.flatten())

    return Transformer()


def fastest_attention(torch, c):
    """The fastest back end of PyTorch's attention for bf16 on a GPU, forward and backward; None if it has to choose."""
    from torch.nn import attention, functional

    def seconds(backend):
        q, k, v = (torch.randn(c["batch"], c["heads"], c["length"], c["width"] // c["heads"], device="cuda",
                               dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
        with attention.sdpa_kernel(backend):
            for count in (3, 20):  # the first ones untimed
                torch.cuda.synchronize()
                begin = time.perf_counter()
                for _ in range(count):
                    functional.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
                torch.cuda.synchronize()
        return time.perf_counter() - begin

    times = {}
    for backend in (attention.SDPBackend.CUDNN_ATTENTION, attention.SDPBackend.FLASH_ATTENTION):
        with contextlib.suppress(RuntimeError):  # a backend that does not take these sizes
            times[backend] = seconds(backend)
    return min(times, key=times.get) if times else None


class Worker:
    def __init__(self, name):
        kind, _, graph = name.removeprefix("torch.").partition(".")
        if kind not in ("eager", "compile") or graph not in ("", "graph"):
            raise ValueError(f"no peer `{name}`")
        self.compiles, self.in_graphs = kind == "compile", graph == "graph"

    def prepare(self, command):
        import torch

        self.torch, self.command, self.device = torch, command, command["device"]
        if self.in_graphs and self.device != "cuda":
            raise NotImplementedError("CUDA graphs want --device cuda")
        if self.device == "cuda" and not torch.cuda.is_available():
            raise NotImplementedError("this Python has no torch that sees a GPU")
        torch.set_num_threads(command["threads"])
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False
        with torch.device("meta"):
            self.model = transformer(torch, command, self.compiles)
        self.model = self.model.to_empty(device=self.device)
        fresh = transformer(torch, {**command, "layers": 0, "vocabulary": 1}, self.compiles)
        for table, values in zip(self.model.buffers(), fresh.buffers(), strict=True):  # which to_empty dropped
            table.copy_(values)
        self.take_inputs()
        self.bf16 = command["dtype"] == "bf16"
        self.weights = list(self.model.parameters())  # in fp32
        if self.bf16:
            self.weights = [torch.nn.Parameter(one.detach().clone()) for one in self.weights]
            for one in self.weights:
                one.grad = torch.zeros_like(one)
            self.model.bfloat16()
        self.attention = fastest_attention(torch, command) if self.bf16 and self.device == "cuda" else None
        self.run = torch.compile(self.model, dynamic=False) if self.compiles else self.model
        self.forward, self.forward_and_keep, self.backward = self.forward_alone, self.loss, self.backward_from
        if self.in_graphs:
            self.capture_passes()
        self.optimizer = self.optimizer_of(command)
        self.update = self.update_of(self.optimizer, command["largest_norm"])
        return {"peer": f"PyTorch {torch.__version__}"}

    def optimizer_of(self, command):
        decays = [one for one in self.weights if one.dim() > 1]
        others = [one for one in self.weights if one.dim() == 1]
        rate = self.command["learning_rate"]
        return self.torch.optim.AdamW(
            [{"params": decays, "weight_decay": command["weight_decay"]}, {"params": others, "weight_decay": 0.0}],
            lr=self.torch.tensor(rate, device=self.device) if self.in_graphs else rate, capturable=self.in_graphs,
            betas=tuple(command["betas"]), eps=command["adam_epsilon"], fused=True)

    def offset(self, name):
        return self.command["parameters"][name.replace("gate_up", "gate")]

    def take_inputs(self):
        torch, c = self.torch, self.command
        rows = c["batch"] * c["length"]
        with mmap.mmap(INPUTS, 4 * (c["floats"] + 2 * rows), access=mmap.ACCESS_COPY) as inputs:
            weights = torch.frombuffer(inputs, dtype=torch.float32, count=c["floats"])
            for name, one in self.model.named_parameters():
                one.data.copy_(weights[self.offset(name):][:one.numel()].view(one.shape))
            tokens = torch.frombuffer(inputs, dtype=torch.int32, offset=4 * c["floats"]).to(self.device, torch.int64)
            del weights  # the block cannot be closed while a tensor shows it
        self.batch = tokens.view(2, c["batch"], c["length"])
        self.tokens, self.targets = self.batch

    def loss(self):
        kernel = self.torch.nn.attention.sdpa_kernel
        with kernel(self.attention) if self.attention is not None else contextlib.nullcontext():
            return self.run(self.tokens, self.targets)

    def peak_bytes(self):
        """Until now. Of the process on a CPU, which has the program and what its allocator keeps."""
        if self.device == "cuda":
            return self.torch.cuda.max_memory_reserved()
        return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    def write(self, values_of_all):
        """The values of each parameter to the shared outputs."""
        with mmap.mmap(OUTPUTS, 4 * self.command["floats"]) as outputs:
            values = self.torch.frombuffer(outputs, dtype=self.torch.float32)
            for (name, _), one in zip(self.model.named_parameters(), values_of_all, strict=True):
                values[self.offset(name):][:one.numel()].copy_(one.flatten())
            del values

    def forward_alone(self):
        with self.torch.no_grad():
            return self.loss()

    def backward_from(self, loss):
        self.model.zero_grad()
        loss.backward()

    def captured(self, call, *arguments):
        """A function that replays the kernels of this call, and returns the tensor that the call returned."""
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph, pool=self.pool):
            result = call(*arguments)

        def replay(*_):
            graph.replay()
            return result
        return replay

    def capture_passes(self):
        """On a stream of its own first: kernels are compiled and library handles made, which no graph can hold."""
        cuda = self.torch.cuda
        self.pool, stream = cuda.graph_pool_handle(), cuda.Stream()
        stream.wait_stream(cuda.current_stream())
        with cuda.stream(stream):
            for _ in range(3):
                self.forward_alone()
                self.backward_from(self.loss())
        cuda.synchronize()
        self.model.zero_grad()
        cuda.empty_cache()
        self.forward, self.forward_and_keep = self.captured(self.forward_alone), self.captured(self.loss)
        self.backward = self.captured(self.backward_from, self.forward_and_keep())
        self.backward(self.forward_and_keep())  # a capture computes nothing, and an update wants gradients

    def update_of(self, optimizer, largest_norm):
        """The function that updates the weights by the gradients that are there."""
        def update():
            if self.bf16:
                with self.torch.no_grad():
                    self.torch._foreach_copy_([one.grad for one in self.weights],
                                              [one.grad for one in self.model.parameters()])
            self.torch.nn.utils.clip_grad_norm_(self.weights, largest_norm)
            optimizer.step()
            if self.bf16:
                with self.torch.no_grad():
                    self.torch._foreach_copy_(list(self.model.parameters()), self.weights)

        if not self.in_graphs:
            return update
        rates = [float(group["lr"]) for group in optimizer.param_groups]
        self.set_rates(optimizer, [0.0] * len(rates))
        update()  # makes the moments, and leaves the weights as they are
        for state in optimizer.state.values():
            for one in state.values():
                one.zero_()
        self.set_rates(optimizer, rates)
        return self.captured(update)

    def set_rates(self, optimizer, rates):
        for group, rate in zip(optimizer.param_groups, rates):
            if self.in_graphs:
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate

    def compare(self, command):
        loss = self.forward_and_keep()
        self.backward(loss)
        self.write([one.grad for one in self.model.parameters()])
        return {"loss": loss.item()}

    def train(self, command):
        optimizer, given = self.optimizer_of(command), self.batch.clone()
        update = self.update_of(optimizer, command["largest_norm"])
        for rate in command["learning_rates"]:
            self.set_rates(optimizer, [rate] * len(optimizer.param_groups))
            self.backward(self.forward_and_keep())
            update()
            self.batch.copy_(self.batch.flip(0))
        self.batch.copy_(given)
        self.write([one.detach() for one in self.weights])
        return {"loss": self.forward().item(), "peak_bytes": self.peak_bytes()}

    def settle(self):
        matrix, end = self.torch.ones(256, 256), time.perf_counter() + SETTLE
        while self.device == "cpu" and time.perf_counter() < end:
            matrix @ matrix

    def now(self):
        if self.device == "cuda":
            self.torch.cuda.synchronize()
        return time.perf_counter()

    def step(self, command):
        torch, passes = self.torch, command["passes"]
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        self.settle()
        held, times = None, [self.now()]
        state = torch.cuda.memory_allocated() if self.device == "cuda" else None
        loss = self.forward() if passes == "forward" else self.forward_and_keep()
        times.append(self.now())
        if passes != "forward":
            held = torch.cuda.memory_allocated() if self.device == "cuda" else None
            self.backward(loss)
            times.append(self.now())
        if passes == "step":
            self.update()
            times.append(self.now())
        if self.in_graphs:  # which hold their memory all the time
            state = held = None
        spans = [end - begin for begin, end in zip(times, times[1:])]
        return {"seconds": dict(zip(("forward", "backward", "optimizer"), spans)), "state_bytes": state,
                "held_bytes": held, "peak_bytes": torch.cuda.max_memory_allocated() if held is not None else None}

    def answer(self, command):
        try:
            return {"ok": True, **getattr(self, command["command"])(command)}
        except NotImplementedError as error:
            return {"ok": False, "status": "unsupported", "reason": str(error)}
        except MemoryError as error:
            return {"ok": False, "status": "oom", "reason": str(error) or "an allocation failed"}
        except Exception as error:  # torch and its compiler may raise anything
            text = f"{type(error).__name__}: {error}"
            memory = "out of memory" in text.lower() or "can't allocate memory" in text
            return {"ok": False, "status": "oom" if memory else "error", "reason": text[:2000]}


def main():
    if len(sys.argv) != 2:
        sys.exit("model_worker.py: is started by `fovea profile` only")
    worker = Worker(sys.argv[1])
    with os.fdopen(COMMANDS, "r") as commands, os.fdopen(REPLIES, "w") as replies:
        for line in commands:
            replies.write(json.dumps(worker.answer(json.loads(line))) + "\n")
            replies.flush()
    os._exit(0)  # torch's threads need no farewell


if __name__ == "__main__":
    main()
