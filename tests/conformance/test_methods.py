"""Every self-supervised method, defence and strategy in the registry keeps its kind's promises."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fedmia.settings import registry
from fedmia.ssl.byol import BYOL
from fedmia.ssl.dino import DINO
from fedmia.ssl.ibot import IBOT
from fedmia.ssl.mae import MAE
from fedmia.ssl.moco import MoCo
from fedmia.testing import check_defense, check_ssl, check_strategy
from fedmia.testing.ssl import SSLCase, coupled

CHECKS: dict[str, Callable[[Any], None]] = {
    "ssl": check_ssl,
    "defense": check_defense,
    "strategy": check_strategy,
}


@pytest.mark.parametrize(
    ("kind", "name"), [(kind, name) for kind in CHECKS for name in registry.names(kind)]
)
def test_plugin__keeps_its_promises(kind: str, name: str) -> None:
    CHECKS[kind](registry.load(kind, name))


@pytest.mark.parametrize("name", registry.names("ssl"))
def test_coupled__says_whether_a_loss_depends_on_others(name: str) -> None:
    case = SSLCase(registry.load("ssl", name))
    assert coupled(case) == case.spec.coupled


OPTIONS = {
    "public queue": MoCo(queue_source="public", dim=8, queue=16),
    "byol, layer norm": BYOL(head_norm="layer", dim=8),
    "dino, no norm": DINO(head_norm="none", dim=8, prototypes=8),
    "ibot, no norm, two heads": IBOT(head_norm="none", dim=8, prototypes=8, shared_head=False),
    "mae, long sequences": MAE(decoder_width=8, decoder_depth=1, bank=6, mask_unit=2),
}


@pytest.mark.slow
@pytest.mark.parametrize("options", OPTIONS)
def test_options_that_dpsgd_can_bound__keep_the_promises(options: str) -> None:
    check_ssl(OPTIONS[options])
