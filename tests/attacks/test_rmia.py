"""RMIA against loops, and where images differ in difficulty."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import _difficulty
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmia.attacks._reference import ReferenceSignals
from fedmia.attacks.base import Known
from fedmia.attacks.rmia import GRID, RMIA, choose_a, dominated_share
from fedmia.attacks.similarity import Similarity
from fedmia.options.errors import InputError
from fedmia.options.seeding import rng


class Nothing:
    """A shadow that was trained on nothing."""

    members = torch.zeros(0, 1, 1, 1, dtype=torch.uint8)

    def trained_on(self, images: Tensor) -> NDArray[np.bool_]:
        return np.zeros(len(images), dtype=bool)


class Untold:
    """A view with one such shadow."""

    shadows = (Nothing(),)


def drawn(count: int, models: int, seed: int = 0) -> ReferenceSignals:
    draw = rng(seed, "readings")
    inside = draw.random((models, count)) < 0.5
    inside[0], inside[1] = True, False
    return ReferenceSignals(draw.random(count), draw.random((models, count)), inside)


# -- formulas


@pytest.mark.parametrize("a", [0.0, 0.33, 1.0])
def test_ratios__offline_as_in_the_paper(a: float) -> None:
    found = drawn(9, 5)
    got = RMIA().ratios(found, a)
    for i in range(9):
        out = np.mean([found.references[s, i] for s in range(5) if not found.inside[s, i]])
        assert got[i] == pytest.approx(found.target[i] / (((1 + a) * out + (1 - a)) / 2))


def test_ratios__online_by_half_of_the_models_with_the_image() -> None:
    """However many shadows of either kind there are, p(x) weighs the kinds alike."""
    attack, found = RMIA(), drawn(9, 5)
    attack._online = True
    got = attack.ratios(found, 0.33)
    for i in range(9):
        kinds = [
            np.mean([found.references[s, i] for s in range(5) if found.inside[s, i] == side])
            for side in (True, False)
        ]
        assert got[i] == pytest.approx(found.target[i] / np.mean(kinds))


@pytest.mark.parametrize("gamma", [0.5, 1.0, 2.0])
def test_beaten__is_the_share_and_less_than_a_step(gamma: float) -> None:
    draw = rng(0, "ratios")
    ratios, population = 2 * draw.random(50), np.sort(draw.random(20))
    ratios[:20] = population  # ties with gamma 1 count as beaten
    got = dominated_share(ratios, population, gamma)
    for ratio, score in zip(ratios, got, strict=True):
        count = sum(ratio >= gamma * z for z in population)
        assert count / 21 < score < (count + 1) / 21
    assert (np.diff(got[np.argsort(ratios)]) >= 0).all()
    assert len(np.unique(got)) == len(np.unique(ratios))  # not one tie more


def test_beaten__far_off_ratios_are_not_tied() -> None:
    ratios = np.exp(np.array([-30.0, -20.0, -10.0, 10.0, 20.0, 30.0]))
    got = dominated_share(ratios, np.array([0.5, 1.0]), 1.0)
    assert (np.diff(got) > 0).all() and got[0] > 0 and got[-1] < 1


def test_best_a__is_the_middle_of_the_best() -> None:
    aucs = [0.5] * len(GRID)
    assert choose_a(aucs) == 0.5
    aucs[3] = 0.9
    assert choose_a(aucs) == 0.3
    aucs[5] = aucs[4] = 0.9
    assert choose_a(aucs) == 0.4


def test_population__is_the_known_nonmembers(monkeypatch: pytest.MonkeyPatch) -> None:
    found, calls = drawn(12, 4), []

    def read(self: RMIA, view: Any, images: Tensor) -> ReferenceSignals:
        calls.append(len(images))
        return found.of(images.flatten().numpy() > 0)

    monkeypatch.setattr(RMIA, "read", read)
    marks = np.array([0] * 5 + [1] * 7, dtype=np.uint8).reshape(12, 1, 1, 1)
    images = torch.from_numpy(marks)
    attack = RMIA(offline_a=0.5)
    attack.fit(Untold(), Known(images[:5], images), rng(0))  # type: ignore[arg-type]
    want = np.sort(attack.ratios(found.of(marks.flatten() > 0), 0.5))
    np.testing.assert_array_equal(attack._population, want)
    assert calls == [12]


def test_population__is_the_known_nonmembers_where_a_is_chosen_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Known members help to choose a, and nobody is compared with them."""
    found = drawn(12, 4)
    monkeypatch.setattr(RMIA, "read", lambda self, view, images: found)
    images = torch.arange(12, dtype=torch.uint8).reshape(12, 1, 1, 1)
    attack = RMIA()
    attack.fit(Untold(), Known(images[:5], images[5:]), rng(0))  # type: ignore[arg-type]
    want = np.sort(attack.ratios(found, attack._a)[5:])
    np.testing.assert_array_equal(attack._population, want)


