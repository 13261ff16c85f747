"""Set B: the programs that TASO and TENSAT were measured on, and the figures they published."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch.fx import Graph

from benchmarks.models import Program, ready
from benchmarks.zoo.cells import NasRNN, TensatBert
from benchmarks.zoo.entry import Sizes, entry
from benchmarks.zoo.expect import attentions, products, rows, twin_convolutions
from benchmarks.zoo.inception import Inception
from benchmarks.zoo.nasnet import NasNet
from benchmarks.zoo.residual import ResNet, SqueezeNet, Vgg


@dataclass(frozen=True)
class Figures:
    """What was published of a program: seconds of search, percent that the result is faster.

    On a Tesla T4, over the unoptimized graph, one kernel an operator. None: not reported.
    """

    taso_seconds: float | None
    tensat_seconds: float | None
    taso_percent: float | None
    tensat_percent: float | None
    source: str
    note: str = ""


TENSAT = "Yang et al., Equality saturation for tensor graph superoptimization, MLSys 2021"
PUBLISHED = MappingProxyType(
    {
        "nasrnn": Figures(177.3, 0.5, 45.4, 68.9, TENSAT),
        "tensat-bert": Figures(
            13.6, 1.4, 8.5, 9.2, TENSAT, "1.88 ms, greedily extracted 1.88 ms, exactly 1.73 ms"
        ),
        "resnext50": Figures(25.3, 0.7, 5.5, 8.8, TENSAT),
        "nasnet-a": Figures(
            1226.0, 10.6, 1.9, 7.3, TENSAT, "17.8 ms, greedily extracted 22.5 ms, exactly 16.6 ms"
        ),
        "squeezenet": Figures(16.4, 0.3, 6.7, 24.5, TENSAT),
        "vgg19": Figures(8.9, 0.4, 8.9, 8.9, TENSAT),
        "inception-v3": Figures(68.6, 5.1, 6.3, 10.0, TENSAT),
        "resnet50": Figures(None, None, None, 0.0, TENSAT, "the rules give no speed-up on a T4"),
    }
)
"""The published figures by the name of the entry; there are none of the faithful BERT."""


def _nasrnn(s: Sizes) -> Program:
    inputs = torch.randn(s["steps"], 1, s["hidden"]).unbind()
    return ready(NasRNN(s["hidden"], s["steps"]), inputs)


def _tensat_bert(s: Sizes) -> Program:
    return ready(TensatBert(s["hidden"], s["layers"]), (torch.randn(s["tokens"], s["hidden"]),))


def _bert(s: Sizes) -> Program:
    from transformers import BertConfig, BertModel

    from benchmarks.models import configured
    from benchmarks.zoo.language import Hidden

    config = configured(
        BertConfig,
        vocab_size=s["vocabulary"],
        hidden_size=s["hidden"],
        num_hidden_layers=s["layers"],
        num_attention_heads=s["heads"],
        intermediate_size=4 * s["hidden"],
        max_position_embeddings=s["tokens"],
        attn_implementation="eager",
    )
    ids = torch.randint(0, s["vocabulary"], (1, s["tokens"]))
    return ready(Hidden(BertModel(config, add_pooling_layer=False)), (ids,))


def _pixels(s: Sizes) -> tuple[torch.Tensor]:
    return (torch.randn(1, 3, s["image"], s["image"]),)


def _depths(s: Sizes) -> tuple[int, ...]:
    return (3, 4, 6, 3) if s["deep"] else (1, 1, 1, 1)


def _resnext(s: Sizes) -> Program:
    model = ResNet(s["width"], _depths(s), expansion=2, groups=s["groups"])
    return ready(model, _pixels(s))


def _resnet(s: Sizes) -> Program:
    model = ResNet(s["width"], _depths(s), expansion=4, stem=False)
    return ready(model, (torch.randn(1, s["width"], s["image"], s["image"]),))


def _nasnet(s: Sizes) -> Program:
    return ready(NasNet(s["width"], s["stages"], s["cells"]), _pixels(s))


def _squeezenet(s: Sizes) -> Program:
    return ready(SqueezeNet(s["shrink"], s["fires"]), _pixels(s))


def _vgg(s: Sizes) -> Program:
    return ready(Vgg(s["shrink"], s["image"], s["classifier"]), _pixels(s))


def _inception(s: Sizes) -> Program:
    return ready(Inception(s["shrink"], s["blocks"]), _pixels(s))


def _image(s: Sizes) -> tuple[int, ...]:
    return 1, 3, s["image"], s["image"]


def _gates_paired(graph: Graph, s: Sizes) -> bool:
    return len(products(graph)) <= 8 * s["steps"]


def _one_product_a_step(graph: Graph, s: Sizes) -> bool:
    return len(products(graph)) <= s["steps"]


def _layers_merged(graph: Graph, s: Sizes) -> bool:
    """Three products a layer where there were six."""
    return len(products(graph)) <= 3 * s["layers"]


def _merged(graph: Graph, s: Sizes) -> bool:
    return len(rows(graph, 3 * s["hidden"], s["hidden"])) == s["layers"]


def _attends(graph: Graph, s: Sizes) -> bool:
    return len(attentions(graph)) == s["layers"]


def _no_twins(graph: Graph, _: Sizes) -> bool:
    return twin_convolutions(graph) == 0


_TWINS = {"convolutions of one input, kernel and step are one": _no_twins}

ENTRIES = (
    entry(
        "nasrnn",
        "B",
        "NasRNN of TASO: five steps of eight gates, each with weights of its own",
        _nasrnn,
        full={"hidden": 512, "steps": 5},
        small={"hidden": 256, "steps": 3},
        shape=lambda s: (1, s["hidden"]),
        expected={
            "the two products of a gate are one": _gates_paired,
            "the sixteen products of a step are one": _one_product_a_step,
        },
    ),
    entry(
        "tensat-bert",
        "B",
        "BERT as TENSAT wrote it, every tied output returned: attention reaches no later layer",
        _tensat_bert,
        full={"hidden": 1024, "layers": 8, "tokens": 64},
        small={"hidden": 256, "layers": 3, "tokens": 32},
        shape=lambda s: (s["tokens"], s["hidden"]),
        expected={"the four products of a layer's input are one": _layers_merged},
    ),
    entry(
        "bert",
        "B",
        "a faithful BERT: 12 layers, 512 tokens, as PET sizes it",
        _bert,
        full={"layers": 12, "hidden": 768, "heads": 12, "tokens": 512, "vocabulary": 30522},
        small={"layers": 2, "hidden": 256, "heads": 4, "tokens": 64, "vocabulary": 512},
        shape=lambda s: (1, s["tokens"]),
        expected={
            "queries, keys and values are one product": _merged,
            "attention is one operator": _attends,
        },
    ),
    entry(
        "resnext50",
        "B",
        "ResNeXt-50 (32 groups) of TASO: no norms, a ReLU on each shortcut",
        _resnext,
        full={"image": 224, "width": 64, "groups": 32, "deep": 1},
        small={"image": 64, "width": 32, "groups": 8, "deep": 0},
        shape=_image,
    ),
    entry(
        "nasnet-a",
        "B",
        "NasNet-A of TASO: three times five cells and a reduction",
        _nasnet,
        full={"image": 224, "width": 64, "stages": 3, "cells": 5},
        small={"image": 64, "width": 16, "stages": 2, "cells": 2},
        shape=_image,
    ),
    entry(
        "squeezenet",
        "B",
        "SqueezeNet 1.1 with each ReLU apart",
        _squeezenet,
        full={"image": 224, "shrink": 1, "fires": 8},
        small={"image": 96, "shrink": 2, "fires": 4},
        shape=_image,
    ),
    entry(
        "vgg19",
        "B",
        "VGG-19, whose biases no operator reads",
        _vgg,
        full={"image": 224, "shrink": 1, "classifier": 4096},
        small={"image": 64, "shrink": 4, "classifier": 256},
        shape=_image,
    ),
    entry(
        "inception-v3",
        "B",
        "Inception-v3 without norms, each convolution with a ReLU",
        _inception,
        full={"image": 299, "shrink": 1, "blocks": 11},
        small={"image": 107, "shrink": 2, "blocks": 2},
        shape=_image,
        expected=_TWINS,
    ),
    entry(
        "resnet50",
        "B",
        "ResNet-50 of TASO: no stem, no norms, a ReLU on each shortcut",
        _resnet,
        full={"image": 56, "width": 64, "deep": 1},
        small={"image": 28, "width": 32, "deep": 0},
        shape=lambda s: (1, s["width"], s["image"], s["image"]),
    ),
)
