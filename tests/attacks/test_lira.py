"""LiRA against loops with scipy, on known Gaussians, and where images differ in difficulty."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import _difficulty
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import norm
from torch import Tensor

from fedmia.attacks._measure import logit
from fedmia.attacks.base import Known
from fedmia.attacks.lira import FEW, LEAST, LiRA
from fedmia.attacks.similarity import Similarity
from fedmia.data.images import digests
from fedmia.options.errors import InputError
from fedmia.options.seeding import rng
from fedmia.threat import Shadow


class Told:
    """A view whose signals are told: image -> p in (0, 1)."""

    def __init__(self, images: Tensor, p: NDArray[np.float64]) -> None:
        self.table = dict(zip(digests(images.numpy()), p.tolist(), strict=True))
        self.shadows: tuple[Shadow, ...] = ()

    def __call__(self, images: Tensor) -> NDArray[np.float64]:
        return np.array([self.table[n] for n in digests(images.numpy())])


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(self: LiRA, view: Any, images: Tensor) -> NDArray[np.float64]:
        return view(images)  # type: ignore[no-any-return]

    monkeypatch.setattr(LiRA, "measure", measure)


def blanks(count: int) -> Tensor:
    """Different images."""
    return torch.arange(count, dtype=torch.int32).view(torch.uint8).view(count, 1, 2, 2)


def sigmoid(x: NDArray[np.float64]) -> NDArray[np.float64]:
    return 1 / (1 + np.exp(-x))


def scene(
    images: Tensor,
    target: NDArray[np.float64],
    rows: NDArray[np.float64],
    inside: NDArray[np.bool_],
) -> Told:
    """A told target with told shadows: logits (N,), (R, N), and who was trained on what."""
    view = Told(images, sigmoid(target))
    view.shadows = tuple(
        Shadow(Told(images, sigmoid(row)), images[which], images[~which])  # type: ignore[arg-type]
        for row, which in zip(rows, inside, strict=True)
    )
    return view


def drawn(count: int, shadows: int, seed: int = 0) -> tuple[Any, Any, Any]:
    """Logits of target and shadows, and membership in the shadows, at random."""
    draw = rng(seed, "told")
    inside = draw.random((shadows, count)) < 0.5
    inside[:2], inside[2:4] = True, False  # two of either kind at least
    hard = 2 * draw.standard_normal(count)
    rows = hard + 0.3 * draw.standard_normal((shadows, count)) + 0.5 * inside
    return hard + draw.standard_normal(count), rows, inside


def fitted(attack: LiRA, view: Any, known: Known) -> LiRA:
    attack.fit(view, known, rng(0))
    return attack


# -- formulas


def test_offline__is_the_papers_test_of_each_image_alone(told: None) -> None:
    images, (target, rows, inside) = blanks(12), drawn(12, 10)
    view = scene(images, target, rows, inside)
    known = Known(images[:3], images[3:6])
    attack = fitted(LiRA(mode="offline", variance="individual"), view, known)
    got = attack.score(view, images)  # type: ignore[arg-type]
    for i in range(12):
        out = [rows[s, i] for s in range(10) if not inside[s, i]]
        assert norm.cdf(got[i]) == pytest.approx(
            1 - norm.sf(target[i], np.mean(out), np.std(out)), abs=1e-9
        )


def test_online__is_the_log_likelihood_ratio(told: None) -> None:
    images, (target, rows, inside) = blanks(12), drawn(12, 10)
    view = scene(images, target, rows, inside)
    attack = fitted(LiRA(variance="individual"), view, Known(images[:3], images[3:6]))
    got = attack.score(view, images)  # type: ignore[arg-type]
    for i in range(12):
        each = [[rows[s, i] for s in range(10) if inside[s, i] == side] for side in (True, False)]
        terms = [norm.logpdf(target[i], np.mean(e), np.std(e)) for e in each]
        assert got[i] == pytest.approx(terms[0] - terms[1])


def test_fixed__pools_the_shadows_own_images(told: None) -> None:
    """One deviation a kind, about each image's mean; the candidates (the last two) have no part."""
    images, (target, rows, inside) = blanks(14), drawn(14, 7)
    inside[:, 12:] = False
    view = scene(images[:14], target, rows, inside)
    for shadow in view.shadows:  # the candidates are nobody's images
        object.__setattr__(shadow, "nonmembers", shadow.nonmembers[:-2])
    known = Known(images[:3], images[3:6])
    attack = fitted(LiRA(mode="offline"), view, known)
    squares, freedom = np.zeros(2), np.zeros(2)
    for i in range(12):
        for side in (0, 1):
            kind = [rows[s, i] for s in range(7) if inside[s, i] == bool(side)]
            squares[side] += np.var(kind) * len(kind)
            freedom[side] += len(kind) - 1
    # The known images are among the shadows' own here, and count for both.
    for i in range(6):
        for side in (0, 1):
            kind = [rows[s, i] for s in range(7) if inside[s, i] == bool(side)]
            squares[side] += np.var(kind) * len(kind)
            freedom[side] += len(kind) - 1
    out, within = np.sqrt(squares / freedom)
    assert attack._deviations == pytest.approx((within, out))
    want = [(target[i] - np.mean(rows[:, i])) / out for i in (12, 13)]
    np.testing.assert_allclose(attack.score(view, images[12:]), want)  # type: ignore[arg-type]


