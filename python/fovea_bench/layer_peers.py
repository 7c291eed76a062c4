"""Attention layers in PyTorch, as peers of `fovea bench --with` (the same names as in peers.py).

    torch.eager     projections and the formula of attention as written, one operation after the other
    torch.compile   the same, compiled as one function
    torch.sdpa      projections around torch.nn.functional.scaled_dot_product_attention
    torch.flash, torch.cudnn, torch.efficient, torch.math
                    the same on a GPU, with SDPA held to one of its kernels

Gradients come from autograd: of the input, or of both inputs, and of every weight and bias. Angles of rotary embedding
are tabled, and rows are rotated in fp32.
"""

from peers import TorchCall, compiled, formula, hidden_pairs, is_causal, on_gpu_only, refuse_fully_masked_rows

OPERATIONS = ("mha_fused", "mha", "gqa", "mqa", "mla")


class RotaryTable:
    """Sines and cosines of rotary embedding for some columns of rows at neighbouring positions."""

    def __init__(self, cell, columns, first_position, length):
        torch, pairs = cell.torch, columns // 2
        self.columns, self.neighbours = columns, cell.problem["rope"] == "interleaved"
        positions = torch.arange(first_position, first_position + length, dtype=torch.float64)
        powers = -torch.arange(pairs, dtype=torch.float64) / pairs
        angles = torch.outer(positions, float(cell.problem["theta"]) ** powers)
        self.torch = torch
        self.cos, self.sin = angles.cos().float().to(cell.device), angles.sin().float().to(cell.device)

    def rotated(self, x):
        """x is [batch, heads, length, columns]."""
        wide = x.float()
        a, b = (wide[..., ::2], wide[..., 1::2]) if self.neighbours else wide.chunk(2, -1)
        ab = (a * self.cos - b * self.sin, a * self.sin + b * self.cos)
        turned = self.torch.stack(ab, -1).flatten(-2) if self.neighbours else self.torch.cat(ab, -1)
        return turned.to(x.dtype)


class TorchLayer(TorchCall):
    """x and weights as torch tensors without the dimensions of length 1 that the shared memory has."""

    def set_up_inputs(self, cell):
        problem = cell.problem
        self.kind, self.grouped = problem["op"], problem["op"] in ("gqa", "mqa")
        self.heads = int(problem["hq"])
        self.key_heads = 1 if self.kind == "mqa" else int(problem.get("hkv", self.heads))
        self.shared, self.epsilon = int(problem.get("d_shared", 0)), float(problem.get("eps", 0))
        parameters = [name for name in cell.arrays
                      if name.endswith(("_weight", "_bias", "_norm")) and not name.startswith("d")]
        self.inputs = {name: cell.tensor(name)[:, 0] for name in ("x", "x_kv") if name in cell.arrays}
        self.inputs.update({name: cell.tensor(name)[0, 0] for name in parameters})
        self.inputs = {name: value[0] if name.endswith(("_bias", "_norm")) else value
                       for name, value in self.inputs.items()}
        self.grad_out = cell.tensor("dy")[:, 0] if self.trains else None
        self.rotary = {}
        if problem.get("rope", "no") != "no":
            columns = self.shared or int(problem["rope_dim"])
            for name, first, length in (("q", "pos", "lq"), ("k", "pos_k", "lk")):
                self.rotary[name] = RotaryTable(cell, columns, int(problem[first]), int(problem[length]))
        self.tables = [table for one in self.rotary.values() for table in (one.cos, one.sin)]
        self.set_mask(cell)

    def set_mask(self, cell):
        self.hidden = hidden_pairs(cell, cell.device)

    def project(self, name, rows):
        return self.torch.nn.functional.linear(rows, self.inputs[name + "_weight"], self.inputs.get(name + "_bias"))

    def normalised(self, name, rows):
        """By the root mean square of each row, if the layer has this norm."""
        weight = self.inputs.get(name + "_norm")
        if weight is None:
            return rows
        return self.torch.nn.functional.rms_norm(rows, weight.shape, weight, self.epsilon)

    def rotated(self, name, heads):
        """A shared key's columns come last in a head; without one, the rotated columns come first."""
        if name not in self.rotary:
            return heads
        table, dim = self.rotary[name], heads.shape[-1]
        first = dim - table.columns if self.shared else 0
        before, turned, behind = heads.split((first, table.columns, dim - first - table.columns), -1)
        return self.torch.cat((before, table.rotated(turned), behind), -1)

    def projections(self):
        """q, k and v as [batch, heads, length, dimension]."""
        x, x_kv = self.inputs["x"], self.inputs.get("x_kv", self.inputs["x"])
        shared_key = None
        if self.kind == "mha_fused":
            q, k, v = self.project("qkv", x).chunk(3, -1)
        elif self.kind == "mla":
            latent = self.project("kv_down", x_kv)
            if self.shared:
                latent, shared_key = latent.split((latent.shape[-1] - self.shared, self.shared), -1)
            latent = self.normalised("kv_latent", latent)
            q = self.project("q", self.normalised("q_latent", self.project("q_down", x)))
            k, v = self.project("k", latent), self.project("v", latent)
        else:
            q, k, v = self.project("q", x), self.project("k", x_kv), self.project("v", x_kv)
        q, k, v = (rows.unflatten(-1, (heads, -1)).transpose(1, 2)
                   for rows, heads in ((q, self.heads), (k, self.key_heads), (v, self.key_heads)))
        if shared_key is not None:
            k = self.torch.cat((k, shared_key[:, None].expand(-1, self.key_heads, -1, -1)), -1)
        return self.rotated("q", self.normalised("q", q)), self.rotated("k", self.normalised("k", k)), v

    def attention(self, q, k, v):
        return formula(self.torch, q, k, v, self.scale, self.hidden)

    def call(self):
        return self.project("out", self.attention(*self.projections()).transpose(1, 2).flatten(2))

    def results(self):
        """In the shapes of the shared memory."""
        named = {"y": self.out, **{"d" + name: one for name, one in zip(self.inputs, self.gradients)}}
        return {name: value[:, None] if name in ("y", "dx", "dx_kv") else value.reshape(1, 1, -1, value.shape[-1])
                for name, value in named.items()}


class CompiledLayer(TorchLayer):
    def set_up(self, cell):
        self.compiled_call = compiled(self.torch, cell.threads, super().call)

    def call(self):
        return self.compiled_call()


class SdpaLayer(TorchLayer):
    def set_mask(self, cell):
        self.causal = is_causal(cell)
        self.hidden = None if self.causal else hidden_pairs(cell, cell.device)
        self.seen = None if self.hidden is None else ~self.hidden

    def attention(self, q, k, v):
        return self.torch.nn.functional.scaled_dot_product_attention(
            q, k, v, self.seen, 0.0, self.causal, scale=self.scale, enable_gqa=self.grouped
        )


def held_to(backend):
    """The class whose SDPA runs one kernel, by its name in torch.nn.attention.SDPBackend."""

    class OneSdpaKernelLayer(SdpaLayer):
        def set_up(self, cell):
            self.only = on_gpu_only(cell, backend)

        def attention(self, q, k, v):
            with self.only():
                return super().attention(q, k, v)

    return OneSdpaKernelLayer


KERNELS = {
    "torch.eager": TorchLayer,
    "torch.compile": CompiledLayer,
    "torch.sdpa": SdpaLayer,
    "torch.flash": held_to("FLASH_ATTENTION"),
    "torch.cudnn": held_to("CUDNN_ATTENTION"),
    "torch.efficient": held_to("EFFICIENT_ATTENTION"),
    "torch.math": held_to("MATH"),
}
