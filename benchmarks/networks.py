"""The models whose kernels are known: small, of real architectures, random weights, no download."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812 - its usual name
from torch.utils import _pytree as pytree

os.environ.setdefault("HF_HUB_OFFLINE", "1")

TOKENS = {"vocab_size": 512, "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4}
"""The size of most language models here: two layers of width 256."""


class Program(NamedTuple):
    """A module in evaluation mode that returns a tuple of tensors, and its inputs."""

    module: nn.Module
    inputs: tuple[Tensor, ...]


class Outputs(nn.Module):
    """A model that returns its tensors alone, whatever it nests them in."""

    def __init__(self, model: nn.Module, options: Mapping[str, Any]) -> None:
        super().__init__()
        self.model, self.options = model, dict(options)

    def forward(self, *inputs: Tensor) -> tuple[Tensor, ...]:
        leaves = pytree.tree_leaves(self.model(*inputs, **self.options))
        return tuple(leaf for leaf in leaves if isinstance(leaf, Tensor))


def build(name: str, dtype: torch.dtype = torch.bfloat16) -> Program:
    """Returns the model of this name in `dtype`; its weights and inputs are always the same.

    Raises ValueError for a name that is not in `MODELS`.
    """
    if name not in MODELS:
        raise ValueError(f"there is no model {name!r}; there are {', '.join(MODELS)}")
    torch.manual_seed(0)
    model, inputs = MODELS[name]()
    options = {"use_cache": False} if name in WITHOUT_CACHE else {}
    module = Outputs(model, options).eval().requires_grad_(False).to(dtype)
    return Program(module, tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs))


Model = tuple[nn.Module, tuple[Tensor, ...]]


def _ids(batch: int, tokens: int) -> tuple[Tensor]:
    return (torch.randint(0, 512, (batch, tokens)),)


def _image(batch: int, size: int) -> tuple[Tensor]:
    return (torch.randn(batch, 3, size, size),)


def _transformer(
    model: str,
    config: str,
    inputs: Callable[[], tuple[Tensor, ...]],
    sizes: Mapping[str, Any],
    **more: Any,
) -> Callable[[], Model]:
    """A maker of a model of transformers by the names of its classes."""

    def make() -> Model:
        import transformers

        settings = getattr(transformers, config)(**{**sizes, **more})
        settings.return_dict = True
        return getattr(transformers, model)(settings), inputs()

    return make


def _encoder(
    model: str, config: str, inputs: Callable[[], tuple[Tensor, ...]], **sizes: Any
) -> Callable[[], Model]:
    """The encoder of a model that has a decoder too."""
    make = _transformer(model, config, inputs, sizes)

    def encoder() -> Model:
        whole, example = make()
        return whole.get_submodule("encoder"), example

    return encoder


def _bert(attention: str) -> Callable[[], Model]:
    return _transformer(
        "BertModel",
        "BertConfig",
        lambda: _ids(2, 128),
        TOKENS,
        intermediate_size=1024,
        max_position_embeddings=256,
        attn_implementation=attention,
    )


def _gpt2(attention: str) -> Callable[[], Model]:
    return _transformer(
        "GPT2LMHeadModel",
        "GPT2Config",
        lambda: _ids(2, 128),
        {"vocab_size": 512, "n_embd": 256, "n_layer": 2, "n_head": 4, "n_positions": 256},
        attn_implementation=attention,
    )


def _llama(family: str, attention: str) -> Callable[[], Model]:
    return _transformer(
        f"{family}ForCausalLM",
        f"{family}Config",
        lambda: _ids(2, 128),
        TOKENS,
        num_key_value_heads=2,
        intermediate_size=688,
        attn_implementation=attention,
    )


def _resnet(widths: list[int], layer: str) -> Callable[[], Model]:
    return _transformer(
        "ResNetForImageClassification",
        "ResNetConfig",
        lambda: _image(2, 64),
        {"embedding_size": 32, "hidden_sizes": widths, "depths": [2, 2, 2, 2]},
        layer_type=layer,
    )


class UNet(nn.Module):
    """Two levels of convolutions with GroupNorm, down by pooling and up by repetition."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.down1, self.down2 = _block(3, width), _block(width, 2 * width)
        self.middle = _block(2 * width, 4 * width)
        self.up2, self.up1 = _block(6 * width, 2 * width), _block(3 * width, width)
        self.out = nn.Conv2d(width, 3, 1)

    def forward(self, x: Tensor) -> Tensor:
        fine = self.down1(x)
        coarse = self.down2(F.avg_pool2d(fine, 2))
        x = self.middle(F.max_pool2d(coarse, 2))
        x = self.up2(torch.cat([F.interpolate(x, scale_factor=2.0), coarse], 1))
        return self.out(self.up1(torch.cat([F.interpolate(x, scale_factor=2.0), fine], 1)))


