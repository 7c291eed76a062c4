"""`fovea train --weights` takes Llama's names: its first loss is that of Llama's formula, and of the same weights under
Fovea's names."""

import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

WIDTH, HEADS, HIDDEN, LAYERS, VOCABULARY, CONTEXT = 24, 2, 20, 2, 256, 44
TEXT = b"The weights of a file decide the loss of step 1"[:CONTEXT + 1]
TEXT += b"held "  # the last tenth: so that only one sample of CONTEXT + 1 bytes is there for training
THETA, EPSILON = 1e4, 1e-5

Tensors = dict[str, np.ndarray]


def rounded_to_bf16(values: np.ndarray) -> np.ndarray:
    bits = values.astype("<f4").view("<u4")
    return ((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000).astype("<u4").view("<f4")


def llama_weights() -> Tensors:
    """Large enough that attention and its rotary embedding matter; exact in bf16."""
    random = np.random.default_rng(7)
    square, wide, embedding = (WIDTH, WIDTH), (HIDDEN, WIDTH), (VOCABULARY, WIDTH)
    shapes = {"model.embed_tokens.weight": embedding, "model.norm.weight": (WIDTH,), "lm_head.weight": embedding}
    for layer in range(LAYERS):
        shapes |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in (
            ("input_layernorm", (WIDTH,)), ("self_attn.q_proj", square), ("self_attn.k_proj", square),
            ("self_attn.v_proj", square), ("self_attn.o_proj", square), ("post_attention_layernorm", (WIDTH,)),
            ("mlp.gate_proj", wide), ("mlp.up_proj", wide), ("mlp.down_proj", (WIDTH, HIDDEN)))}
    return {name: rounded_to_bf16(random.normal(float("norm" in name), 0.4, shape)) for name, shape in shapes.items()}


def neighbours(matrix: np.ndarray) -> np.ndarray:
    """Rows i and i + n of each head become rows 2 i and 2 i + 1."""
    return matrix.reshape(HEADS, 2, -1, WIDTH).swapaxes(1, 2).reshape(WIDTH, WIDTH)


def under_own_names(llama: Tensors) -> Tensors:
    own = {"embedding.weight": llama["model.embed_tokens.weight"], "norm.weight": llama["model.norm.weight"],
           "head.weight": llama.get("lm_head.weight", llama["model.embed_tokens.weight"])}
    for layer in range(LAYERS):
        def of(name: str) -> np.ndarray:
            return llama[f"model.layers.{layer}.{name}.weight"]
        q, k = neighbours(of("self_attn.q_proj")), neighbours(of("self_attn.k_proj"))
        own |= {f"layers.{layer}.{name}.weight": values for name, values in (
            ("attention_norm", of("input_layernorm")),
            ("attention.qkv", np.concatenate((q, k, of("self_attn.v_proj")))),
            ("attention.out", of("self_attn.o_proj")), ("feed_forward_norm", of("post_attention_layernorm")),
            ("feed_forward.gate", of("mlp.gate_proj")), ("feed_forward.up", of("mlp.up_proj")),
            ("feed_forward.down", of("mlp.down_proj")))}
    return own


def llama_loss(w: Tensors) -> float:
    """The mean loss of the text by the formulas of LlamaForCausalLM, in double precision."""
    w = {name: values.astype(float) for name, values in w.items()}
    tokens, targets = np.frombuffer(TEXT, np.uint8)[:CONTEXT], np.frombuffer(TEXT, np.uint8)[1:CONTEXT + 1]
    n = WIDTH // HEADS // 2
    angles = np.outer(np.arange(CONTEXT), THETA ** (-np.arange(n) / n))
    cos, sin = (np.concatenate((f(angles), f(angles)), 1) for f in (np.cos, np.sin))

    def norm(x, name):
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * w[name + ".weight"]

    def rotated(x):
        return x * cos + np.concatenate((-x[..., n:], x[..., :n]), -1) * sin

    x = w["model.embed_tokens.weight"][tokens]
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        y = norm(x, prefix + "input_layernorm")
        q, k, v = ((y @ w[f"{prefix}self_attn.{name}_proj.weight"].T).reshape(CONTEXT, HEADS, -1).swapaxes(0, 1)
                   for name in "qkv")
        scores = rotated(q) @ rotated(k).swapaxes(1, 2) / np.sqrt(2 * n)
        scores = np.where(np.tri(CONTEXT, dtype=bool), scores, -np.inf)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        heads = (p / p.sum(-1, keepdims=True)) @ v
        x = x + heads.swapaxes(0, 1).reshape(CONTEXT, WIDTH) @ w[prefix + "self_attn.o_proj.weight"].T
        y = norm(x, prefix + "post_attention_layernorm")
        gate, up = y @ w[prefix + "mlp.gate_proj.weight"].T, y @ w[prefix + "mlp.up_proj.weight"].T
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[prefix + "mlp.down_proj.weight"].T
    logits = norm(x, "model.norm") @ w.get("lm_head.weight", w["model.embed_tokens.weight"]).T
    largest = logits.max(-1, keepdims=True)
    sums = np.log(np.exp(logits - largest).sum(-1)) + largest[:, 0]
    return float((sums - logits[np.arange(CONTEXT), targets]).mean())


