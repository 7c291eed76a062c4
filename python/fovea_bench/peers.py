"""Peers of `fovea bench --with`: PyTorch in its forms and ONNX Runtime, as kernels of fovea_worker.py.

    torch.eager     the formula as written, one operation after the other
    torch.compile   the same formula compiled; the rewriting of attention into a flash kernel is switched off, since
                    that would time torch.sdpa under another name
    torch.sdpa      torch.nn.functional.scaled_dot_product_attention, whichever kernel it chooses
    torch.flash, torch.cudnn, torch.efficient, torch.math
                    the same on a GPU, held to one of its kernels
    onnxruntime     the operator MultiHeadAttention, forward in fp32

Masks, inputs and graphs are made in `prepare`, which is not timed; so is the copy of results to shared memory.
"""

from fovea_worker import Kernel, Unsupported


def refuse_fully_masked_rows(cell):
    """Rows that see no key are answered with NaN by frameworks, where the contract says 0."""
    len_q, len_k = int(cell.problem["lq"]), int(cell.problem["lk"])
    if len_k == 0:
        raise Unsupported("frameworks answer NaN where there are no keys")
    offset = len_k - len_q if cell.mask.endswith("bottom_right") else 0
    if offset + cell.mask.right < 0 or len_q - 1 + offset - cell.mask.left > len_k - 1:
        raise Unsupported("frameworks answer NaN in rows that see no key")


def hidden_pairs(cell, device):
    """Boolean [len_q, len_k], true where the mask hides a key; None where it hides none. As a torch tensor."""
    torch, len_q, len_k = cell.torch, int(cell.problem["lq"]), int(cell.problem["lk"])
    if cell.mask == "none":
        return None
    own = torch.arange(len_q, device=device) + (len_k - len_q if cell.mask.endswith("bottom_right") else 0)
    ahead = torch.arange(len_k, device=device)[None, :] - own[:, None]
    return (ahead < -cell.mask.left) | (ahead > cell.mask.right)


