"""fovea.torch_layers with state dicts of attention modules of Hugging Face transformers."""

import copy

import pytest
import torch
from transformers import DeepseekV3Config, LlamaConfig, Qwen3Config
from transformers.models.deepseek_v3 import modeling_deepseek_v3 as deepseek
from transformers.models.llama import modeling_llama as llama
from transformers.models.qwen3 import modeling_qwen3 as qwen

from fovea.torch_layers import GroupedQueryAttention, MultiHeadLatentAttention, Rotary
from torch_answers import assert_close

WIDTH, LENGTH = 64, 30
SIZES = {"hidden_size": WIDTH, "num_attention_heads": 4, "attn_implementation": "sdpa"}


def deepseek_layers():
    config = DeepseekV3Config(**SIZES, num_key_value_heads=4, q_lora_rank=40, kv_lora_rank=24, qk_nope_head_dim=16,
                              qk_rope_head_dim=8, v_head_dim=12)
    layer = MultiHeadLatentAttention(WIDTH, 4, 40, 24, columns=24, columns_v=12, shared=8, causal=True,
                                     rotary=Rotary(pairs="interleaved"))
    return deepseek.DeepseekV3Attention(config, 0), deepseek.DeepseekV3RotaryEmbedding(config), layer


def llama_layers():
    config = LlamaConfig(**SIZES, num_key_value_heads=2)
    layer = GroupedQueryAttention(WIDTH, 4, 2, causal=True, rotary=Rotary())
    return llama.LlamaAttention(config, 0), llama.LlamaRotaryEmbedding(config), layer


def qwen_layers():
    config = Qwen3Config(**SIZES, num_key_value_heads=2, head_dim=24)
    layer = GroupedQueryAttention(WIDTH, 4, 2, columns=24, causal=True, norm=True, rotary=Rotary())
    return qwen.Qwen3Attention(config, 0), qwen.Qwen3RotaryEmbedding(config), layer


@pytest.mark.parametrize("layers", [deepseek_layers, llama_layers, qwen_layers])
def test_the_same_weights_give_the_same_answers(layers):
    torch.manual_seed(0)
    theirs, rotary, layer = layers()
    layer.load_state_dict(theirs.state_dict())
    x, dy = torch.randn(2, 2, LENGTH, WIDTH)

    def their_answers(dtype):
        module, rows = copy.deepcopy(theirs).to(dtype), x.to(dtype).requires_grad_()
        angles = rotary(rows, torch.arange(LENGTH)[None])
        y = module(rows, position_embeddings=angles, attention_mask=None)[0]
        return y.detach(), *torch.autograd.grad(y, rows, dy.to(dtype))
    rows = x.clone().requires_grad_()
    y = layer(rows)
    results = y.detach(), *torch.autograd.grad(y, rows, dy)
    assert_close(results, their_answers(torch.float64), their_answers(torch.float32), (2, 3))