def _block(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU()
    )


class DLRM(nn.Module):
    """A recommender: embeddings, their pairwise products, and two perceptrons."""

    def __init__(self, tables: int = 6, width: int = 32) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(1000, width) for _ in range(tables))
        pairs = tables * (tables + 1) // 2
        self.bottom, self.top = _perceptron(13, 64, width), _perceptron(width + pairs, 64, 1)

    def forward(self, dense: Tensor, sparse: Tensor) -> Tensor:
        rows = [table(sparse[:, i]) for i, table in enumerate(self.tables)]
        x = torch.stack([self.bottom(dense), *rows], 1)
        products = torch.bmm(x, x.transpose(1, 2))
        i, j = torch.tril_indices(len(rows) + 1, len(rows) + 1, -1)
        return torch.sigmoid(self.top(torch.cat([x[:, 0], products[:, i, j]], 1)))


def _perceptron(*widths: int) -> nn.Module:
    layers = [(nn.Linear(i, o), nn.ReLU()) for i, o in pairwise(widths)]
    return nn.Sequential(*[part for layer in layers for part in layer])


class Mixer(nn.Module):
    """Perceptrons along the tokens and along the channels, in turn."""

    def __init__(self, layers: int = 2, tokens: int = 49, width: int = 96) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.along_tokens = nn.ModuleList(_mixing(tokens, 64) for _ in range(layers))
        self.along_channels = nn.ModuleList(_mixing(width, 256) for _ in range(layers))
        self.norms1 = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.norms2 = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        layers = zip(self.along_tokens, self.along_channels, self.norms1, self.norms2, strict=True)
        for tokens, channels, norm1, norm2 in layers:
            x = x + tokens(norm1(x).transpose(1, 2)).transpose(1, 2)
            x = x + channels(norm2(x))
        return x.mean(1)


def _mixing(width: int, hidden: int) -> nn.Module:
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))


