"""An option that a plugin itself refuses has one spelling, its path, wherever it was given."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

import fedmia
from fedmia.attacks import LpLA
from fedmia.cli.main import main
from fedmia.defenses.gaussian import Gaussian
from fedmia.defenses.weight_decay import WeightDecay
from fedmia.settings import Options, option, registry
from fedmia.settings.errors import InputError, option_error, prefix_errors
from fedmia.settings.options import check_limits
from fedmia.ssl.augment import Augment
from fedmia.ssl.ibot import IBOT
from fedmia.ssl.moco import MoCo

BOTH = "1.0, beside scale 1.0: give one, not both"
AUDIT = "audit --encoder x --members digits --nonmembers digits"


@dataclass(frozen=True)
class Halving(WeightDecay):
    """A defence from outside that refuses an option by itself."""

    share: int = option(2, "parts")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.share == 7:
            raise option_error(self, "share: 7, must not be 7")


OUTSIDE = f"{__name__}:Halving"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("simulate --attacks lpla --attack.lpla.p 0.05", "attack.lpla.p: 0.05, must be 0 or from"),
        (
            "simulate --attacks partcrop --attack.partcrop.scale_min 0.9 "
            "--attack.partcrop.scale_max 0.3",
            "attack.partcrop.scale_min: 0.9, must be <= scale_max (0.3)",
        ),
        (
            "simulate --attacks baseline-e --attack.baseline-e.rows 2",
            "attack.baseline-e.rows and columns: 2x3, must be odd",
        ),
        ("simulate --ssl moco --ssl.operations rotation", "ssl.operations: it has no rot"),
        (
            "simulate --ssl ibot --model vit-tiny --ssl.mask_spread 0.9",
            "ssl.mask_spread: 0.9, must be at most 0.3",
        ),
        (
            "simulate --ssl mae --model vit-tiny --ssl.decoder_width 10",
            "ssl.decoder_width: 10, must be a multiple of decoder_heads (4)",
        ),
        ("simulate --model vit-tiny --model.width 10", "model.width: 10, must be a multiple of"),
        ("simulate --partition file:a.pkl", "partition.path: a.pkl is no .json, .csv or .npy"),
        ("simulate --dataset synthetic --data.channels 2", "data.channels: 2, must be 1 or 3"),
        ("simulate --strategy dp-fedavg --strategy.canaries 3", "strategy.canaries: 3, must be 0"),
        (
            "simulate --defense gaussian --defense.epsilon 1 --defense.scale 1",
            f"defense.gaussian.epsilon: {BOTH}",
        ),
        (
            "simulate --defense early-stopping --defense.after 2 --defense.leak 0.5",
            "defense.early-stopping.after: 2 leaves nothing to choose",
        ),
        (
            "simulate --defense crop-range --defense.lower 0.5 --defense.choose true",
            "defense.crop-range.lower: 0.5 is given, and choose too: leave one out",
        ),
        (
            "study --defenses gaussian --strengths gaussian.canaries=3",
            "defenses gaussian canaries=3: defense.gaussian.canaries: 3, must be 0 or",
        ),
        (
            f"simulate --defense {OUTSIDE} --defense.share 7",
            f"defense.{OUTSIDE}.share: 7, must not be 7",
        ),
        (
            f"{AUDIT} --augment.crop_min 0.9 --augment.crop_max 0.3",
            "augment.crop_min: 0.9, must be <= crop_max (0.3)",
        ),
        (
            "audit --encoder tests.auditing.brought:tiny --members synthetic --members.channels 2 "
            "--nonmembers digits",
            "members.channels: 2, must be 1 or 3",
        ),
    ],
    ids=lambda text: text.partition(": ")[0],
)
def test_command__names_the_path(
    line: str, message: str, tmp_path: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main([*line.split(), "--out", str(tmp_path / "RUN")])
    assert caught.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith(f"fedmia: error: {message}")


def build_halving() -> object:
    """As settings name a class of a notebook."""
    name = fedmia.settings.session.register_class(Halving)
    return registry.build("defense", name, {"share": 7})


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
        (build_halving, "defense.Halving.share: 7, must not be 7"),
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


def test_error__of_another_process_takes_a_path_too() -> None:
    error = pickle.loads(pickle.dumps(option_error(LpLA(), "p: 9, must be <= 5")))
    words = pytest.raises(InputError, match=r"^attack\.lpla\.p: 9, must be <= 5$")
    with words, prefix_errors("anything", "attack.lpla"):
        raise error


def test_mean__of_pixels_is_converted_whatever_its_help() -> None:
    @dataclass(frozen=True)
    class Own(Options):
        """Of two shares, one of pixels."""

        grey: float = option(0.5, "any help", ge=0, le=1, of_pixels=True)
        share: float = option(0.5, "mean of each channel", ge=0, le=1)

    about = {one.name: one.metadata for one in Own.__dataclass_fields__.values()}
    with pytest.raises(InputError, match=r"128.0, must be <= 1: give 128/255 = 0.502$"):
        check_limits("grey", 128.0, about["grey"])
    with pytest.raises(InputError, match="must be <= 1$"):
        check_limits("share", 128.0, about["share"])
