"""Set A, vision: classifiers and a segmenter as they are deployed."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.fx import Graph, Node

from benchmarks.models import Logits, Program, configured, ready, resnet50
from benchmarks.zoo.convnets import DenseNet, MobileNetV3
from benchmarks.zoo.entry import Check, Sizes, entry
from benchmarks.zoo.expect import (
    attentions,
    convolutions,
    named,
    norms_folded,
    operator,
    products,
    rows,
    shape,
)


def _classifier(family: str, s: Sizes, **options: Any) -> Program:
    """A classifier of transformers by the first part of the names of its classes."""
    import transformers

    config = configured(getattr(transformers, f"{family}Config"), **options)
    model: nn.Module = getattr(transformers, f"{family}ForImageClassification")(config)
    return ready(Logits(model), (torch.randn(s["batch"], 3, s["image"], s["image"]),))


def _vit(s: Sizes) -> Program:
    return _classifier(
        "ViT",
        s,
        hidden_size=s["hidden"],
        num_hidden_layers=s["layers"],
        num_attention_heads=s["heads"],
        intermediate_size=4 * s["hidden"],
        image_size=s["image"],
        patch_size=16,
        num_labels=s["classes"],
        attn_implementation="eager",
    )


def _resnet(s: Sizes) -> Program:
    widths = tuple(s["width"] << i for i in range(4))
    depths = (3, 4, 6, 3) if s["deep"] else (1, 1, 1, 1)
    return resnet50(s["batch"], s["image"], widths, depths)


def _densenet(s: Sizes) -> Program:
    layers = (6, 12, 24, 16) if s["deep"] else (2, 2, 2, 2)
    pixels = torch.randn(s["batch"], 3, s["image"], s["image"])
    return ready(DenseNet(s["growth"], layers), (pixels,))


def _mobilenet(s: Sizes) -> Program:
    pixels = torch.randn(s["batch"], 3, s["image"], s["image"])
    return ready(MobileNetV3(s["shrink"], s["blocks"]), (pixels,))


def _efficientnet(s: Sizes) -> Program:
    return _classifier(
        "EfficientNet",
        s,
        image_size=s["image"],
        width_coefficient=s["percent"] / 100,
        depth_coefficient=s["percent"] / 100,
        hidden_dim=1280 * s["percent"] // 100,
        num_labels=1000,
    )


def _convnext(s: Sizes) -> Program:
    widths = [s["width"] << i for i in range(4)]
    depths = [3, 3, 9, 3] if s["deep"] else [1, 1, 2, 1]
    return _classifier(
        "ConvNext",
        s,
        hidden_sizes=widths,
        depths=depths,
        layer_scale_init_value=1e-6,
        num_labels=1000,
    )


def _swin(s: Sizes) -> Program:
    return _classifier(
        "Swin",
        s,
        image_size=s["image"],
        embed_dim=s["width"],
        depths=[2, 2, 6, 2] if s["deep"] else [2, 1],
        num_heads=[3, 6, 12, 24] if s["deep"] else [2, 4],
        window_size=7,
        num_labels=1000,
        attn_implementation="eager",
    )


def _segformer(s: Sizes) -> Program:
    from transformers import SegformerConfig, SegformerForSemanticSegmentation

    config = configured(
        SegformerConfig,
        hidden_sizes=[s["width"] * i for i in (1, 2, 5, 8)],
        depths=[2, 2, 2, 2] if s["deep"] else [1, 1, 1, 1],
        decoder_hidden_size=s["decoder"],
        num_labels=s["classes"],
        attn_implementation="eager",
    )
    pixels = torch.randn(s["batch"], 3, s["image"], s["image"])
    return ready(Logits(SegformerForSemanticSegmentation(config)), (pixels,))


def _image(s: Sizes) -> tuple[int, ...]:
    return s["batch"], 3, s["image"], s["image"]


def _last_perceptron(graph: Graph, s: Sizes) -> bool:
    found = rows(graph, 4 * s["hidden"], s["hidden"])
    return len(found) == s["layers"] and found[0] == s["batch"]


def _asked_once(graph: Graph, s: Sizes) -> bool:
    found = attentions(graph)
    return len(found) == s["layers"] and shape(found[-1].args[0])[-2] == 1


def _merged(graph: Graph, s: Sizes) -> bool:
    return len(rows(graph, 3 * s["hidden"], s["hidden"])) >= s["layers"] - 1


def _folded(graph: Graph, _: Sizes) -> bool:
    return norms_folded(graph)


def _laid_out(graph: Graph, _: Sizes) -> bool:
    """The weights of all convolutions with a kernel lie with their channels last, ahead of time."""
    weights = [n.args[1] for n in convolutions(graph) if max(shape(n.args[1])[2:]) > 1]
    return all(
        isinstance(w, Node) and w.op == "placeholder" and w.meta["val"].stride(1) == 1
        for w in weights
    )


def _pools(graph: Graph) -> list[Node]:
    """The average pools of DenseNet's transitions."""
    return named(graph, "avg_pool2d")


