"""Set A, language and speech: transformers as they are deployed."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.fx import Graph

from benchmarks.models import (
    Program,
    bert_classifier,
    configured,
    gpt2,
    llama,
    ready,
)
from benchmarks.zoo.entry import Sizes, entry
from benchmarks.zoo.expect import attentions, products, rows, shape, weighted_norms


class LowRank(nn.Module):
    """A linear map with an adapter that was not merged into it."""

    def __init__(self, base: nn.Linear, rank: int, scale: float) -> None:
        super().__init__()
        self.base, self.scale = base, scale
        self.down = nn.Linear(base.in_features, rank, bias=False)
        self.up = nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + self.up(self.down(x)) * self.scale


class Hidden(nn.Module):
    """An encoder that returns its last hidden states alone."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor) -> Tensor:
        return self.encoder(x, return_dict=False)[0]


def _bert(s: Sizes) -> Program:
    return bert_classifier(
        s["layers"], s["hidden"], s["heads"], None, s["batch"], s["tokens"], s["vocabulary"]
    )


def _gpt2(s: Sizes) -> Program:
    return gpt2(s["layers"], s["hidden"], s["heads"], s["batch"], s["tokens"], s["vocabulary"])


def _llama_lora(s: Sizes) -> Program:
    program = llama(
        s["layers"],
        s["hidden"],
        s["heads"],
        s["key_value_heads"],
        s["batch"],
        s["tokens"],
        s["vocabulary"],
    )
    for layer in program.module.get_submodule("model.model.layers").children():
        attention: Any = layer.get_submodule("self_attn")
        for name in ("q_proj", "v_proj"):
            setattr(attention, name, LowRank(getattr(attention, name), s["rank"], 0.5))
    return Program(program.module.requires_grad_(False), program.args, program.kwargs)


def _t5(s: Sizes) -> Program:
    from transformers import T5Config, T5EncoderModel

    config = configured(
        T5Config,
        vocab_size=s["vocabulary"],
        d_model=s["hidden"],
        d_kv=s["hidden"] // s["heads"],
        d_ff=s["intermediate"],
        num_layers=s["layers"],
        num_heads=s["heads"],
        use_cache=False,
        attn_implementation="eager",
    )
    ids = torch.randint(0, s["vocabulary"], (s["batch"], s["tokens"]))
    return ready(Hidden(T5EncoderModel(config)), (ids,))


def _whisper(s: Sizes) -> Program:
    from transformers import WhisperConfig, WhisperModel

    config = configured(
        WhisperConfig,
        vocab_size=64,
        d_model=s["hidden"],
        encoder_layers=s["layers"],
        decoder_layers=1,
        encoder_attention_heads=s["heads"],
        decoder_attention_heads=s["heads"],
        encoder_ffn_dim=4 * s["hidden"],
        decoder_ffn_dim=4 * s["hidden"],
        max_source_positions=s["frames"] // 2,
        max_target_positions=32,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        attn_implementation="eager",
    )
    encoder = WhisperModel(config).get_submodule("encoder")
    return ready(Hidden(encoder), (torch.randn(s["batch"], 80, s["frames"]),))


def _tokens(s: Sizes) -> tuple[int, ...]:
    return s["batch"], s["tokens"]


def _merged(graph: Graph, s: Sizes) -> bool:
    """Queries, keys and values are one product, in the last layer perhaps only keys and values."""
    return len(rows(graph, 3 * s["hidden"], s["hidden"])) >= s["layers"] - 1


def _last_attention_is_of(queries: int) -> Any:
    def check(graph: Graph, s: Sizes) -> bool:
        found = attentions(graph)
        return len(found) == s["layers"] and shape(found[-1].args[0])[-2] == queries

    return check


def _last_perceptron(graph: Graph, s: Sizes) -> bool:
    found = rows(graph, 4 * s["hidden"], s["hidden"])
    return len(found) == s["layers"] and found[0] == s["batch"]


def _logits(graph: Graph, s: Sizes) -> bool:
    return rows(graph, s["vocabulary"]) == [s["batch"]]


def _attends(graph: Graph, s: Sizes) -> bool:
    return len(attentions(graph)) == s["layers"]


def _without_adapters(graph: Graph, s: Sizes) -> bool:
    return not any(s["rank"] in (p.inner, p.width) for p in products(graph))


