"""What an audit hands to whom: each test fails for one wire that leads to the wrong place."""

from __future__ import annotations

import csv
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from fedmia.attacks.base import Attack, Known, Scores
from fedmia.data.images import digests
from fedmia.evaluation.steps.scorer import Scorer, match_scale
from fedmia.threat import Threat
from tests.auditing.attacks import GIVEN, named
from tests.auditing.conftest import Audit, Sides, write

VIEW: Any = SimpleNamespace(
    threat=Threat("black_box", "outsider"), queries=0, unmetered=nullcontext
)


class Stub(Attack):
    """What an attack declares."""

    paper: ClassVar[str] = "none"
    needs: ClassVar[Threat] = Threat("black_box", "outsider")
    looks_at: ClassVar[tuple[str, ...]] = ("features",)


@dataclass
class ByHeart(Stub):
    """Scores the images that it was fitted on as members far over all others, which go by a
    pixel."""

    _known: set[bytes] = field(default_factory=set, init=False)

    def fit(self, view: Any, known: Known, rng: np.random.Generator) -> None:
        self._known = set(digests(known.members.numpy()))

    def score(self, view: Any, images: Tensor) -> Scores:
        known = np.array([d in self._known for d in digests(images.numpy())])
        return images[:, 0, 0, 0].double().numpy() + 1000 * known


COUNTS = (30, 30, 100, 100)


def test_threshold__knows_nothing_of_what_was_learnt_by_heart() -> None:
    """Known members, each left out of the fit that scores it, lie among the images under test, as
    the known non-members do: a threshold over all of these would call nobody a member."""
    draw = np.random.default_rng(0)
    sides = [torch.from_numpy(draw.integers(0, 256, (n, 1, 2, 2), np.uint8)) for n in COUNTS]
    scorer = Scorer(Known(*sides[:2]), *sides[2:], 0, lambda name: ByHeart())
    result = scorer.score_attack("by-heart", VIEW)
    under_test = np.concatenate([result.scores_members, result.scores_nonmembers])
    for side, scores in zip(sides, (result.known_members, result.known_nonmembers), strict=False):
        pixels = side[:, 0, 0, 0].double().numpy()
        np.testing.assert_allclose(scores, match_scale(pixels, under_test, under_test))
    assert result.known_members.min() < 100 < result.known_members.max() <= under_test.max()


@dataclass
class Drifting(Stub):
    """Reads the first pixel, on a scale that every fit draws anew."""

    _scale: tuple[float, float] = field(default=(0.0, 0.0), init=False)

    def fit(self, view: Any, known: Known, rng: np.random.Generator) -> None:
        self._scale = (rng.uniform(0.2, 5), rng.uniform(-500, 500))

    def score(self, view: Any, images: Tensor) -> Scores:
        return images[:, 0, 0, 0].double().numpy() * self._scale[0] + self._scale[1]


@pytest.mark.parametrize("seed", range(3))
def test_threshold__is_on_the_scale_of_the_fit_that_scores(seed: int) -> None:
    """Members are 40 levels brighter; pooled as they come, the refits' scores choose by chance."""
    draw = np.random.default_rng(seed)
    sides = [
        torch.from_numpy(draw.normal(m, 20, (n, 1, 2, 2)).clip(0, 255).astype(np.uint8))
        for n in (40, 200)
        for m in (140, 100)
    ]
    scorer = Scorer(Known(*sides[:2]), *sides[2:], seed, lambda name: Drifting())
    scored = scorer.score_attack("drifting", VIEW)

    def right(cut: float) -> float:
        inside, outside = scored.scores_members > cut, scored.scores_nonmembers > cut
        return float(inside.mean() + 1 - outside.mean()) / 2

    known = np.concatenate([scored.known_members, scored.known_nonmembers])
    truth = np.arange(len(known)) < len(scored.known_members)
    cut = max(known, key=lambda at: ((known > at) == truth).mean())
    every = np.concatenate([scored.scores_members, scored.scores_nonmembers])
    best = max(map(right, every))
    assert best > 0.8 and right(cut) > best - 0.04