def write(path: Path, tensors: Tensors, dtype: str) -> None:
    """With the safetensors library where it is installed; numpy has no bf16, so these files are always made by hand."""
    converted = {name: values.astype("<f2" if dtype == "F16" else "<f4") for name, values in tensors.items()}
    if dtype != "BF16":
        try:
            from safetensors.numpy import save_file
            return save_file(converted, path, {"format": "pt"})
        except ImportError:
            pass
    header, data = {"__metadata__": {"format": "pt"}}, b""
    for name, values in converted.items():
        more = ((values.view("<u4") >> 16).astype("<u2") if dtype == "BF16" else values).tobytes()
        header[name] = {"dtype": dtype, "shape": values.shape, "data_offsets": [len(data), len(data) + len(more)]}
        data += more
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def trained(folder: Path, weights: Path, *more: str) -> subprocess.CompletedProcess:
    (folder / "text").write_bytes(TEXT)
    return subprocess.run(
        [os.environ["FOVEA_PROGRAM"], "train", "--weights", weights, "--text", folder / "text", "-o",
         folder / weights.stem, "--layers", str(LAYERS), "--width", str(WIDTH), "--heads", str(HEADS), "--hidden",
         str(HIDDEN), "--context", str(CONTEXT), "--batch", "1", "--steps", "1", "--warm-up", "0", *more],
        capture_output=True, text=True)


def first_loss(folder: Path, weights: Path) -> float:
    ended = trained(folder, weights)
    assert ended.returncode == 0, ended.stderr
    return json.loads((folder / weights.stem / "losses.jsonl").read_text().splitlines()[1])["loss"]


def test_the_rotary_order_matters() -> None:
    """Otherwise the tests below would not notice rows of q and k in another order."""
    llama = llama_weights()
    other = {name: neighbours(values) if "q_proj" in name or "k_proj" in name else values
             for name, values in llama.items()}
    assert abs(llama_loss(other) - llama_loss(llama)) > 0.01


@pytest.mark.parametrize("dtype", ["F32", "BF16"])
@pytest.mark.parametrize("is_tied", [False, True])
def test_the_first_loss_is_that_of_llama(tmp_path: Path, dtype: str, is_tied: bool) -> None:
    llama = llama_weights()
    if is_tied:
        del llama["lm_head.weight"]
    llama_file, own_file = tmp_path / "llama.safetensors", tmp_path / "own.safetensors"
    buffer = {"model.layers.0.self_attn.rotary_emb.inv_freq": np.ones(WIDTH // HEADS // 2)}
    write(llama_file, llama | buffer, dtype)
    write(own_file, under_own_names(llama), "F32")
    loss = first_loss(tmp_path, llama_file)
    assert loss == pytest.approx(llama_loss(llama), rel=1e-5)
    assert loss == first_loss(tmp_path, own_file)


def test_fp16_is_read(tmp_path: Path) -> None:
    llama = {name: values.astype(np.float16).astype(np.float32) for name, values in llama_weights().items()}
    write(tmp_path / "half.safetensors", llama, "F16")
    write(tmp_path / "whole.safetensors", llama, "F32")
    assert first_loss(tmp_path, tmp_path / "half.safetensors") == first_loss(tmp_path, tmp_path / "whole.safetensors")


def refusal(folder: Path, tensors: Tensors, dtype: str = "F32") -> str:
    write(folder / "refused.safetensors", tensors, dtype)
    ended = trained(folder, folder / "refused.safetensors")
    assert ended.returncode == 2, ended.stderr
    assert not (folder / "refused").exists(), "nothing is begun"
    return " ".join(ended.stderr.split())


def test_a_head_for_each_group_is_refused(tmp_path: Path) -> None:
    llama = llama_weights()
    for name in ("model.layers.0.self_attn.k_proj.weight", "model.layers.0.self_attn.v_proj.weight"):
        llama[name] = llama[name][:WIDTH // HEADS]
    said = refusal(tmp_path, llama)
    assert "this model has no grouped key heads" in said
    assert "`model.layers.0.self_attn.k_proj.weight` [12, 24]" in said
    assert "[24, 24], as many key heads as query heads" in said


def test_sizes_are_told(tmp_path: Path) -> None:
    llama = llama_weights()
    llama["model.layers.2.input_layernorm.weight"] = np.ones(WIDTH)
    said = refusal(tmp_path, llama)
    assert "`model.layers.2.input_layernorm.weight`" in said
    assert "the file is of --layers 3 --width 24 --vocabulary 256 --hidden 20" in said


def test_a_weight_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    llama = llama_weights()
    llama["model.norm.weight"][3] = np.nan
    assert "NaN or infinity in `model.norm.weight`" in refusal(tmp_path, llama)
