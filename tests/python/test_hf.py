"""A small Llama, a Mistral and a Gemma of random weights with attn_implementation="fovea" beside "sdpa"."""

import inspect
import os
import subprocess
import sys

import pytest
import torch
from transformers import (CompileConfig, DynamicCache, Gemma3ForCausalLM, Gemma3TextConfig, LlamaConfig,
                          LlamaForCausalLM, MistralConfig, MistralForCausalLM, masking_utils)
from transformers.masking_utils import chunked_causal_mask_function, sdpa_mask, sliding_window_causal_mask_function

import fovea.hf
from torch_answers import DEVICES, assert_close

LENGTH = 40


def model(implementation, device="cpu", dtype=torch.float32, window=None, **more):
    torch.manual_seed(0)
    config = {"vocab_size": 100, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
              "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "pad_token_id": 0,
              "attn_implementation": implementation, **more}
    if window is None:
        return LlamaForCausalLM(LlamaConfig(**config)).to(device, dtype)
    return MistralForCausalLM(MistralConfig(**config, sliding_window=window)).to(device, dtype)


class Calls:
    """Counts of fovea.hf.calls() from now on."""

    def __init__(self):
        self._before = fovea.hf.calls()

    def since(self):
        counts = {name: count - self._before.get(name, 0) for name, count in fovea.hf.calls().items()}
        return {name: count for name, count in counts.items() if count}


