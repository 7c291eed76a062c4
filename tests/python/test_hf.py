"""A small Llama of random weights with attn_implementation="fovea" beside "sdpa"."""

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import fovea.hf
from torch_answers import DEVICES, assert_close

LENGTH = 40


def model(implementation, device="cpu", dtype=torch.float32):
    torch.manual_seed(0)
    config = LlamaConfig(vocab_size=100, hidden_size=64, intermediate_size=128, num_hidden_layers=2,
                         num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128, pad_token_id=0,
                         attn_implementation=implementation)
    return LlamaForCausalLM(config).to(device, dtype)


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
@pytest.mark.parametrize("padding", ["none", "left", "right"])
def test_logits_loss_and_gradients(device, dtype, padding):
    tokens, mask = (one.to(device) for one in batch(padding))
    before = fovea.hf.calls()
    results = answers(model("fovea", device, dtype), tokens, mask)
    after = fovea.hf.calls()
    used = "fovea" if padding == "none" else "sdpa: a mask that is not plainly causal"
    assert after.get(used, 0) - before.get(used, 0) == 2 == sum(after.values()) - sum(before.values())
    plain = answers(model("sdpa", device, dtype), tokens, mask)
    exact = answers(model("sdpa", device, torch.float64), tokens, mask)
    assert_close(results, exact, plain, [2] * len(results))


@pytest.mark.parametrize("name", ["softcap", "s_aux"])
def test_what_sdpa_would_ignore_is_refused(name):
    q = torch.ones(1, 2, 3, 8)
    with pytest.raises(fovea.Unsupported, match=f"{name}: got"):
        fovea.hf.attention_forward(torch.nn.Module(), q, q, q, None, **{name: torch.ones(2)})


@pytest.mark.parametrize("padding", ["none", "left"])
def test_generation_with_a_cache(padding):
    tokens, mask = batch(padding)
    texts = [model(name).generate(tokens, attention_mask=mask, max_new_tokens=12, do_sample=False)
             for name in ("fovea", "sdpa")]
    assert torch.equal(*texts)
