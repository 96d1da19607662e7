"""A defence whose options leave it no strength does nothing: the built-in ones' are listed here."""

from __future__ import annotations

import dataclasses
from typing import Any

from fedmia.defenses.base import Defense
from fedmia.seeding import rng
from fedmia.ssl.augment import Augment
from fedmia.ssl.train import Train
from fedmia.testing.defense import DefenseCase
from fedmia.testing.material import run

# Options at which a defence does nothing, where it has them: no noise, and nothing to clip, or
# training as it is anyway, for as long as it is.
TRAINING = {"lower": Augment().crop_min, "weight_decay": Train().weight_decay, "leak": 1.0}
STRENGTHS = {"scale": 0.0, "sigma": 0.0, "noise_multiplier": 0.0} | TRAINING
OFF = STRENGTHS | {"epsilon": None, "clip": 1e6, "max_grad_norm": 1e6}


@dataclasses.dataclass(frozen=True)
class IdentityDefense(Defense):
    """Every hook the identity."""


def zero_strength_is_the_identity(case: DefenseCase) -> None:
    """For classes with one of the options in STRENGTHS."""
    own = {f.name for f in dataclasses.fields(case.cls)}
    if not own & set(STRENGTHS):
        return
    off = DefenseCase(case.cls(**{k: OFF[k] for k in own & set(OFF)}))
    defended, memory = off.rounds()[-1]
    released = off.defense.release(case.received, case.trained, memory, rng(0))[0]
    case.require_equal(
        case.trained, released, "at zero strength release is not the identity: {} differs"
    )
    statement = off.defense.privacy(memory)
    case.must(statement is None or statement.value is None, "zero strength promises privacy")
    if own & set(TRAINING):
        want, _ = DefenseCase(IdentityDefense()).rounds()[-1]
        case.require_equal(want, defended, "at zero strength it trains otherwise: {} differs")


def check_zero_strength(defense: Any) -> None:
    """It alone, of a class or an instance."""
    run([zero_strength_is_the_identity], DefenseCase, defense)
