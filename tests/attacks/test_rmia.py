"""RMIA and the signals that it shares with LiRA, against loops.

Where images differ in difficulty: test_difficulty.py."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedmia.attacks._measure import EDGE, logit, membership_signal
from fedmia.attacks._reference import ReferenceSignals
from fedmia.attacks.base import Known
from fedmia.attacks.rmia import GRID, RMIA, choose_a, dominated_share
from fedmia.seeding import rng
from fedmia.settings.errors import InputError
from fedmia.ssl.augment import Augment
from fedmia.threat import BlackBox
from tests.attacks.loops import naive_pairs, naive_similarity
from tests.attacks.planted import view_of


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
    signals = drawn(9, 5)
    got = RMIA().ratios(signals, a)
    for i in range(9):
        out = np.mean([signals.references[s, i] for s in range(5) if not signals.inside[s, i]])
        assert got[i] == pytest.approx(signals.target[i] / (((1 + a) * out + (1 - a)) / 2))


def test_ratios__online_by_half_of_the_models_with_the_image() -> None:
    """However many shadows of either kind there are, p(x) weighs the kinds alike."""
    attack, signals = RMIA(mode="online", offline_a=0.5), drawn(9, 5)
    attack.read = lambda view, images: signals  # type: ignore[method-assign]
    some = torch.zeros(9, 1, 1, 1, dtype=torch.uint8)
    attack.fit(Untold(), Known(some, some), rng(0))  # type: ignore[arg-type]
    got = attack.ratios(signals, 0.33)
    for i in range(9):
        kinds = [
            np.mean([signals.references[s, i] for s in range(5) if signals.inside[s, i] == side])
            for side in (True, False)
        ]
        assert got[i] == pytest.approx(signals.target[i] / np.mean(kinds))


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


@pytest.mark.parametrize("offline_a", [0.5, None])
def test_population__is_the_known_nonmembers(offline_a: float | None) -> None:
    """Known members help to choose a where it is left to them, and nobody is compared with them."""
    signals, images = drawn(12, 4), torch.arange(12, dtype=torch.uint8).reshape(12, 1, 1, 1)

    class Given(RMIA):
        name = RMIA.name

        def read(self, view: Any, images: Tensor) -> ReferenceSignals:
            return signals.of(np.isin(whole.flatten(), images.flatten()))

    whole, attack = images, Given(offline_a=offline_a)
    attack.fit(Untold(), Known(images[:5], images[5:]), rng(0))  # type: ignore[arg-type]
    ratios = {a: attack.ratios(signals, a) for a in ([offline_a] if offline_a else GRID)}
    got = attack.score(Untold(), images)  # type: ignore[arg-type]
    assert any(
        np.array_equal(got, dominated_share(ratio, np.sort(ratio[5:]), 1.0))
        for ratio in ratios.values()
    )


def test_fit__online_of_offline_shadows_is_refused(
    make_moco: Callable[..., Any], make_view: Callable[..., Any], images: Tensor, known: Known
) -> None:
    attack = RMIA(mode="online")
    with pytest.raises(InputError, match=r"rmia \(online\) needs .* trained on it; 22 of 22"):
        attack.fit(make_view(attack, make_moco(), images), known, rng(0))


# -- signals


@pytest.fixture
def view(make_moco: Callable[..., Any]) -> BlackBox:
    box: BlackBox = view_of(make_moco(), Augment(hue=0.1), BlackBox)
    return box


def cosine(a: Tensor, b: Tensor) -> float:
    return naive_similarity(a.double().tolist(), b.double().tolist())


def test_similarity__is_the_mean_cosine_from_0_to_1(view: BlackBox, images: Tensor) -> None:
    got = membership_signal(
        view, images, images[:0], signal="similarity", views=4, layer="auto", temperature=0.2
    )
    assert view.queries == 4 * 20
    for row, p in zip(view.embed_views(images, 4), got, strict=True):
        mean = float(np.mean(naive_pairs(row)))
        assert p == pytest.approx((1 + mean) / 2)
        assert logit(np.array([p]))[0] == pytest.approx(2 * math.atanh(mean), rel=1e-4)


def test_loss__is_the_chance_of_picking_the_other_view(
    view: BlackBox, images: Tensor, known: Known
) -> None:
    """Of the image itself no negative is made, though it may be among the known."""
    others = torch.cat([known.nonmembers, images[3:5]])
    got = membership_signal(
        view, images, others, signal="loss", views=5, layer="auto", temperature=0.3
    )
    assert view.queries == 5 * 20 + 12
    keys = view.embed_plain(others)
    for i, row in enumerate(view.embed_views(images, 5)):
        picked = []
        for j in range(2):
            right = math.exp(cosine(row[j], row[2 + j]) / 0.3)
            wrong = [
                math.exp(cosine(row[j], key) / 0.3)
                for key, image in zip(keys, others, strict=True)
                if not torch.equal(image, images[i])
            ]
            picked.append(right / (right + sum(wrong)))
        assert got[i] == pytest.approx(math.prod(picked) ** 0.5, rel=1e-6)


def test_norm__is_relative_to_the_known_images(
    view: BlackBox, images: Tensor, known: Known
) -> None:
    got = membership_signal(
        view, images, known.members, signal="norm", views=2, layer="auto", temperature=0.2
    )
    assert view.queries == 20 + 12
    typical = math.prod(float(v.norm()) for v in view.embed_plain(known.members, "avgpool"))
    typical **= 1 / len(known.members)
    norms = view.embed_plain(images, "avgpool").norm(dim=1).tolist()
    np.testing.assert_allclose(got, [typical / (typical + n) for n in norms], rtol=1e-5)
    assert np.argmax(got) == np.argmin(norms)


def test_measure__stays_off_the_edges(images: Tensor) -> None:
    class Flat(BlackBox):
        def embed_views(self, images: Tensor, views: int, *rest: Any) -> Tensor:
            return torch.ones(len(images), views, 3)

    view = Flat.__new__(Flat)
    got = membership_signal(
        view, images, images, signal="similarity", views=4, layer="auto", temperature=0.2
    )
    assert (got == 1 - EDGE).all() and np.isfinite(logit(got)).all()


@pytest.mark.parametrize(("signal", "count"), [("loss", 1), ("norm", 0)])
def test_measure__needs_known_images(
    signal: str, count: int, view: BlackBox, images: Tensor
) -> None:
    with pytest.raises(InputError, match=f"'{signal}' needs at least"):
        membership_signal(
            view, images[5:], images[:count], signal=signal, views=4, layer="auto", temperature=0.2
        )
