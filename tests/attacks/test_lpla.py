"""LpLA against loops transcribed from the paper and known posteriors; a leak in the length of
features, which those who look there find, and nobody where it is not."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from fedmia.attacks.base import Known, Scores
from fedmia.attacks.lpla import LpLA, random_pixels
from fedmia.settings import registry
from fedmia.settings.errors import InputError
from tests.attacks.planted import Leak, norm_leak

ORDERS = [0.0, 0.1, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0]


def rng() -> np.random.Generator:
    return np.random.default_rng(0)


class Vectors:
    """A view that answers image i, of pixels i, with row i of a table."""

    def __init__(self, rows: Tensor) -> None:
        self.rows = rows

    def embed_plain(self, images: Tensor, layer: str) -> Tensor:
        return self.rows[images.flatten(1)[:, 0].long()]


def scores_of(rows: Tensor, known: Known, images: Tensor, **options: Any) -> Scores:
    """Of images by `LpLA`, where the view answers with rows of a table."""
    attack, view = LpLA(**options), Vectors(rows)
    attack.fit(view, known, rng())  # type: ignore[arg-type]
    return attack.score(view, images)  # type: ignore[arg-type]


def numbered(first: int, last: int) -> Tensor:
    """Images first..last - 1 for `Vectors`."""
    return torch.arange(first, last, dtype=torch.uint8)[:, None, None, None].expand(-1, 3, 2, 2)


def naive_norm(row: list[float], p: float, tolerance: float = 0.0) -> float:
    """Eq. 12 with absolute values."""
    if p == 0:
        return float(sum(1 for v in row if abs(v) > tolerance))
    return float(sum(abs(v) ** p for v in row) ** (1 / p))


def naive_scores(rows: Tensor, k: int, q: int, p: float) -> list[float]:
    """Eq. 12-15 for every row after the k members and the q non-members."""
    norms = [naive_norm(r, p, 1e-6) for r in rows.double().tolist()]
    sides = []
    for side in (norms[:k], norms[k : k + q]):
        mean = sum(side) / len(side)
        sides.append((mean, sum((x - mean) ** 2 for x in side) / (len(side) - 1)))

    def density(x: float, mean: float, variance: float) -> float:
        return math.exp(-((x - mean) ** 2) / (2 * variance)) / math.sqrt(2 * math.pi * variance)

    return [math.log(density(x, *sides[0]) / density(x, *sides[1])) for x in norms[k + q :]]


@pytest.mark.parametrize("p", ORDERS)
def test_score__naive_twin(p: float) -> None:
    rows = torch.randn(60, 9, generator=torch.Generator().manual_seed(1))
    rows[rows < 0.1] = 0
    rows[:12] *= 0.8
    got = scores_of(rows, Known(numbered(0, 12), numbered(12, 22)), numbered(22, 60), p=p)
    np.testing.assert_allclose(got, naive_scores(rows, 12, 10, p), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("reading", ["likelihood", "threshold"])
def test_score__norms_that_do_not_differ_give_one_score(reading: str) -> None:
    """p = 0 counts every entry of dense signed vectors; p = 2 is 1 on normalised ones."""
    rows = torch.randn(40, 8, generator=torch.Generator().manual_seed(0))
    known = Known(numbered(0, 10), numbered(10, 20))
    for p, table in ((0.0, rows), (2.0, torch.nn.functional.normalize(rows)), (2.0, 0 * rows)):
        got = scores_of(table, known, numbered(20, 40), p=p, reading=reading)
        np.testing.assert_array_equal(got, np.zeros(20))


@pytest.mark.parametrize("spread", [(False, False), (True, False), (False, True)])
def test_score__one_norm_on_a_side_is_no_division_by_zero(spread: tuple[bool, bool]) -> None:
    rows = torch.ones(40, 4)
    rows[10:20] = 2
    for side, varied in zip((slice(0, 10), slice(10, 20)), spread, strict=True):
        if varied:
            rows[side] += torch.linspace(-0.2, 0.2, 10)[:, None]
    rows[30:] = 2
    got = scores_of(rows, Known(numbered(0, 10), numbered(10, 20)), numbered(20, 40))
    assert np.isfinite(got).all()
    assert got[:10].min() > 0 > got[10:].max()


@pytest.mark.parametrize("shorter", [True, False])
def test_threshold__is_the_norm_in_the_direction_of_the_known_images(shorter: bool) -> None:
    rows = torch.linspace(1, 2, 60)[:, None] * torch.ones(60, 3)
    low, high = numbered(0, 10), numbered(50, 60)
    known = Known(low, high) if shorter else Known(high, low)
    got = scores_of(rows, known, numbered(0, 60), reading="threshold")
    assert (np.diff(got) < 0).all() if shorter else (np.diff(got) > 0).all()
    assert got[:30].min() * got[30:].max() < 0  # 0 lies in the middle of the two means
    np.testing.assert_allclose(got[:30], -got[30:][::-1], atol=1e-6)


def test_random_pixels__need_known_members_only() -> None:
    leak = norm_leak(known=20)
    members = leak.known.members
    scores = []
    for others in (leak.known.nonmembers, members[:0]):
        attack = LpLA(nonmembers="random-pixels")
        attack.fit(leak.view, Known(members, others), rng())
        scores.append(attack.score(leak.view, leak.images))
    assert leak.view.queries == 2 * (2 * len(members) + len(leak.images))
    np.testing.assert_array_equal(scores[0], scores[1])
    assert np.isfinite(scores[0]).all() and len(np.unique(scores[0])) > 10
    with pytest.raises(InputError, match="2 known members, got 1"):
        LpLA(nonmembers="random-pixels").fit(leak.view, Known(members[:1], members), rng())


def test_random_pixels__are_uniform_and_seeded() -> None:
    like = torch.zeros(200, 3, 4, 5, dtype=torch.uint8)
    got = random_pixels(like, rng())
    assert got.shape == like.shape and got.dtype == torch.uint8
    assert torch.equal(got, random_pixels(like, rng()))
    assert abs(float(got.float().mean()) - 127.5) < 3 and int(got.max()) == 255


# -- a leak of norms


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
