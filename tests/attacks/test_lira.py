"""LiRA against loops with scipy, and on known Gaussians; LiRA whose references are earlier rounds.

Where images differ in difficulty: test_difficulty.py."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.stats import norm
from torch import Tensor

from fedmia.attacks._reference import ReferenceSignals
from fedmia.attacks.base import Known, Scores
from fedmia.attacks.lira import FEW, LEAST, LiRA, LiRARounds
from fedmia.attacks.rmia import RMIARounds
from fedmia.data.images import digests
from fedmia.seeding import rng
from fedmia.settings.errors import InputError
from fedmia.statistics.auc import auc
from fedmia.threat import ClientView, Shadow
from tests.attacks.planted import CPU, MILD, fitted

Floats = NDArray[np.float64]


class Table:
    """A view whose signals stand in a table: image -> p in (0, 1)."""

    def __init__(self, images: Tensor, p: Floats) -> None:
        self.p = dict(zip(digests(images.numpy()), p.tolist(), strict=True))
        self.shadows: tuple[Shadow, ...] = ()

    def __call__(self, images: Tensor) -> Floats:
        return np.array([self.p[n] for n in digests(images.numpy())])


def blanks(count: int) -> Tensor:
    """Different images."""
    return torch.arange(count, dtype=torch.int32).view(torch.uint8).view(count, 1, 2, 2)


def sigmoid(x: Floats) -> Floats:
    return 1 / (1 + np.exp(-x))


class Scene:
    """A target and shadows of which the signals are known: logits (N,), (R, N), and who was trained
    on what. The first six images are known."""

    def __init__(self, target: Floats, rows: Floats, inside: NDArray[np.bool_]) -> None:
        self.target, self.rows, self.inside = target, rows, inside
        self.images = blanks(len(target))
        self.view = Table(self.images, sigmoid(target))
        self.view.shadows = tuple(
            Shadow(Table(self.images, sigmoid(row)), self.images[own], self.images[~own])  # type: ignore[arg-type]
            for row, own in zip(rows, inside, strict=True)
        )

    def scores(self, first: int = 0, kind: type[Any] = LiRA, **options: Any) -> Scores:
        """Of the images from `first` on, by LiRA or another of its kind that reads the table."""
        measure = {"measure": lambda self, view, images: view(images)}
        tabled = type("Tabled", (kind,), {"name": kind.name, **measure})
        attack = fitted(tabled(**options), self.view, Known(self.images[:3], self.images[3:6]))
        scores: Scores = attack.score(self.view, self.images[first:])
        return scores

    def sides(self, i: int) -> tuple[Floats, Floats]:
        """Logits of image i under the shadows with it, and under those without."""
        own = self.inside[:, i]
        return self.rows[own, i], self.rows[~own, i]


def drawn(count: int = 12, shadows: int = 10) -> Scene:
    """At random."""
    draw = rng(0, "told")
    inside = draw.random((shadows, count)) < 0.5
    inside[:2], inside[2:4] = True, False  # two of either kind at least
    hard = 2 * draw.standard_normal(count)
    rows = hard + 0.3 * draw.standard_normal((shadows, count)) + 0.5 * inside
    return Scene(hard + draw.standard_normal(count), rows, inside)


def unknown(target: Floats, rows: Floats) -> Scene:
    """No shadow was trained on any image."""
    return Scene(target, rows, np.zeros(rows.shape, dtype=bool))


# -- formulas


@pytest.mark.parametrize("scale", ["logit", "none"])
def test_offline__is_the_papers_test_of_each_image_alone(scale: str) -> None:
    here = drawn()
    got = here.scores(mode="offline", variance="individual", scale=scale)
    signal = sigmoid if scale == "none" else np.asarray
    for i in range(12):
        out = signal(here.sides(i)[1])
        tail = norm.sf(signal(here.target[i]), np.mean(out), np.std(out))
        assert norm.cdf(got[i]) == pytest.approx(1 - tail, abs=1e-9)


def test_online__is_the_log_likelihood_ratio() -> None:
    here = drawn()
    for i, score in enumerate(here.scores(variance="individual")):
        terms = [norm.logpdf(here.target[i], np.mean(e), np.std(e)) for e in here.sides(i)]
        assert score == pytest.approx(terms[0] - terms[1])


def pooled(here: Scene) -> Floats:
    """Deviations about an image's mean under the shadows with it, and under those without, over the
    shadows' own images, the first twelve; the known ones are among these and count for both."""
    squares, freedom = np.zeros(2), np.zeros(2)
    for i in (*range(12), *range(6)):
        for side, kind in enumerate(here.sides(i)):
            squares[side] += np.var(kind) * len(kind)
            freedom[side] += len(kind) - 1
    return np.asarray(np.sqrt(squares / freedom))