# -- bad input


def test_fit__too_few_known_images_are_refused(
    make_moco: Callable[..., Any], make_view: Callable[..., Any], images: Tensor
) -> None:
    view = make_view(RMIA(), make_moco(), images)
    with pytest.raises(InputError, match="rmia needs at least 2 known .* got 5 and 1"):
        RMIA().fit(view, Known(images[:5], images[5:6]), rng(0))


def test_fit__without_shadows_is_refused(
    make_moco: Callable[..., Any], make_view: Callable[..., Any], images: Tensor, known: Known
) -> None:
    view = make_view(RMIA(), make_moco(), images, shadows=())
    with pytest.raises(InputError, match="needs shadow encoders"):
        RMIA().fit(view, known, rng(0))


@pytest.mark.parametrize("options", [{"offline_a": 1.5}, {"gamma": 0.0}, {"mode": "both"}])
def test_options__are_checked(options: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="RMIA"):
        RMIA(**options)


def test_fit__online_asked_of_offline_shadows_is_refused(
    make_moco: Callable[..., Any], make_view: Callable[..., Any], images: Tensor, known: Known
) -> None:
    attack = RMIA(mode="online")
    view = make_view(attack, make_moco(), images)
    with pytest.raises(InputError, match=r"rmia \(online\) needs .* trained on it; 22 of 22"):
        attack.fit(view, known, rng(0))


# -- where images differ in difficulty


@pytest.fixture(scope="module")
def world(textures: Callable[..., Tensor]) -> _difficulty.World:
    return _difficulty.make_world(textures(320))


@pytest.mark.parametrize(
    ("options", "count", "online", "least"),
    [({}, 1, False, 0.95), ({}, 4, False, 0.95), ({"signal": "loss"}, 4, False, 0.95),
     pytest.param({}, 8, True, 0.98, marks=pytest.mark.slow)],
)  # fmt: skip
def test_planted__difficulty_hides_members_from_similarity_alone(
    world: _difficulty.World, options: dict[str, Any], count: int, online: bool, least: float
) -> None:
    view = world.view(world.target(), world.shadows(count, online))
    plain, attack = world.scores(Similarity(), view), RMIA(**options)
    scores = world.scores(attack, view)
    assert attack._online == online
    assert _difficulty.auc(*plain) < 0.7 < least < _difficulty.auc(*scores)
    assert _difficulty.tpr(*plain) < 0.1 and _difficulty.tpr(*scores) > 0.2


@pytest.mark.slow
def test_planted__a_of_classifiers_calibrates_too_little(world: _difficulty.World) -> None:
    view = world.view(world.target(), world.shadows(4))
    fixed = _difficulty.auc(*world.scores(RMIA(offline_a=0.33), view))
    chosen = _difficulty.auc(*world.scores(RMIA(), view))
    assert 0.8 < fixed < 0.9 < 0.95 < chosen


def test_planted__models_that_know_no_member_give_chance(world: _difficulty.World) -> None:
    view = world.view(world.model([], seed=0), world.shadows(2))
    value = _difficulty.auc(*world.scores(RMIA(), view))
    n = len(world.members)
    assert abs(value - 0.5) < 3 * np.sqrt((2 * n + 1) / (12 * n * n))
