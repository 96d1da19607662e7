"""What is asked of a released head: its training, its noise, how often."""

from __future__ import annotations

from dataclasses import dataclass

from fedmia.defenses.heads.release import CLASSICAL
from fedmia.runtime.device import DEVICES, check_device
from fedmia.settings import option
from fedmia.settings.commands.data import Data
from fedmia.settings.errors import InputError, opt
from fedmia.settings.fields import Settings, section

MECHANISMS = ("logistic", "laplace", "gaussian")


@dataclass(frozen=True)
class Head(Settings):
    """One comparison of mechanisms on released heads.

    The paper trains a SimCLR encoder's head by an example of Keras and says nothing of the rest;
    the defaults here are a head of few images that is overfitted enough to leak.

    Raises:
        InputError: on construction, for an unknown name or a value out of range.
    """

    encoder: str = option(
        "", "RUN[@round], FILE.pt2, FILE.onnx, timm:NAME, torchvision:NAME or pkg.mod:factory"
    )
    checkpoint: str | None = option(None, "weights for timm:, torchvision: or a factory")
    data: Data = section(Data, head="name")
    images: int = option(100, "|d|, labelled images that a head is fine-tuned on", ge=2)
    hidden: int = option(0, "width of a ReLU layer before the last one (0: a linear head)", ge=0)
    epochs: int = option(60, "passes over the head's images", ge=1)
    batch_size: int = option(32, "images a step", ge=1)
    lr: float = option(1.0, "learning rate of SGD with momentum 0.9", gt=0)
    weight_decay: float = option(1e-3, "of the head's weights", ge=0)
    mechanisms: tuple[str, ...] = option(
        MECHANISMS,
        "noise on the weights; gaussian is calibrated exactly, gaussian-classical as in the paper, "
        "which is proved for an epsilon below 1",
        choices=(*MECHANISMS, CLASSICAL),
    )
    epsilons: tuple[float, ...] = option(
        (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0), "privacy budgets of one release", gt=0
    )
    delta: float = option(1e-5, "of the Gaussian mechanisms", gt=0, lt=1)
    samples: int = option(100, "m, pairs of the Sensitivity Sampler: 2 m heads", ge=1)
    draws: int = option(5, "noised releases of each head", ge=1)
    canaries: int = option(1000, "made-up heads that audit each noise, for a lower bound", ge=0)
    seeds: int = option(10, "heads, each of other images, with seeds SEED, SEED+1, ..", ge=2)
    seed: int = option(0, "root of all randomness", ge=0)
    device: str = option("auto", f"of the encoder: {DEVICES}")
    threads: int = option(
        1, "CPU threads (0: all cores); the heads are too small for more, sums depend on it", ge=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_device(self.device, "device")
        if not self.encoder:
            raise InputError(f"{opt('encoder')} is missing: the encoder under the head")
        for name in ("mechanisms", "epsilons"):
            values = getattr(self, name)
            if not values:
                raise InputError(f"{opt(name)} names none")
            if twice := [v for v in values if values.count(v) > 1]:
                raise InputError(f"{opt(name)}: {twice[0]} is given twice")
