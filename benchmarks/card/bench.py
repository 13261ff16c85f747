"""What is tried on a card: models, kernels, groups of equal programs and networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks import models
from eqsat import contest
from eqsat.cost.device import Device, load
from eqsat.cost.profile import Profile, find
from eqsat.cost.tune import calibrate
from eqsat.cost.tune.microbench import Benchmark, grid
from eqsat.cost.tune.timer import Kind
from eqsat.cost.tune.variants import GROUPS, Group, tensors

Network = Callable[[], tuple[nn.Module, tuple[Tensor, ...]]]

ROUNDS = 20
"""Rounds over programs that are compared, each timed once a round."""
MODELS = (
    "bert", "gpt2", "llama", "vit", "resnet_basic", "convnext", "swin", "t5_enc", "unet", "mixer",
)  # fmt: skip


@dataclass(frozen=True)
class Bench:
    """A card and what is tried on it, or with `dry` what stands in for both on a CPU."""

    place: Kind
    profile: Profile
    out: Path
    models: tuple[str, ...]
    grid: tuple[Benchmark, ...]
    groups: tuple[Group, ...]
    networks: Mapping[str, Network]
    dtypes: tuple[torch.dtype, ...]
    rounds: int = ROUNDS
    dry: bool = False

    @property
    def devices(self) -> dict[str, Device]:
        """The device as the profile of the package says, and as tuned here if it is."""
        tuned = {"tuned": load(self.tuned)} if self.tuned.exists() else {}
        return {"shipped": Device.of(self.profile), **tuned}

    @property
    def name(self) -> str:
        """What the card is called."""
        return "dry run" if self.dry else calibrate.device_name(self.place)

    @property
    def tuned(self) -> Path:
        """Where the tuned profile goes."""
        return self.out / f"{self.profile.name}.toml"

    @property
    def measurements(self) -> Path:
        """Where the measurements go that it is fitted to."""
        return self.out / "grid.jsonl"


def card(out: Path, like: str | None) -> Bench:
    """What is tried on the card at hand. Raises ValueError where no profile is of it."""
    profile = calibrate.prior_of("cuda", like)
    return Bench(
        place="cuda",
        profile=profile,
        out=out,
        models=MODELS,
        grid=grid(Device.of(profile), "cuda"),
        groups=GROUPS,
        networks={
            "BERT-base": lambda: models.bert_base(8, 128, "sdpa")[:2],
            "GPT-2": lambda: models.gpt2(batch=8, tokens=128, attention="sdpa")[:2],
            "ResNet-50": lambda: models.resnet50(batch=8)[:2],
        },
        dtypes=(torch.bfloat16, torch.float32),
    )


def stand_in(out: Path) -> Bench:
    """A little of everything, on the CPU, with the card of a profile pretended."""
    profile, sums = find("h200"), next(one for one in GROUPS if one.name == "distribute")
    return Bench(
        place="cpu",
        profile=profile,
        out=out,
        models=("dlrm",),
        grid=grid(Device.of(profile), "cuda")[::4],
        groups=GROUPS[:2],
        networks={sums.name: lambda: (contest._Module(sums.programs["two"]), tensors(sums))},
        dtypes=(torch.float32,),
        rounds=3,
        dry=True,
    )