def test_online__with_a_fixed_variance_holds_each_side_to_its_own_deviation(told: None) -> None:
    """Shadows that know an image differ by three times as much as those that do not."""
    images, (_, rows, inside), draw = blanks(12), drawn(12, 10), rng(0, "wider")
    rows = np.where(inside, 0.9, 0.3) * draw.standard_normal(rows.shape) + inside
    target = draw.standard_normal(12)
    view = scene(images, target, rows, inside)
    attack = fitted(LiRA(variance="fixed"), view, Known(images[:3], images[3:6]))
    within, out = attack._deviations or (0.0, 0.0)
    assert 2 * out < within < 1.3
    want = [
        norm.logpdf(target[i], rows[inside[:, i], i].mean(), within)
        - norm.logpdf(target[i], rows[~inside[:, i], i].mean(), out)
        for i in range(12)
    ]
    np.testing.assert_allclose(attack.score(view, images), want)  # type: ignore[arg-type]


def test_auto_variance__is_individual_from_32_shadows_on(told: None) -> None:
    for count, single in ((FEW - 1, False), (FEW, True)):
        images, found = blanks(8), drawn(8, count)
        attack = fitted(LiRA(), scene(images, *found), Known(images[:3], images[3:6]))
        assert (attack._deviations is None) == single


# -- known Gaussians