def batch(padding):
    """Tokens and the mask of three sequences; two are padded, on the side that `padding` names."""
    tokens = torch.randint(1, 100, (3, LENGTH), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(tokens)
    if padding == "left":
        mask[1, :7] = mask[2, :20] = 0
    if padding == "right":
        mask[1, -7:] = mask[2, -20:] = 0
    return tokens, mask


def answers(one, tokens, mask):
    """Logits of real tokens, the loss, and the gradients of all weights."""
    labels = tokens.masked_fill(mask == 0, -100)
    result = one(input_ids=tokens, attention_mask=mask, labels=labels)
    result.loss.backward()
    return result.logits[mask == 1].detach(), result.loss.detach(), *(weight.grad for weight in one.parameters())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("window", [None, 8])
@pytest.mark.parametrize("padding", ["none", "left", "right"])
def test_logits_loss_and_gradients(device, dtype, window, padding):
    tokens, mask = (one.to(device) for one in batch(padding))
    calls = Calls()
    results = answers(model("fovea", device, dtype, window), tokens, mask)
    assert calls.since() == {"fovea" if padding == "none" else "sdpa: a mask that is not plainly causal": 2}
    plain = answers(model("sdpa", device, dtype, window), tokens, mask)
    exact = answers(model("sdpa", device, torch.float64, window), tokens, mask)
    assert_close(results, exact, plain, [2] * len(results))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("window", [None, 8])
def test_a_prompt_in_parts_with_a_cache(device, window):
    tokens = batch("none")[0].to(device)

    def logits(implementation, dtype=torch.float32):
        one, cache = model(implementation, device, dtype, window), DynamicCache(config=model(implementation).config)
        name = "cache" if "cache" in inspect.signature(one.forward).parameters else "past_key_values"
        with torch.no_grad():
            parts = [one(part, **{name: cache}).logits for part in tokens.split([3, 17, 1, 12, 7], 1)]
        return torch.cat(parts, 1)
    calls = Calls()
    result = logits("fovea")
    assert calls.since() == {"fovea": 10}
    assert_close([result], [logits("sdpa", torch.float64)], [logits("sdpa")], [2])


def test_other_types_go_to_sdpa():
    tokens, mask = batch("none")
    calls = Calls()
    results = answers(model("fovea", dtype=torch.float64), tokens, mask)
    assert calls.since() == {"sdpa: torch.float64": 2}
    assert all(torch.equal(*pair) for pair in zip(results, answers(model("sdpa", dtype=torch.float64), tokens, mask)))


@pytest.mark.parametrize("window", [None, 8])
def test_dropout_goes_to_sdpa(window):
    tokens, _ = batch("none")
    calls, results = Calls(), []
    for name in ("fovea", "sdpa"):
        one = model(name, window=window, attention_dropout=0.5).train()
        torch.manual_seed(1)
        results.append(one(tokens).logits)
    assert torch.equal(*results) and calls.since() == {"sdpa: dropout": 2}


def test_what_the_kernels_refuse_goes_to_sdpa():
    module, q = torch.nn.Module(), torch.randn(1, 2, 3, 5000)
    calls = Calls()
    out, _ = fovea.hf.attention_forward(module, q, q, q, None)
    assert calls.since() == {"sdpa: head dimension out of range": 1} and out.shape == (1, 3, 2, 5000)


SIZES = {"batch_size": 2, "q_length": 5, "kv_length": 9, "q_offset": 6, "kv_offset": 2}


@pytest.mark.parametrize("function", [None, sliding_window_causal_mask_function(4)], ids=["causal", "window"])
def test_a_mask_that_somebody_reads_is_that_of_sdpa(function):
    arguments = SIZES | ({} if function is None else {"mask_function": function, "local_size": 4})
    mask, wanted = fovea.hf.make_mask(**arguments), sdpa_mask(**arguments)
    assert mask.window == (None if function is None else 4) and mask.shape == wanted.shape
    assert torch.equal(mask[:, :, 1:], wanted[:, :, 1:]) and type(mask[:, :, 1:]) is torch.Tensor
    assert torch.equal(torch.where(mask, 0.0, -1.0), torch.where(wanted, 0.0, -1.0))


@pytest.mark.parametrize("change", [
    {"mask_function": chunked_causal_mask_function(4, torch.zeros(2, dtype=int)), "local_size": 4},
    {"mask_function": lambda batch, head, q, k: k <= q}, {"allow_is_causal_skip": False}, {"q_offset": 5},
    {"q_offset": torch.tensor(6)}, {"attention_mask": torch.arange(11)[None].expand(2, -1) > 3}], ids=str)
def test_other_masks_are_those_of_sdpa(change):
    mask = fovea.hf.make_mask(**SIZES | change)
    assert type(mask) is torch.Tensor and torch.equal(mask, sdpa_mask(**SIZES | change))


@pytest.mark.parametrize("name", ["softcap", "s_aux"])
def test_what_sdpa_would_ignore_is_refused(name):
    q = torch.ones(1, 2, 3, 8)
    with pytest.raises(fovea.Unsupported, match=f"{name}: got"):
        fovea.hf.attention_forward(torch.nn.Module(), q, q, q, None, **{name: torch.ones(2)})


def gemma(implementation):
    """Every second layer has a window, and so has its cache."""
    torch.manual_seed(0)
    sizes = {"vocab_size": 100, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "head_dim": 16,
             "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "pad_token_id": 0}
    return Gemma3ForCausalLM(Gemma3TextConfig(**sizes, sliding_window=8, attn_implementation=implementation,
                                              layer_types=["sliding_attention", "full_attention"]))


MODELS = {"llama": model, "mistral": lambda name: model(name, window=8), "gemma": gemma}
TO_SDPA = "sdpa: a mask that is not plainly causal"


@pytest.mark.parametrize("padding", ["none", "left"])
@pytest.mark.parametrize("more", [{}, {"prefill_chunk_size": 16}, {"cache_implementation": "static"}, {"num_beams": 3},
                                  {"cache_implementation": "static", "prefill_chunk_size": 16}], ids=str)
@pytest.mark.parametrize("kind", MODELS)
def test_generation_with_a_cache(padding, more, kind):
    tokens, mask = batch(padding)
    calls = Calls()
    texts = [MODELS[kind](name).generate(tokens, attention_mask=mask, max_new_tokens=12, do_sample=False,
                                         disable_compile=True, **more) for name in ("fovea", "sdpa")]
    assert torch.equal(*texts)
    static = "cache_implementation" in more
    counts, passes = calls.since(), 14 if "prefill_chunk_size" in more else 12
    assert set(counts) <= {"fovea", TO_SDPA} and sum(counts.values()) == 2 * passes
    if padding == "none":
        # Of a static cache, each of the two layers has its first call here, or two with a window and a prompt in parts.
        assert (TO_SDPA in counts) == static and counts["fovea"] >= 2


def test_a_static_cache_whose_steps_are_compiled():
    tokens, mask = batch("left")
    texts = []
    for name in ("fovea", "sdpa"):
        torch._dynamo.reset()
        how = CompileConfig(backend="aot_eager", fullgraph=True, mode=None)
        how._compile_all_devices = True  # else on GPUs only
        texts.append(model(name).generate(tokens, attention_mask=mask, max_new_tokens=12, do_sample=False,
                                          cache_implementation="static", compile_config=how))
    assert torch.equal(*texts)


COMPILED = """
import torch, test_hf
from torch._dynamo.testing import CompileCounterWithBackend
tokens, mask = test_hf.batch("none")
for given in (None, mask):
    torch._dynamo.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(test_hf.model("fovea"), backend=counter, fullgraph=True)
    for _ in range(3):
        compiled(tokens, attention_mask=given)
    print(counter.frame_count, test_hf.fovea.hf.calls())
"""


def test_a_model_is_compiled_once():
    ended = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True, check=False, timeout=300,
                           env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
    # Earlier versions of transformers always pass a mask to a compiled model.
    first = "fovea" if hasattr(masking_utils, "is_torchdynamo_exporting") else TO_SDPA
    counts = [{first: 6}, {first: 6, TO_SDPA: 6} if first == "fovea" else {first: 12}]
    if tuple(map(int, torch.__version__.split(".")[:2])) < (2, 15):  # compiled calls are not counted
        counts = [{}, {}]
    assert ended.stdout == "".join(f"1 {count}\n" for count in counts), ended.stderr