BASE: Mapping[str, Callable[[], Model]] = {
    "bert": _bert("sdpa"),
    "bert_eager": _bert("eager"),
    "gpt2": _gpt2("sdpa"),
    "gpt2_eager": _gpt2("eager"),
    "llama": _llama("Llama", "sdpa"),
    "llama_eager": _llama("Llama", "eager"),
    "qwen2": _llama("Qwen2", "sdpa"),
    "vit": _transformer(
        "ViTModel",
        "ViTConfig",
        lambda: _image(2, 224),
        {"hidden_size": 192, "num_hidden_layers": 2, "num_attention_heads": 3},
        intermediate_size=768,
        image_size=224,
        patch_size=16,
    ),
    "resnet_basic": _resnet([32, 64, 128, 256], "basic"),
    "resnet_bottleneck": _resnet([64, 128, 256, 512], "bottleneck"),
    "convnext": _transformer(
        "ConvNextForImageClassification",
        "ConvNextConfig",
        lambda: _image(2, 64),
        {"hidden_sizes": [32, 64, 96, 128], "depths": [2, 2, 3, 2]},
    ),
    "t5_enc": _transformer(
        "T5EncoderModel",
        "T5Config",
        lambda: _ids(2, 64),
        {"vocab_size": 512, "d_model": 256, "d_kv": 64, "d_ff": 1024, "num_layers": 2},
        num_heads=4,
        feed_forward_proj="gated-gelu",
        use_cache=False,
    ),
    "distilbert": _transformer(
        "DistilBertModel",
        "DistilBertConfig",
        lambda: _ids(2, 128),
        {"vocab_size": 512, "dim": 256, "n_layers": 2, "n_heads": 4, "hidden_dim": 1024},
        max_position_embeddings=256,
    ),
    "mobilenetv2": _transformer(
        "MobileNetV2ForImageClassification",
        "MobileNetV2Config",
        lambda: _image(2, 64),
        {"image_size": 64, "depth_multiplier": 0.5},
    ),
    "swin": _transformer(
        "SwinModel",
        "SwinConfig",
        lambda: _image(1, 112),
        {"image_size": 112, "embed_dim": 48, "depths": [2, 2], "num_heads": [3, 6]},
        window_size=7,
    ),
    "clip_text": _transformer(
        "CLIPTextModel",
        "CLIPTextConfig",
        lambda: _ids(2, 64),
        TOKENS,
        intermediate_size=1024,
        max_position_embeddings=77,
    ),
}
HELD_OUT: Mapping[str, Callable[[], Model]] = {
    "opt": _transformer(
        "OPTModel",
        "OPTConfig",
        lambda: _ids(2, 128),
        TOKENS,
        ffn_dim=1024,
        max_position_embeddings=256,
        word_embed_proj_dim=256,
    ),
    "gpt_neox": _transformer(
        "GPTNeoXModel",
        "GPTNeoXConfig",
        lambda: _ids(2, 128),
        TOKENS,
        intermediate_size=1024,
        max_position_embeddings=256,
    ),
    "albert": _transformer(
        "AlbertModel",
        "AlbertConfig",
        lambda: _ids(2, 128),
        TOKENS,
        embedding_size=64,
        intermediate_size=1024,
        max_position_embeddings=256,
    ),
    "gemma": _transformer(
        "GemmaForCausalLM",
        "GemmaConfig",
        lambda: _ids(2, 128),
        TOKENS,
        intermediate_size=512,
        num_key_value_heads=1,
        head_dim=64,
    ),
    "dinov2": _transformer(
        "Dinov2Model",
        "Dinov2Config",
        lambda: _image(2, 112),
        {"hidden_size": 192, "num_hidden_layers": 2, "num_attention_heads": 3},
        image_size=112,
        patch_size=14,
    ),
    "regnet": _transformer(
        "RegNetModel",
        "RegNetConfig",
        lambda: _image(2, 64),
        {"embedding_size": 32, "hidden_sizes": [32, 64, 96, 128], "depths": [1, 1, 2, 1]},
        groups_width=16,
    ),
    "segformer": _transformer(
        "SegformerModel",
        "SegformerConfig",
        lambda: _image(1, 64),
        {"hidden_sizes": [16, 32, 64, 96], "depths": [1, 1, 1, 1]},
    ),
    "efficientnet": _transformer(
        "EfficientNetModel",
        "EfficientNetConfig",
        lambda: _image(1, 64),
        {"image_size": 64, "width_coefficient": 0.5, "depth_coefficient": 0.4, "hidden_dim": 640},
    ),
    "whisper_enc": _encoder(
        "WhisperModel",
        "WhisperConfig",
        lambda: (torch.randn(1, 80, 200),),
        vocab_size=512,
        d_model=128,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=512,
        decoder_ffn_dim=512,
        max_source_positions=100,
        max_target_positions=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    ),
    "electra": _transformer(
        "ElectraModel",
        "ElectraConfig",
        lambda: _ids(2, 128),
        TOKENS,
        embedding_size=128,
        intermediate_size=1024,
        max_position_embeddings=256,
    ),
}

ODD: Mapping[str, Callable[[], Model]] = {
    "unet": lambda: (UNet(), (torch.randn(1, 3, 64, 64),)),
    "dlrm": lambda: (DLRM(), (torch.randn(64, 13), torch.randint(0, 1000, (64, 6)))),
    "mixer": lambda: (Mixer(), (torch.randn(2, 3, 112, 112),)),
    "poolformer": _transformer(
        "PoolFormerModel",
        "PoolFormerConfig",
        lambda: _image(1, 64),
        {"hidden_sizes": [16, 32, 64, 96], "depths": [1, 1, 1, 1]},
    ),
    "bart_enc": _encoder(
        "BartModel",
        "BartConfig",
        lambda: _ids(2, 64),
        vocab_size=512,
        d_model=128,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=512,
        decoder_ffn_dim=512,
        max_position_embeddings=128,
    ),
    "phi": _transformer(
        "PhiForCausalLM",
        "PhiConfig",
        lambda: _ids(2, 128),
        TOKENS,
        intermediate_size=1024,
        max_position_embeddings=256,
    ),
}

SETS = MappingProxyType({"base": BASE, "held-out": HELD_OUT, "odd": ODD})
"""The models by the set they belong to: rules of the partition were written on the first only."""
MODELS = MappingProxyType({**BASE, **HELD_OUT, **ODD})
WITHOUT_CACHE = frozenset(
    {"gpt2", "gpt2_eager", "llama", "llama_eager", "qwen2", "opt", "gpt_neox", "gemma", "phi"}
)
