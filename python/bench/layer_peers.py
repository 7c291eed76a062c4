"""Attention layers in PyTorch, as peers of `fovea bench --with` (the same names as in peers.py).

    torch.eager     projections and the formula of attention as written, one operation after the other
    torch.compile   the same, compiled as one function
    torch.sdpa      projections around torch.nn.functional.scaled_dot_product_attention
    torch.flash, torch.cudnn, torch.efficient, torch.math
                    the same on a GPU, with SDPA held to one of its kernels

Gradients come from autograd: of the input, or of both inputs, and of every weight and bias.
"""

from fovea_worker import Unsupported
from peers import TorchCall, compiled, formula, hidden_pairs, is_causal, on_gpu_only, refuse_fully_masked_rows

OPERATIONS = ("mha_fused", "mha", "gqa", "mqa", "mla")
REFUSED = {"rope": "rotary embedding", "qk_norm": "normalisation of q and k", "latent_norm": "normalisation of latents"}


class TorchLayer(TorchCall):
    """x and weights as torch tensors without the dimensions of length 1 that the shared memory has."""

    def set_up_inputs(self, cell):
        problem = cell.problem
        for key, feature in REFUSED.items():
            if problem.get(key, "no") != "no":
                raise Unsupported(f"this peer has no {feature}")
        if problem.get("d_shared", "0") != "0":
            raise Unsupported("this peer has no key that all heads share")
        self.kind, self.grouped = problem["op"], problem["op"] in ("gqa", "mqa")
        self.heads = int(problem["hq"])
        self.key_heads = 1 if self.kind == "mqa" else int(problem.get("hkv", self.heads))
        parameters = [name for name in cell.arrays if name.endswith(("_weight", "_bias")) and not name.startswith("d")]
        self.inputs = {name: cell.tensor(name)[:, 0] for name in ("x", "x_kv") if name in cell.arrays}
        self.inputs.update({name: cell.tensor(name)[0, 0] for name in parameters})
        self.inputs = {name: value[0] if name.endswith("_bias") else value for name, value in self.inputs.items()}
        self.grad_out = cell.tensor("dy")[:, 0] if self.trains else None
        self.set_mask(cell)

    def set_mask(self, cell):
        self.hidden = hidden_pairs(cell, cell.device)

    def project(self, name, rows):
        return self.torch.nn.functional.linear(rows, self.inputs[name + "_weight"], self.inputs.get(name + "_bias"))

    def projections(self):
        """q, k and v as [batch, heads, length, dimension]."""
        x, x_kv = self.inputs["x"], self.inputs.get("x_kv", self.inputs["x"])
        if self.kind == "mha_fused":
            q, k, v = self.project("qkv", x).chunk(3, -1)
        elif self.kind == "mla":
            latent = self.project("kv_down", x_kv)
            q, k, v = self.project("q", self.project("q_down", x)), self.project("k", latent), self.project("v", latent)
        else:
            q, k, v = self.project("q", x), self.project("k", x_kv), self.project("v", x_kv)
        return [rows.unflatten(-1, (heads, -1)).transpose(1, 2)
                for rows, heads in ((q, self.heads), (k, self.key_heads), (v, self.key_heads))]

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
