"""Every self-supervised method, defence and strategy in the registry keeps its kind's promises."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fedmia.settings import registry
from fedmia.ssl.byol import BYOL
from fedmia.ssl.dino import DINO
from fedmia.ssl.ibot import IBOT
from fedmia.ssl.mae import MAE
from fedmia.ssl.moco import MoCo
from fedmia.testing.defense import DEFENSE_CHECKS, DefenseCase
from fedmia.testing.ssl import SSL_CHECKS, SSLCase, coupled
from fedmia.testing.strategy import STRATEGY_CHECKS, StrategyCase

KINDS: dict[str, tuple[Callable[[Any], Any], tuple[Callable[[Any], None], ...]]] = {
    "ssl": (SSLCase, SSL_CHECKS),
    "defense": (DefenseCase, DEFENSE_CHECKS),
    "strategy": (StrategyCase, STRATEGY_CHECKS),
}


def promises() -> Iterator[Any]:
    for kind, (_, checks) in KINDS.items():
        for name in registry.names(kind):
            for check in checks:
                yield pytest.param(kind, name, check, id=f"{kind}-{name}-{check.__name__}")


@functools.cache
def case_of(kind: str, name: str) -> Any:
    """Its usual run is made once."""
    return KINDS[kind][0](registry.load(kind, name))


@pytest.mark.parametrize(("kind", "name", "check"), list(promises()))
def test_plugin__keeps_its_promise(kind: str, name: str, check: Callable[[Any], None]) -> None:
    check(case_of(kind, name))


@pytest.mark.parametrize("name", registry.names("ssl"))
def test_coupled__says_whether_a_loss_depends_on_others(name: str) -> None:
    case = case_of("ssl", name)
    assert coupled(case) == case.spec.coupled


OPTIONS = {
    "public queue": MoCo(queue_source="public", dim=8, queue=16),
    "byol, layer norm": BYOL(head_norm="layer", dim=8),
    "dino, no norm": DINO(head_norm="none", dim=8, prototypes=8),
    "ibot, no norm, two heads": IBOT(head_norm="none", dim=8, prototypes=8, shared_head=False),
    "mae, long sequences": MAE(decoder_width=8, decoder_depth=1, bank=6, mask_unit=2),
}


@pytest.mark.slow
@pytest.mark.parametrize("check", SSL_CHECKS)
@pytest.mark.parametrize("options", OPTIONS)
def test_options_that_dpsgd_can_bound__keep_the_promises(
    options: str, check: Callable[[Any], None]
) -> None:
    check(case_of_options(options))


@functools.cache
def case_of_options(name: str) -> SSLCase:
    return SSLCase(OPTIONS[name])