def _grouped_merged(graph: Graph, s: Sizes) -> bool:
    width = s["hidden"] + 2 * s["hidden"] // s["heads"] * s["key_value_heads"]
    return len(rows(graph, width, s["hidden"])) >= s["layers"]


def _gates_merged(graph: Graph, s: Sizes) -> bool:
    inner = 8 * s["hidden"] // 3 // 16 * 16
    return len(rows(graph, 2 * inner, s["hidden"])) >= s["layers"]


def _norms_unweighted(graph: Graph, s: Sizes) -> bool:
    return not weighted_norms(graph, s["hidden"])


def _biased_attention(graph: Graph, s: Sizes) -> bool:
    found = attentions(graph)
    scaled = [n.kwargs.get("scale") for n in found]
    biased = [len(n.args) > 3 or "attn_mask" in n.kwargs for n in found]
    return scaled == [1.0] * s["layers"] and all(biased)


ENTRIES = (
    entry(
        "bert-cls",
        "A",
        "BERT as a classifier of a padded batch, attention in its parts",
        _bert,
        full={"layers": 12, "hidden": 768, "heads": 12, "batch": 8, "tokens": 128}
        | {"vocabulary": 30522},
        small={"layers": 3, "hidden": 256, "heads": 4, "batch": 2, "tokens": 64, "vocabulary": 512},
        shape=_tokens,
        expected={
            "the feed-forward of the last layer runs for the first token only": _last_perceptron,
            "the last attention asks for the first token only": _last_attention_is_of(1),
            "queries, keys and values are one product": _merged,
            "attention is one operator, with the mask as it is spelled": _attends,
        },
        dtype=torch.float16,
    ),
    entry(
        "gpt2-last",
        "A",
        "GPT-2 as a scorer of the next token: logits of the last position",
        _gpt2,
        full={"layers": 12, "hidden": 768, "heads": 12, "batch": 8, "tokens": 512}
        | {"vocabulary": 50257},
        small={
            "layers": 3,
            "hidden": 256,
            "heads": 4,
            "batch": 2,
            "tokens": 64,
            "vocabulary": 4096,
        },
        shape=_tokens,
        expected={
            "the product with the vocabulary is of the last token only": _logits,
            "the feed-forward of the last layer runs for the last token only": _last_perceptron,
            "the last attention asks for the last token only": _last_attention_is_of(1),
            "attention is one operator": _attends,
        },
        dtype=torch.bfloat16,
    ),
    entry(
        "llama-lora",
        "A",
        "four layers of Llama with adapters of low rank, not merged, on queries and values",
        _llama_lora,
        full={"layers": 4, "hidden": 2048, "heads": 32, "key_value_heads": 4, "batch": 1}
        | {"tokens": 1024, "vocabulary": 32000, "rank": 16},
        small={"layers": 2, "hidden": 256, "heads": 4, "key_value_heads": 2, "batch": 1}
        | {"tokens": 64, "vocabulary": 1024, "rank": 6},
        shape=_tokens,
        expected={
            "the adapters are part of the weights": _without_adapters,
            "queries, keys and values are one product": _grouped_merged,
            "gate and up are one product": _gates_merged,
            "the weights of norms are part of the products after them": _norms_unweighted,
        },
        dtype=torch.bfloat16,
    ),
    entry(
        "t5-enc",
        "A",
        "the encoder of T5: attention without a scale, with a relative bias",
        _t5,
        full={"layers": 12, "hidden": 768, "heads": 12, "intermediate": 3072, "batch": 8}
        | {"tokens": 256, "vocabulary": 32128},
        small={"layers": 2, "hidden": 256, "heads": 4, "intermediate": 640, "batch": 2}
        | {"tokens": 64, "vocabulary": 512},
        shape=_tokens,
        expected={
            "attention is one operator of scale 1 with the bias": _biased_attention,
            "queries, keys and values are one product": _merged,
        },
        dtype=torch.bfloat16,
    ),
    entry(
        "whisper-enc",
        "A",
        "the encoder of Whisper, whose keys have no bias",
        _whisper,
        full={"layers": 12, "hidden": 768, "heads": 12, "batch": 1, "frames": 3000},
        small={"layers": 2, "hidden": 256, "heads": 4, "batch": 1, "frames": 256},
        shape=lambda s: (s["batch"], 80, s["frames"]),
        expected={
            "queries, keys and values are one product, with a bias of which a part is 0": _merged,
            "attention is one operator": _attends,
        },
        dtype=torch.float16,
    ),
)