def test_fixed__pools_the_shadows_own_images() -> None:
    """The candidates, the last two, are no shadow's and have no part."""
    here = drawn(14, 7)
    here.inside[:, 12:] = False
    here = Scene(here.target, here.rows, here.inside)
    for shadow in here.view.shadows:
        object.__setattr__(shadow, "nonmembers", shadow.nonmembers[:-2])
    want = [(here.target[i] - np.mean(here.rows[:, i])) / pooled(here)[1] for i in (12, 13)]
    np.testing.assert_allclose(here.scores(12, mode="offline"), want)


def test_online__with_a_fixed_variance_holds_each_side_to_its_own_deviation() -> None:
    """Shadows that know an image differ by three times as much as those that do not."""
    inside, draw = drawn().inside, rng(0, "wider")
    rows = np.where(inside, 0.9, 0.3) * draw.standard_normal(inside.shape) + inside
    here = Scene(draw.standard_normal(12), rows, inside)
    within, out = pooled(here)
    assert 2 * out < within
    for i, score in enumerate(here.scores(variance="fixed")):
        own, apart = here.sides(i)
        want = norm.logpdf(here.target[i], own.mean(), within)
        assert score == pytest.approx(want - norm.logpdf(here.target[i], apart.mean(), out))


def test_auto__variance_is_individual_from_32_shadows_on() -> None:
    for count, variance in ((FEW - 1, "fixed"), (FEW, "individual")):
        here = drawn(8, count)
        np.testing.assert_array_equal(here.scores(), here.scores(variance=variance))


def test_auto__is_online_where_the_known_images_have_both_kinds() -> None:
    here = drawn(8, 6)
    np.testing.assert_array_equal(here.scores(), here.scores(mode="online"))
    here.inside[:, 3] = False
    here = Scene(here.target, here.rows, here.inside)
    np.testing.assert_array_equal(here.scores(), here.scores(mode="offline"))


# -- known Gaussians