def test_offline__finds_what_theory_says(told: None) -> None:
    """Members stand 2 deviations out; the mean of 5 shadows adds a fifth to the variance."""
    n, draw = 4000, rng(0, "gauss")
    images, hard = blanks(n + 8), 3 * draw.standard_normal(n + 8)
    truth = np.arange(n + 8) < n // 2
    target = hard + draw.standard_normal(n + 8) + 2 * truth
    rows = hard + draw.standard_normal((5, n + 8))
    view = scene(images, target, rows, np.zeros((5, n + 8), dtype=bool))
    attack = fitted(LiRA(), view, Known(images[n : n + 4], images[n + 4 :]))
    got = attack.score(view, images[:n])  # type: ignore[arg-type]
    want = norm.cdf(2 / np.sqrt(2 * 1.2))
    assert _difficulty.auc(got[: n // 2], got[n // 2 :]) == pytest.approx(want, abs=0.015)
    plain = target[:n]
    assert _difficulty.auc(plain[: n // 2], plain[n // 2 :]) < 0.75


def test_online__sees_members_that_stand_out_downwards(told: None) -> None:
    """Half of the images lose by training on them: offline looks for a gain, online for a fit."""
    n, draw = 1000, rng(1, "gauss")
    images, sign = blanks(n), np.where(np.arange(n) % 2, 1, -1)
    inside = draw.random((20, n)) < 0.5
    inside[:2], inside[2:4] = True, False
    truth = draw.random(n) < 0.5
    rows = draw.standard_normal((20, n)) + 3 * inside * sign
    target = draw.standard_normal(n) + 3 * truth * sign
    view = scene(images, target, rows, inside)
    results = {}
    for mode in ("online", "offline"):
        attack = fitted(LiRA(mode=mode), view, Known(images[:4], images[4:8]))
        got = attack.score(view, images)  # type: ignore[arg-type]
        results[mode] = _difficulty.auc(got[truth], got[~truth])
    assert results["online"] > 0.95 > 0.6 > results["offline"]


# -- invariances


def test_score__an_images_difficulty_plays_no_part(told: None) -> None:
    images, (target, rows, inside) = blanks(12), drawn(12, 10)
    known, harder = Known(images[:3], images[3:6]), rng(0, "harder").standard_normal(12)
    for mode in ("offline", "online"):
        got = [
            fitted(LiRA(mode=mode), view, known).score(view, images)  # type: ignore[arg-type]
            for view in (
                scene(images, target, rows, inside),
                scene(images, target + harder, rows + harder, inside),
            )
        ]
        np.testing.assert_allclose(*got, rtol=1e-6)


def test_score__what_other_images_are_scored_plays_no_part(told: None) -> None:
    images, found = blanks(12), drawn(12, 10)
    view = scene(images, *found)
    attack = fitted(LiRA(), view, Known(images[:3], images[3:6]))
    whole = attack.score(view, images)  # type: ignore[arg-type]
    np.testing.assert_array_equal(attack.score(view, images[7:9]), whole[7:9])  # type: ignore[arg-type]


def test_score__in_and_out_go_by_content(told: None) -> None:
    """A shadow's own copy of an image, elsewhere in its list, is that image."""
    images, (target, rows, inside) = blanks(6), drawn(6, 6)
    view = scene(images, target, rows, inside)
    known = Known(images[:2], images[2:4])
    want = fitted(LiRA(), view, known).score(view, images)  # type: ignore[arg-type]
    view.shadows = tuple(
        Shadow(s.view, s.members.flip(0).clone(), s.nonmembers.flip(0).clone())
        for s in view.shadows
    )
    got = fitted(LiRA(), view, known).score(view, images)  # type: ignore[arg-type]
    np.testing.assert_array_equal(got, want)


# -- few shadows, and modes


def test_one_shadow__gives_the_difference(told: None) -> None:
    images, (target, rows, _) = blanks(6), drawn(6, 4)
    view = scene(images, target, rows[:1], np.zeros((1, 6), dtype=bool))
    attack = fitted(LiRA(), view, Known(images[:2], images[2:4]))
    np.testing.assert_allclose(attack.score(view, images), target - rows[0])  # type: ignore[arg-type]


def test_individual__of_shadows_that_agree_stays_finite(told: None) -> None:
    images, (target, rows, _) = blanks(6), drawn(6, 4)
    view = scene(images, target, rows[[0, 0, 0]], np.zeros((3, 6), dtype=bool))
    attack = fitted(LiRA(variance="individual"), view, Known(images[:2], images[2:4]))
    got = attack.score(view, images)  # type: ignore[arg-type]
    np.testing.assert_allclose(got, (target - rows[0]) / LEAST, rtol=1e-5)


def test_auto__is_online_where_the_known_images_have_both_kinds(told: None) -> None:
    images, (target, rows, inside) = blanks(8), drawn(8, 6)
    known = Known(images[:2], images[2:4])
    attack = fitted(LiRA(), scene(images, target, rows, inside), known)
    assert attack._online
    inside[:, 3] = False
    offline = fitted(LiRA(), scene(images, target, rows, inside), known)
    assert not offline._online
    asked = fitted(LiRA(mode="offline"), scene(images, *drawn(8, 6)), known)
    assert not asked._online


@pytest.mark.parametrize(
    ("options", "row", "message"),
    [
        ({"mode": "offline"}, [True] * 4, "1 shadow encoder not trained on it; 1 of 6 images"),
        ({"mode": "online"}, [False] * 4, "1 shadow encoder trained on it; 1 of 6 images"),
        (
            {"mode": "offline", "variance": "individual"},
            [True, True, True, False],
            "2 shadow encoders not trained on it; 1 of 6 images have fewer among the 4",
        ),
    ],
)
def test_score__images_that_no_shadow_tells_about_are_refused(
    told: None, options: dict[str, Any], row: list[bool], message: str
) -> None:
    images, (target, rows, inside) = blanks(6), drawn(6, 4)
    inside[:, 5] = row
    view = scene(images, target, rows, inside)
    attack = fitted(LiRA(**options), view, Known(images[:2], images[2:4]))
    with pytest.raises(InputError, match=message):
        attack.score(view, images)  # type: ignore[arg-type]


def test_fit__without_shadows_is_refused(
    make_moco: Callable[..., Any], make_view: Callable[..., Any], images: Tensor, known: Known
) -> None:
    view = make_view(LiRA(), make_moco(), images, shadows=())
    with pytest.raises(InputError, match="needs shadow encoders"):
        LiRA().fit(view, known, rng(0))


# -- where images differ in difficulty


@pytest.fixture(scope="module")
def world(textures: Callable[..., Tensor]) -> _difficulty.World:
    return _difficulty.make_world(textures(320))


@pytest.mark.parametrize(
    ("options", "count", "online", "least"),
    [
        ({}, 1, False, 0.95),
        ({}, 4, False, 0.98),
        ({"signal": "loss"}, 4, False, 0.9),
        pytest.param({}, 8, True, 0.98, marks=pytest.mark.slow),
    ],
)
def test_planted__difficulty_hides_members_from_similarity_alone(
    world: _difficulty.World, options: dict[str, Any], count: int, online: bool, least: float
) -> None:
    view = world.view(world.target(), world.shadows(count, online))
    plain = world.scores(Similarity(), view)
    attack = LiRA(**options)
    scores = world.scores(attack, view)
    assert attack._online == online
    assert _difficulty.auc(*plain) < 0.7 < least < _difficulty.auc(*scores)
    if not options:
        assert _difficulty.tpr(*plain) < 0.1 and _difficulty.tpr(*scores) > 0.6


def test_planted__models_that_know_no_member_give_chance(world: _difficulty.World) -> None:
    view = world.view(world.model([], seed=0), world.shadows(2))
    value = _difficulty.auc(*world.scores(LiRA(), view))
    n = len(world.members)
    assert abs(value - 0.5) < 3 * np.sqrt((2 * n + 1) / (12 * n * n))


def test_logit__is_the_scale_by_default(told: None) -> None:
    images, (target, rows, inside) = blanks(6), drawn(6, 4)
    view = scene(images, target, rows, inside)
    plain = fitted(LiRA(scale="none", mode="offline"), view, Known(images[:2], images[2:4]))
    assert plain._scaled(sigmoid(target)) == pytest.approx(sigmoid(target))
    attack = fitted(LiRA(mode="offline"), view, Known(images[:2], images[2:4]))
    assert attack._scaled(sigmoid(target)) == pytest.approx(logit(sigmoid(target)))