def test_on_scale__keeps_ties_and_order() -> None:
    own, other = np.array([0.0, 0, 0, 1, 1]), np.array([5.0, 5, 9, 9, 9])
    assert match_scale(np.array([0.0, 1.0, -7.0, 7.0]), own, other).tolist() == [5.0, 9.0, 5.0, 9.0]
    values = np.random.default_rng(0).normal(size=50)
    assert match_scale(values, values, values).tolist() == values.tolist()


class Brightness(Drifting):
    """Judges a set by its mean, and by minus that without its act."""

    def score_sets(self, view: Any, sets: Tensor, known: Known) -> Scores:
        mean = sets.double().mean(dim=(1, 2, 3, 4)).numpy()
        return np.stack([mean, -mean], axis=1)


def test_sets__each_gets_what_was_said_of_it() -> None:
    """An attack sees the sets of both sides shuffled."""
    draw = np.random.default_rng(0)
    sides = [
        torch.from_numpy(draw.integers(0, 256, (n, 1, 2, 2), np.uint8)) for n in (20, 20, 56, 40)
    ]
    scorer = Scorer(Known(*sides[:2]), *sides[2:], 0, lambda name: Brightness())
    result = scorer.score_attack("brightness", VIEW, scorer.sets, threshold=False)
    ours, theirs = scorer.sets
    assert len(ours) == 7 and len(theirs) == 5
    for images, places, said in (
        (sides[2], ours, result.sets_members),
        (sides[3], theirs, result.sets_nonmembers),
    ):
        mean = images[places].double().mean(dim=(1, 2, 3, 4)).numpy()
        np.testing.assert_allclose(said, np.stack([mean, -mean], axis=1))


def test_untrained_control__has_rows_of_its_own(audit: Audit) -> None:
    """What the control's view embeds is the control's, also after the encoder's view has embedded
    the same images."""
    GIVEN.clear()
    assert audit(f"--attacks {named('Embeds')}").code == 0
    main, _, control = GIVEN  # the candidates, the known images, and the control's candidates
    assert torch.equal(main.images, control.images)
    trained, untrained = (one.view.embed_plain(one.images, "encoder") for one in (main, control))
    assert not torch.allclose(trained, untrained)
    network = control.view._method.encoder
    with torch.no_grad():
        fresh = network(control.images.float() / 255)
    torch.testing.assert_close(untrained, fresh, rtol=1e-5, atol=1e-6)


def test_classes__have_one_number_on_both_sides(audit: Audit, tmp_path: Path) -> None:
    """Where the members lack a class, their third is not the others' third."""
    images = np.random.default_rng(0).integers(0, 256, (40, 3, 8, 8), dtype=np.uint8)
    labels = np.tile([3, 5, 7, 9], 10)
    lacks = (labels != 5) & (np.arange(40) < 20)
    write(tmp_path / "members.npz", images[lacks], labels[lacks])
    write(tmp_path / "nonmembers.npz", images[20:], labels[20:])
    flags = Sides(tmp_path / "members.npz", tmp_path / "nonmembers.npz").flags
    GIVEN.clear()
    done = audit(f"{flags} --known 4 --attacks {named('Mean')}", tmp_path / "A")
    assert done.code == 0 and not any("No class" in note for note in done.report["notes"])
    with (tmp_path / "A" / "scores.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    sides = {"1": labels[lacks], "0": labels[20:]}
    of = {(row["label"], str(sides[row["truth"]][int(row["image"])])) for row in rows}
    assert len(of) == len({number for number, _ in of}) == 4
    one = GIVEN[0]
    at = [digests(images).index(name) for name in digests(one.images.numpy())]
    assert one.view.labels(one.images).tolist() == labels[at].astype(str).tolist()
