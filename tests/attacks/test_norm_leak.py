"""A leak in the length of features alone: who looks there finds it, and nobody where it is not."""

from __future__ import annotations

from typing import Any

import pytest

from fedmia.attacks.base import Known
from fedmia.options import registry
from tests.attacks.planted import Leak, chance, norm_leak


@pytest.fixture(scope="module")
def leak() -> Leak:
    return norm_leak(known=40)


def build(name: str, **options: Any) -> Any:
    """With few training steps, which suffice for this leak."""
    return registry.build("attack", name, ({} if name == "lpla" else {"steps": 20}) | options)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *(
            ("lpla", {"p": p, "reading": r})
            for p in (1.0, 5.0)
            for r in ("likelihood", "threshold")
        ),
        ("fe-mi", {"steps": 50}),
        ("fe-mi", {"recipe": "sdmia", "steps": 25}),
        ("sd-mi", {"distance": "euclidean"}),
        ("sd-mi", {"recipe": "sdmia"}),
        pytest.param("sd-mi", {"selector": True, "steps": 100}, marks=pytest.mark.slow),
    ],
)
def test_leak__is_found(name: str, options: dict[str, Any], leak: Leak) -> None:
    assert leak.auc(build(name, **options)) > 0.95


@pytest.mark.parametrize("name", ["lpla", "fe-mi", "sd-mi"])
def test_leak__is_found_from_eight_known_a_side(name: str, leak: Leak) -> None:
    few = Known(leak.known.members[:8], leak.known.nonmembers[:8])
    assert Leak(leak.view, few, leak.images).auc(build(name)) > 0.8


@pytest.mark.parametrize("name", ["lpla", "fe-mi", "sd-mi"])
def test_leak__is_gone_where_no_norm_changes(name: str) -> None:
    assert norm_leak(known=20, factor=1.0).auc(build(name)) == chance(60, 60)


def test_leak__is_none_of_cosines(leak: Leak) -> None:
    assert leak.auc(registry.build("attack", "similarity", {"views": 8})) == chance(60, 60)