def repeat_heads(tensor, heads):
    """Key heads repeated for the query heads that read them, as model code does."""
    return tensor if tensor.shape[1] == heads else tensor.repeat_interleave(heads // tensor.shape[1], 1)


def formula(torch, q, k, v, scale, hidden):
    """softmax(scale * q k^T + mask) v, operation by operation."""
    k, v = repeat_heads(k, q.shape[1]), repeat_heads(v, q.shape[1])
    scores = (q @ k.transpose(-1, -2)) * scale
    if hidden is not None:
        scores = scores.masked_fill(hidden, float("-inf"))
    return torch.softmax(scores, -1) @ v


def is_causal(cell):
    """Whether the flag of SDPA names the mask."""
    same = cell.problem["lq"] == cell.problem["lk"]
    return cell.mask in ("causal", "causal_top_left") or (cell.mask == "causal_bottom_right" and same)


def compiled(torch, threads, function):
    import torch._functorch.config
    import torch._inductor.config

    torch._inductor.config.pattern_matcher = False  # no rewriting into a flash kernel
    torch._inductor.config.cpp.threads = threads  # part of the key under which compiled code is kept
    torch._functorch.config.donated_buffer = False  # backward runs again and again on one graph
    torch._dynamo.reset()
    return torch.compile(function, dynamic=False)


def on_gpu_only(cell, backend):
    """A context that holds SDPA to one kernel, by its name in torch.nn.attention.SDPBackend."""
    if cell.device != "cuda":
        raise Unsupported("a row of GPUs; on a CPU torch.sdpa is timed")
    from torch.nn.attention import SDPBackend, sdpa_kernel

    return lambda: sdpa_kernel(getattr(SDPBackend, backend))


class TorchCall(Kernel):
    """Forward without a graph where only forward is asked for; else with one, and autograd for the gradients."""

    hidden = None
    tables = ()  # constant tensors of a form

    def prepare(self, cell):
        if cell.torch is None:
            raise Unsupported("this Python has no torch")
        self.torch, self.scale = cell.torch, cell.scale
        self.peer = f"PyTorch {self.torch.__version__}"
        self.trains = cell.passes != "fwd"
        refuse_fully_masked_rows(cell)
        self.out, self.gradients = None, ()
        self.set_up_inputs(cell)
        for tensor in self.inputs.values():
            tensor.requires_grad_(self.trains)
        self.set_up(cell)
        self.saved_bytes = self.count_saved() if self.trains else 0

    def set_up_inputs(self, cell):
        """Sets `inputs`, tensors by name whose gradients are wanted, `grad_out`, and the mask as the form wants it."""
        raise NotImplementedError

    def set_up(self, cell):
        """What a form prepares of its own."""

    def release(self):
        self.__dict__.clear()

    def call(self):
        """The output, from `inputs`."""
        raise NotImplementedError

    def forward(self):
        with self.torch.set_grad_enabled(self.trains):
            self.out = self.call()

    def backward(self):
        self.gradients = self.torch.autograd.grad(self.out, (*self.inputs.values(),), self.grad_out, retain_graph=True)

    def count_saved(self):
        """Bytes that autograd keeps from forward for backward, inputs, output and constants apart."""
        kept = {}

        def keep(tensor):
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with self.torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            self.forward()
        for tensor in (*self.inputs.values(), *self.tables, self.out, self.hidden):
            if tensor is not None:
                kept.pop(tensor.untyped_storage().data_ptr(), None)
        return sum(kept.values())


class TorchEager(TorchCall):
    def set_up_inputs(self, cell):
        self.inputs = {name: cell.tensor(name) for name in ("q", "k", "v")}
        self.grad_out = cell.tensor("dout")
        self.hidden = self.hide(cell)

    def hide(self, cell):
        """The mask, as the form wants it; one that another form does without takes memory for nothing."""
        return hidden_pairs(cell, self.inputs["q"].device)

    def call(self):
        return formula(self.torch, *self.inputs.values(), self.scale, self.hidden)

    def results(self):
        return {"out": self.out, **dict(zip(("dq", "dk", "dv"), self.gradients))}


class TorchCompile(TorchEager):
    def set_up(self, cell):
        torch = self.torch

        def attention(q, k, v, hidden):
            return formula(torch, q, k, v, cell.scale, hidden)

        self.compiled = compiled(torch, cell.threads, attention)

    def call(self):
        return self.compiled(*self.inputs.values(), self.hidden)


class TorchSdpa(TorchEager):
    def hide(self, cell):
        """The flag for masks that it names; a boolean mask, true where a key is seen, for the other alignment."""
        self.causal = is_causal(cell)
        hidden = None if self.causal else super().hide(cell)
        self.seen = None if hidden is None else ~hidden
        return self.seen

    def set_up(self, cell):
        self.grouped = self.inputs["q"].shape[1] != self.inputs["k"].shape[1]

    def call(self):
        return self.torch.nn.functional.scaled_dot_product_attention(
            *self.inputs.values(), self.seen, 0.0, self.causal, scale=self.scale, enable_gqa=self.grouped
        )


class TorchOneSdpaKernel(TorchSdpa):
    """On a GPU, where torch has several kernels; a case that this one does not take is unsupported."""

    backend = None  # a name of torch.nn.attention.SDPBackend

    def set_up(self, cell):
        super().set_up(cell)
        self.only = on_gpu_only(cell, self.backend)

    def call(self):
        with self.only():
            return super().call()


class TorchFlash(TorchOneSdpaKernel):
    backend = "FLASH_ATTENTION"


class TorchCudnn(TorchOneSdpaKernel):
    backend = "CUDNN_ATTENTION"


class TorchEfficient(TorchOneSdpaKernel):
    backend = "EFFICIENT_ATTENTION"


class TorchMath(TorchOneSdpaKernel):
    backend = "MATH"


class OnnxRuntime(Kernel):
    def prepare(self, cell):
        problem = cell.problem
        if cell.device != "cpu":
            raise Unsupported("onnxruntime is timed on a CPU only")
        if cell.passes != "fwd":
            raise Unsupported("onnxruntime is timed forward only")
        if cell.dtype != "fp32":
            raise Unsupported("MultiHeadAttention takes fp32 only on a CPU")
        if problem["hq"] != problem["hkv"]:
            raise Unsupported("MultiHeadAttention has no grouped heads")
        if cell.mask != "none" and problem["lq"] != problem["lk"]:
            raise Unsupported("MultiHeadAttention does not name the alignment of its causal mask")
        if cell.mask.startswith("window"):
            raise Unsupported("MultiHeadAttention has no sliding windows")
        if "0" in (problem["b"], problem["hq"], problem["lq"], problem["lk"]):
            raise Unsupported("MultiHeadAttention takes no empty tensors")
        self.cell, self.saved_bytes = cell, 0
        self.inputs = {name: self.packed(cell.arrays[name]) for name in ("q", "k", "v")}
        self.session = self.make_session()

    def packed(self, array):
        """[batch, heads, length, dim] -> [batch, length, heads * dim], the only order that the operator takes."""
        batch, heads, length, dim = array.shape
        return self.cell.numpy.ascontiguousarray(array.transpose(0, 2, 1, 3)).reshape(batch, length, heads * dim)

    def make_session(self):
        try:
            import onnx
            import onnxruntime
        except ImportError as error:
            raise Unsupported(f"this Python has no {error.name}") from error
        self.peer = f"ONNX Runtime {onnxruntime.__version__}"
        node = onnx.helper.make_node(
            "MultiHeadAttention",
            ["q", "k", "v"],
            ["out"],
            domain="com.microsoft",
            num_heads=int(self.cell.problem["hq"]),
            unidirectional=int(self.cell.mask != "none"),
            scale=self.cell.scale,
        )

        def described(name, shape):
            return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, list(shape))

        out = self.inputs["q"].shape[:2] + self.inputs["v"].shape[2:]
        inputs = [described(name, array.shape) for name, array in self.inputs.items()]
        graph = onnx.helper.make_graph([node], "attention", inputs, [described("out", out)])
        versions = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
        model = onnx.helper.make_model(graph, opset_imports=versions, ir_version=9)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = self.cell.threads
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])

    def forward(self):
        self.out = self.session.run(None, self.inputs)[0]

    def results(self):
        batch, heads, length = self.cell.arrays["out"].shape[:3]
        return {"out": self.out.reshape(batch, length, heads, -1).transpose(0, 2, 1, 3)}


KERNELS = {
    "torch.eager": TorchEager,
    "torch.compile": TorchCompile,
    "torch.sdpa": TorchSdpa,
    "torch.flash": TorchFlash,
    "torch.cudnn": TorchCudnn,
    "torch.efficient": TorchEfficient,
    "torch.math": TorchMath,
    "onnxruntime": OnnxRuntime,
}
