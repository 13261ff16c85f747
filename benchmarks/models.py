"""Programs to measure on: real architectures, random weights, fixed seeds, no download."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


class Program(NamedTuple):
    """A module in evaluation mode and one set of inputs for it."""

    module: nn.Module
    args: tuple[Tensor, ...]
    kwargs: dict[str, Tensor]


class Logits(nn.Module):
    """A transformers model that returns its logits alone, or those of the last position."""

    def __init__(self, model: nn.Module, *, last: bool = False, **fixed: Any) -> None:
        super().__init__()
        self.model, self.last, self.fixed = model, last, fixed

    def forward(self, inputs: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        masked = {} if attention_mask is None else {"attention_mask": attention_mask}
        logits = self.model(inputs, **masked, **self.fixed, return_dict=False)[0]
        return logits[:, -1] if self.last else logits


def bert_classifier(
    layers: int = 4,
    hidden: int = 128,
    heads: int = 4,
    intermediate: int | None = None,
    batch: int = 2,
    tokens: int = 32,
    vocabulary: int = 512,
    attention: str = "eager",
    seed: int = 0,
) -> Program:
    """A BERT sequence classifier whose batch is padded: its mask is the second argument."""
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(seed)
    config = configured(
        BertConfig,
        vocab_size=vocabulary,
        hidden_size=hidden,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=intermediate or 4 * hidden,
        max_position_embeddings=max(tokens, 64),
        num_labels=3,
        attn_implementation=attention,
    )
    lengths = torch.randint(tokens // 2, tokens + 1, (batch, 1))
    mask = (torch.arange(tokens) < lengths).long()
    ids = torch.randint(0, vocabulary, (batch, tokens))
    return ready(Logits(BertForSequenceClassification(config)), (ids, mask))


def bert_base(batch: int = 2, tokens: int = 64, attention: str = "eager") -> Program:
    """BERT-base, 12 layers of width 768, as a classifier over a padded batch."""
    return bert_classifier(12, 768, 12, 3072, batch, tokens, 30522, attention)


def gpt2(
    layers: int = 12,
    hidden: int = 768,
    heads: int = 12,
    batch: int = 1,
    tokens: int = 64,
    vocabulary: int = 50257,
    last: bool = True,
    attention: str = "eager",
    seed: int = 0,
) -> Program:
    """GPT-2 as a scorer of the next token: logits of the last position, or all (`last=False`)."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(seed)
    config = configured(
        GPT2Config,
        vocab_size=vocabulary,
        n_embd=hidden,
        n_layer=layers,
        n_head=heads,
        n_positions=max(tokens, 64),
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
        attn_implementation=attention,
    )
    ids = torch.randint(0, vocabulary, (batch, tokens))
    return ready(Logits(GPT2LMHeadModel(config), last=last, use_cache=False), (ids,))


def llama(
    layers: int = 16,
    hidden: int = 256,
    heads: int = 8,
    key_value_heads: int = 4,
    batch: int = 1,
    tokens: int = 64,
    vocabulary: int = 4096,
    last: bool = False,
    attention: str = "eager",
    seed: int = 0,
) -> Program:
    """A Llama decoder with grouped key and value heads; `hidden` from 256 to 1024 and beyond."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = configured(
        LlamaConfig,
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=8 * hidden // 3 // 16 * 16,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_value_heads,
        max_position_embeddings=max(tokens, 64),
        use_cache=False,
        attn_implementation=attention,
    )
    ids = torch.randint(0, vocabulary, (batch, tokens))
    return ready(Logits(LlamaForCausalLM(config), last=last, use_cache=False), (ids,))


def resnet50(
    batch: int = 1,
    image: int = 224,
    widths: tuple[int, ...] = (256, 512, 1024, 2048),
    depths: tuple[int, ...] = (3, 4, 6, 3),
    seed: int = 0,
) -> Program:
    """ResNet-50 for image classification, with batch-norm statistics that are not the identity."""
    from transformers import ResNetConfig, ResNetForImageClassification

    torch.manual_seed(seed)
    config = configured(
        ResNetConfig, hidden_sizes=list(widths), depths=list(depths), num_labels=1000
    )
    pixels = torch.randn(batch, 3, image, image)
    return ready(Logits(ResNetForImageClassification(config)), (pixels,))


BUILDERS: dict[str, Callable[..., Program]] = {
    "bert": bert_classifier,
    "bert-base-12": bert_base,
    "gpt2-12": gpt2,
    "llama-16": llama,
    "resnet-50": resnet50,
}


def configured(kind: Callable[..., Any], **options: Any) -> Any:
    """The configuration; its class declares only some of the options that it takes."""
    return kind(**options)


def ready(module: nn.Module, args: tuple[Tensor, ...]) -> Program:
    """The program, evaluating, without gradients, its trivial initial values (0, 1) disturbed."""
    for part in module.modules():
        for tensor in part.parameters(recurse=False):
            tensor.requires_grad_(False)
            if tensor.ndim == 1:
                tensor.add_(0.05 * torch.randn_like(tensor))
        if isinstance(part, nn.BatchNorm2d):
            assert part.running_mean is not None and part.running_var is not None
            part.running_mean.normal_(0.0, 0.1)
            part.running_var.uniform_(0.5, 1.5)
    return Program(module.eval(), args, {})
