"""An option that a plugin itself refuses has one spelling, its path, wherever it was given."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

import fedmia
from fedmia.attacks import LpLA
from fedmia.defenses.gaussian import Gaussian
from fedmia.defenses.weight_decay import WeightDecay
from fedmia.settings import option, registry
from fedmia.settings.errors import InputError, option_error
from fedmia.ssl.augment import Augment
from fedmia.ssl.ibot import IBOT
from fedmia.ssl.moco import MoCo

BOTH = "1.0, beside scale 1.0: give one, not both"


@dataclass(frozen=True)
class Halving(WeightDecay):
    """A defence from outside that refuses an option by itself."""

    share: int = option(2, "parts")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.share == 7:
            raise option_error(self, "share: 7, must not be 7")


def simulate_halving() -> object:
    """As settings name a class of a notebook, which no other process can import."""
    own = type("Own", (Halving,), {"__module__": "__main__"})
    return fedmia.run_simulation(defense={"name": own, "share": 7})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        # by its class alone
        (lambda: LpLA(p=0.05), "LpLA: option p: 0.05, must be 0 or from 0.1 to 5"),
        (lambda: MoCo(momentum=3), "MoCo: option momentum: 3, must be <= 1"),
        (lambda: MoCo(key="lost"), "MoCo: option key: unknown value 'lost'"),
        (lambda: IBOT(mask_spread=0.9), "IBOT: option mask_spread: 0.9, must be at most 0.3"),
        (lambda: Gaussian(epsilon=1.0, scale=1.0), f"Gaussian: option epsilon: {BOTH}"),
        (lambda: Augment(crop_min=0.9, crop_max=0.3), "Augment: option crop_min: 0.9, must be <="),
        # as settings build it
        (
            lambda: fedmia.run_simulation(ssl={"name": "moco", "momentum": 3}),
            "ssl.momentum: 3.0, must be <= 1",
        ),
        (
            lambda: fedmia.run_simulation(ssl={"name": "ibot", "mask_spread": 0.9}),
            "ssl.mask_spread: 0.9, must be at most 0.3",
        ),
        (
            lambda: fedmia.run_simulation(attacks=["lpla"], attack={"lpla": {"p": 0.05}}),
            "attack.lpla.p: 0.05, must be 0 or from 0.1 to 5",
        ),
        (simulate_halving, "defense.Own.share: 7, must not be 7"),
        (lambda: registry.build("attack", "lpla", {"p": 9}), "attack.lpla.p: 9, must be <= 5"),
        (
            lambda: registry.build("model", "vit-tiny", {"width": 10}, path="shadow.model"),
            "shadow.model.width: 10, must be a multiple of",
        ),
    ],
)
def test_call__names_the_class_or_the_path(call: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        call()
    assert str(caught.value).startswith(message), caught.value
