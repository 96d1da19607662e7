"""Where images differ in difficulty: similarity alone finds no member, attacks that compare an
image with what models without it make of it find them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor

from fedmia.attacks.base import Scores
from fedmia.settings import registry
from fedmia.statistics.auc import auc
from fedmia.threat import Shadow
from tests.attacks.difficulty import World, make_world, tpr
from tests.attacks.planted import chance

Shadows = Callable[..., tuple[Shadow, ...]]
UNIT = {"length": "unit"}


@pytest.fixture(scope="module")
def world(textures: Callable[..., Tensor]) -> World:
    return make_world(textures(320))


@pytest.fixture(scope="module")
def shadows(world: World) -> Shadows:
    """`shadows(count, online)`: each set is trained once, and its outputs are computed once."""
    return functools.cache(world.shadows)


def scores_of(world: World, name: str, view: Any, **options: Any) -> tuple[Scores, Scores]:
    return world.scores(registry.build("attack", name, options), view)


@pytest.mark.parametrize("rounds", [False, True])
def test_similarity__is_hidden_by_difficulty(world: World, rounds: bool) -> None:
    plain = scores_of(world, "similarity", world.rounds() if rounds else world.view(world.target()))
    assert auc(*plain) < 0.7 and tpr(*plain) < 0.1


@pytest.mark.parametrize(
    ("name", "options", "count", "online", "least", "least_tpr"),
    [
        ("lira", {}, 1, False, 0.95, 0.6),
        ("lira", {}, 4, True, 0.98, 0.6),
        ("lira", {"signal": "loss"}, 4, False, 0.9, 0.0),
        ("bavaria", {}, 1, False, 0.95, 0.6),
        ("bavaria", {}, 4, True, 0.98, 0.6),
        ("rmia", {}, 1, False, 0.95, 0.2),
        ("rmia", {}, 4, True, 0.98, 0.2),
        ("rmia", {"signal": "loss"}, 4, False, 0.95, 0.2),
        ("sslmem", UNIT, 1, False, 0.9, 0.0),
        ("sslmem", UNIT, 4, True, 0.9, 0.0),
    ],
)
def test_shadows__tell_members_from_easy_images(
    name: str, options: dict[str, Any], count: int, online: bool, least: float, least_tpr: float,
    world: World, shadows: Shadows,
) -> None:  # fmt: skip
    view = world.view(world.target(), shadows=shadows(count, online))
    scores = scores_of(world, name, view, **options)
    assert auc(*scores) > least and tpr(*scores) >= least_tpr


def test_rmia__a_of_classifiers_calibrates_too_little(world: World, shadows: Shadows) -> None:
    view = world.view(world.target(), shadows=shadows(4))
    assert 0.8 < auc(*scores_of(world, "rmia", view, offline_a=0.33)) < 0.9


@pytest.mark.parametrize("name", ["lira-rounds", "rmia-rounds", "semi-rounds"])
def test_rounds__tell_members_from_easy_images(name: str, world: World) -> None:
    scores = scores_of(world, name, world.rounds())
    assert auc(*scores) > 0.95 and tpr(*scores) > 0.4


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("lira", {}),
        ("bavaria", {}),
        ("rmia", {}),
        ("sslmem", UNIT),
        ("lira-rounds", {}),
        ("rmia-rounds", {}),
    ],
)
def test_models_that_know_no_member__give_chance(
    name: str, options: dict[str, Any], world: World, shadows: Shadows
) -> None:
    flat = dataclasses.replace(world, gain=0.0)
    own = not name.endswith("-rounds")
    view = flat.view(flat.target(), shadows=shadows(2)) if own else flat.rounds()
    assert auc(*scores_of(flat, name, view, **options)) == chance(100, 100)


@pytest.mark.parametrize(
    "name", ["lira", "bavaria", "rmia", "sslmem", "lira-rounds", "rmia-rounds", "semi-rounds"]
)
def test_non_members_alone__are_enough(name: str, world: World, shadows: Shadows) -> None:
    """To tell members from easy images no known member is needed."""
    alone = dataclasses.replace(world, known=(world.known[0][:0], world.known[1]))
    own = not name.endswith("-rounds")
    view = world.view(world.target(), shadows=shadows(4)) if own else world.rounds()
    options = UNIT if name == "sslmem" else {}
    assert auc(*scores_of(alone, name, view, **options)) > 0.9