def _pooled_first(graph: Graph, _: Sizes) -> bool:
    inputs = [n.args[0] for n in _pools(graph)]
    early = [n for n in inputs if isinstance(n, Node) and n not in convolutions(graph)]
    return len(inputs) == len(early) == 3


def _fused_at_low_resolution(graph: Graph, s: Sizes) -> bool:
    """Nothing convolves the four upsampled maps at once."""
    width = 4 * s["decoder"]
    wide = [n for n in convolutions(graph) if shape(n.args[1])[1] == width]
    return not wide and not any(
        p.inner == width and p.width == s["decoder"] for p in products(graph)
    )


def _scales_folded(graph: Graph, s: Sizes) -> bool:
    """Fewer layers than there are multiply by a weight as wide as they are."""
    widths = [(s["width"] << i,) for i in range(4)]
    scales = [
        n
        for n in named(graph, "mul")
        if any(shape(a) in widths and a.op == "placeholder" for a in n.all_input_nodes)
    ]
    return len(scales) < (18 if s["deep"] else 5)


def _window_merged(graph: Graph, s: Sizes) -> bool:
    blocks = len([n for n in graph.nodes if operator(n) in ("gelu",)])
    counts = (len(rows(graph, 3 * (s["width"] << i), s["width"] << i)) for i in range(4))
    return sum(counts) == blocks


def _windows_attend(graph: Graph, s: Sizes) -> bool:
    return len(attentions(graph)) == (12 if s["deep"] else 3)


_NORMS: dict[str, Check] = {"batch norms are part of the convolutions before them": _folded}

ENTRIES = (
    entry(
        "vit-cls",
        "A",
        "ViT base as a classifier, which reads the class token only",
        _vit,
        full={"layers": 12, "hidden": 768, "heads": 12, "batch": 8, "image": 224, "classes": 1000},
        small={"layers": 3, "hidden": 256, "heads": 4, "batch": 2, "image": 96, "classes": 10},
        shape=_image,
        expected={
            "the feed-forward of the last layer runs for the class token only": _last_perceptron,
            "the last attention asks for the class token only": _asked_once,
            "queries, keys and values are one product": _merged,
        },
        dtype=torch.float16,
    ),
    entry(
        "resnet50-bn",
        "A",
        "ResNet-50 with its batch norms",
        _resnet,
        full={"batch": 8, "image": 224, "width": 256, "deep": 1},
        small={"batch": 2, "image": 96, "width": 64, "deep": 0},
        shape=_image,
        expected=_NORMS | {"weights are laid out channels-last once, ahead of time": _laid_out},
        dtype=torch.float16,
    ),
    entry(
        "densenet",
        "A",
        "DenseNet-121",
        _densenet,
        full={"batch": 8, "image": 224, "growth": 32, "deep": 1},
        small={"batch": 2, "image": 96, "growth": 16, "deep": 0},
        shape=_image,
        expected={"the pool of each transition comes before its convolution": _pooled_first},
        dtype=torch.float16,
    ),
    entry(
        "segformer",
        "A",
        "SegFormer B0: linear, upsample, cat and a 1 x 1 convolution in its head",
        _segformer,
        full={"batch": 4, "image": 512, "width": 32, "decoder": 256, "classes": 150, "deep": 1},
        small={"batch": 1, "image": 128, "width": 16, "decoder": 64, "classes": 10, "deep": 0},
        shape=_image,
        expected={"the head convolves before it upsamples": _fused_at_low_resolution},
        dtype=torch.float16,
    ),
    entry(
        "mobilenetv3",
        "A",
        "MobileNetV3-Large",
        _mobilenet,
        full={"batch": 8, "image": 224, "shrink": 1, "blocks": 15},
        small={"batch": 2, "image": 96, "shrink": 1, "blocks": 6},
        shape=_image,
        expected=_NORMS,
        dtype=torch.float16,
    ),
    entry(
        "efficientnet-b0",
        "A",
        "EfficientNet-B0",
        _efficientnet,
        full={"batch": 8, "image": 224, "percent": 100},
        small={"batch": 2, "image": 96, "percent": 40},
        shape=_image,
        expected=_NORMS,
        dtype=torch.float16,
    ),
    entry(
        "convnext-tiny",
        "A",
        "ConvNeXt tiny",
        _convnext,
        full={"batch": 8, "image": 224, "width": 96, "deep": 1},
        small={"batch": 2, "image": 96, "width": 32, "deep": 0},
        shape=_image,
        expected={"scales of layers are folded into products": _scales_folded},
        dtype=torch.float16,
    ),
    entry(
        "swin-tiny",
        "A",
        "Swin tiny, with attention in its parts",
        _swin,
        full={"batch": 8, "image": 224, "width": 96, "deep": 1},
        small={"batch": 1, "image": 56, "width": 48, "deep": 0},
        shape=_image,
        expected={
            "queries, keys and values of each window are one product": _window_merged,
            "attention in each window is one operator": _windows_attend,
        },
        dtype=torch.float16,
    ),
)