def test_offline__finds_what_theory_says() -> None:
    """Members stand 2 deviations out; the mean of 5 shadows adds a fifth to the variance."""
    n, draw = 4000, rng(0, "gauss")
    hard = 3 * draw.standard_normal(n + 6)
    target = hard + draw.standard_normal(n + 6) + 2 * (np.arange(n + 6) >= n // 2 + 6)
    got = unknown(target, hard + draw.standard_normal((5, n + 6))).scores(6)
    theory = norm.cdf(2 / np.sqrt(2 * 1.2))
    assert auc(got[n // 2 :], got[: n // 2]) == pytest.approx(theory, abs=0.015)
    assert auc(target[n // 2 + 6 :], target[6 : n // 2 + 6]) < 0.75


# -- few shadows


def test_one_shadow__gives_the_difference() -> None:
    here = unknown(drawn(6).target, drawn(6).rows[:1])
    np.testing.assert_allclose(here.scores(), here.target - here.rows[0])


def test_individual__of_shadows_that_agree_stays_finite() -> None:
    here = unknown(drawn(6).target, drawn(6).rows[[0, 0, 0]])
    want = (here.target - here.rows[0]) / LEAST
    np.testing.assert_allclose(here.scores(variance="individual"), want, rtol=1e-5)


@pytest.mark.parametrize(
    ("options", "row", "message"),
    [
        ({"mode": "offline"}, [True] * 4, "1 shadow encoder not trained on it"),
        ({"mode": "online"}, [False] * 4, "1 shadow encoder trained on it"),
        ({"mode": "offline", "variance": "individual"}, [True, True, True, False],
         "2 shadow encoders not trained on it"),
    ],
)  # fmt: skip
def test_score__images_that_no_shadow_tells_about_are_refused(
    options: dict[str, Any], row: list[bool], message: str
) -> None:
    here = drawn(7, 4)
    here.inside[:, 6] = row
    message += "; 1 of 7 images have fewer among the 4"
    with pytest.raises(InputError, match=message):
        Scene(here.target, here.rows, here.inside).scores(**options)


# -- references by round


def client(method: Any, rounds: list[int]) -> ClientView:
    """A client that received other weights in each of `rounds`, in the first the method's own."""
    weights = method.shared_state()
    received = {r: {n: t + r - min(rounds) for n, t in weights.items()} for r in rounds}
    return ClientView(copy.deepcopy(method), MILD, seed=0, device=CPU, received=received)


# -- which rounds


@pytest.mark.parametrize(
    ("rounds", "share", "want"),
    [
        ([0, 1, 2, 3, 4, 5], 0.5, [0, 1, 2]),
        ([0, 10, 20], 0.5, [0, 10]),
        ([0, 10], 0.1, [0]),
        ([0, 10, 20, 30], 1.0, [0, 10, 20]),
        ([5], 0.5, [5]),
    ],
)
def test_references__are_the_first_rounds_and_never_the_last(
    make_moco: Callable[..., Any], rounds: list[int], share: float, want: list[int], images: Tensor
) -> None:
    view = client(make_moco(), rounds[::-1])
    models = LiRARounds(references=share).models(view, images)
    for (model, _), r in zip(models, want, strict=True):
        torch.testing.assert_close(model.state(), view.received[r], rtol=0, atol=0)
    assert not np.stack([inside for _, inside in models]).any()


@pytest.mark.parametrize("kind", [LiRARounds, RMIARounds])
def test_rounds__none_is_refused(
    kind: type[Any], make_moco: Callable[..., Any], known: Known
) -> None:
    with pytest.raises(InputError, match="-rounds needs the models of a federation's rounds"):
        kind().fit(client(make_moco(), []), known, rng(0))


def test_score__of_the_first_model_alone_is_nothing(
    make_moco: Callable[..., Any], images: Tensor, known: Known
) -> None:
    attack, view = LiRARounds(), client(make_moco(), [0])
    attack.fit(view, known, rng(0))
    assert (attack.score(view, images) == 0).all()


# -- formulas


def scores_of(images: Tensor, target: Any, rows: Any, **options: Any) -> Scores:
    """Of ten images by LiRARounds, which reads these logits: of six known images first."""
    calls = iter([slice(0, 6), slice(6, None)])

    def read(self: Any, view: Any, images: Tensor) -> ReferenceSignals:
        p = [1 / (1 + np.exp(-x[..., part])) for part in [next(calls)] for x in (target, rows)]
        return ReferenceSignals(p[0], p[1], np.zeros(p[1].shape, dtype=bool))

    given = type("Given", (LiRARounds,), {"read": read, "name": LiRARounds.name})
    attack = fitted(given(**options), None, Known(images[:3], images[3:6]))
    scores: Scores = attack.score(None, images[6:16])
    return scores


def standard(x: Any) -> Any:
    """Of mean 0 and deviation 1 on the known images."""
    return (x - np.mean(x[:6])) / np.std(x[:6])


@pytest.mark.parametrize("prior", [0.5, 4.0])
@pytest.mark.parametrize(("drift", "scale"), [(0, 1), (np.arange(4)[:, None], 2)])
def test_lira_rounds__is_the_gain_over_a_shrunk_deviation(
    prior: float, drift: Any, scale: float, images: Tensor
) -> None:
    """A drift of all images plays no part."""
    draw = rng(0, "told")
    target, rows = draw.standard_normal(16), draw.standard_normal((4, 16)) + 2
    got = scores_of(images, target, scale * rows + drift, prior=prior)
    t, r = standard(target), np.stack([standard(row) for row in rows])
    typical = np.mean([np.var(r[:, i], ddof=1) for i in range(6)])
    for i in range(6, 16):
        own = 3 * np.var(r[:, i], ddof=1)
        deviation = np.sqrt((prior * typical + own) / (prior + 3))
        assert got[i - 6] == pytest.approx((t[i] - np.mean(r[:, i])) / deviation)


def test_lira_rounds__of_one_reference_is_the_gain(images: Tensor) -> None:
    target, rows = rng(1, "told").standard_normal((2, 16))
    got = scores_of(images, target, rows[None])
    np.testing.assert_allclose(got, (standard(target) - standard(rows))[6:])


def test_lira_rounds__too_few_known_images_are_refused(
    make_moco: Callable[..., Any], images: Tensor
) -> None:
    with pytest.raises(InputError, match="lira-rounds needs at least 2 known images, got 1"):
        LiRARounds().fit(client(make_moco(), [0, 1]), Known(images[:1], images[:0]), rng(0))
