"""Models of the transformers library with attention written out come to call torch's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import eqsat
from eqsat.settings import ALWAYS

transformers = pytest.importorskip("transformers")

LAYERS = 2
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "vocab_size": 100,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
GROUPED = {**SIZES, "num_key_value_heads": 2, "head_dim": 8, "use_cache": False}
PICTURE = {**SIZES, "image_size": 32, "patch_size": 8}
GPT2 = {"n_embd": 32, "n_layer": LAYERS, "n_head": 4, "vocab_size": 100, "n_positions": 64}
T5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": LAYERS, "num_heads": 4}
BLOOM = {"hidden_size": 32, "n_layer": LAYERS, "n_head": 4, "vocab_size": 100}
OPT = {**SIZES, "ffn_dim": 64, "word_embed_proj_dim": 32, "use_cache": False}
WHISPER = {
    "d_model": 32,
    "encoder_layers": LAYERS,
    "encoder_attention_heads": 4,
    "vocab_size": 100,
    "encoder_ffn_dim": 64,
    "num_mel_bins": 8,
    "max_source_positions": 16,
    "pad_token_id": 0,
}
NO_CACHE = {**SIZES, "use_cache": False}

TOKENS = torch.randint(5, 90, (2, 12), generator=torch.Generator().manual_seed(0))
SEEN = torch.ones(2, 12, dtype=torch.long)
SEEN[1, :3] = 0
IMAGE = torch.linspace(-1, 1, 3 * 32 * 32).reshape(1, 3, 32, 32)
SOUND = torch.linspace(-1, 1, 8 * 32).reshape(1, 8, 32)

MODELS: dict[str, tuple[str, dict[str, Any], tuple[Tensor, ...]]] = {
    "bert": ("Bert", SIZES, (TOKENS, SEEN)),
    "gpt2": ("GPT2", {**GPT2, "use_cache": False}, (TOKENS, SEEN)),
    "llama": ("Llama", GROUPED, (TOKENS, SEEN)),
    "qwen2": ("Qwen2", GROUPED, (TOKENS, SEEN)),
    "gemma": ("Gemma", GROUPED, (TOKENS, SEEN)),
    "t5": ("T5Encoder", {**T5, "vocab_size": 100}, (TOKENS, SEEN)),
    "vit": ("ViT", PICTURE, (IMAGE,)),
    "clip vision": ("CLIPVision", PICTURE, (IMAGE,)),
    "clip text": ("CLIPText", SIZES, (TOKENS, SEEN)),
    "opt": ("OPT", OPT, (TOKENS, SEEN)),
    "neox": ("GPTNeoX", NO_CACHE, (TOKENS, SEEN)),
    "falcon": ("Falcon", NO_CACHE, (TOKENS, SEEN)),
    "falcon with alibi": ("Falcon", {**NO_CACHE, "alibi": True}, (TOKENS, SEEN)),
    "bloom": ("Bloom", {**BLOOM, "use_cache": False}, (TOKENS, SEEN)),
}
CONFIGS = {"T5Encoder": "T5Config"}


class First(nn.Module):
    """The first result of a model that is given a mask by name."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, seen: Tensor | None = None) -> Tensor:
        return self.model(x, **({} if seen is None else {"attention_mask": seen}))[0]


def check(model: nn.Module, inputs: tuple[Tensor, ...], numerics: str) -> dict[str, int]:
    """How often the optimized model, which equals the given one, calls which operator."""
    module = First(model).eval()
    with torch.no_grad():
        result = eqsat.optimize(module, inputs, numerics=numerics, margin=ALWAYS)
        torch.testing.assert_close(result.module(*inputs), module(*inputs), rtol=1e-3, atol=1e-4)
    return {name.split(".")[1]: n for name, n in result.report.operators_after.items()}


def built(name: str, sizes: dict[str, Any]) -> nn.Module:
    """A model with random weights, always the same."""
    torch.manual_seed(0)
    config = getattr(transformers, CONFIGS.get(name, f"{name}Config"))
    model: Callable[..., nn.Module] = getattr(transformers, f"{name}Model")
    return model(config(**sizes, attn_implementation="eager"))


@pytest.mark.parametrize(("name", "sizes", "inputs"), MODELS.values(), ids=MODELS.keys())
def test_every_layer_calls_attention(
    name: str, sizes: dict[str, Any], inputs: tuple[Tensor, ...]
) -> None:
    calls = check(built(name, sizes), inputs, "default")
    assert calls["scaled_dot_product_attention"] == LAYERS
    assert "softmax" not in calls


def test_an_encoder_of_sound_calls_attention() -> None:
    torch.manual_seed(0)
    encoder = transformers.models.whisper.modeling_whisper.WhisperEncoder
    model = encoder(transformers.WhisperConfig(**WHISPER, attn_implementation="eager"))
    calls = check(model, (SOUND,), "default")
    assert calls["scaled_dot_product_attention"] == LAYERS


def test_scores_that_are_filled_need_relaxed_numerics() -> None:
    model = built("DebertaV2", SIZES)
    assert check(model, (TOKENS, SEEN), "relaxed")["scaled_dot_product_attention"] == LAYERS
    assert check(model, (TOKENS, SEEN), "default")["softmax"] == LAYERS


def test_capped_scores_are_no_attention() -> None:
    calls = check(built("Gemma2", GROUPED), (TOKENS, SEEN), "relaxed")
    assert calls["softmax"] == LAYERS
