"""Stacking: by hand, with attacks that know what they were fitted on, and whose scores it reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from fedmia.attacks.base import ActiveAttack, Attack, DatasetAttack, Known, Scores
from fedmia.attacks.lpla import LpLA
from fedmia.attacks.similarity import Similarity
from fedmia.attacks.stacking import READABLE, Stacking, StackingRounds, StackingWhite
from fedmia.data.images import digests
from fedmia.seeding import rng
from fedmia.settings import option, registry
from fedmia.settings.errors import InputError
from fedmia.statistics.subjects import halves
from fedmia.threat import Threat
from tests.attacks.planted import NOBODY, Leak, chance, fitted, norm_leak, view_of


@dataclass
class Level(Attack):
    """Brightness, which says nothing; for the images that it was fitted on their truth."""

    paper: ClassVar[str] = "of this test"
    needs: ClassVar[Threat] = Threat("black_box", "outsider")

    def fit(self, view: Any, known: Known, rng: np.random.Generator) -> None:
        images, truth = known.both()
        self._truth = dict(zip(digests(images.numpy()), truth.tolist(), strict=True))

    def score(self, view: Any, images: Tensor) -> Scores:
        bright = images.float().mean(dim=(1, 2, 3)).double().numpy() / 255
        own = [self._truth.get(name) for name in digests(images.numpy())]
        return np.array([b if t is None else 100.0 * t for b, t in zip(bright, own, strict=True)])


@dataclass
class OfTests(Stacking):
    """Reads `Level`, and `lpla` where it is asked to."""

    lpla: bool = option(True, "whether it is read")

    def parts(self) -> list[Attack]:
        return [Level(), *([LpLA()] if self.lpla else [])]


@pytest.fixture(scope="module")
def leak() -> Leak:
    """In the length of vectors alone, which `lpla` reads and `similarity` does not."""
    return norm_leak(known=30)


# -- by hand


def test_score__is_the_mean_of_two_classifiers_each_fitted_apart_from_its_attacks(
    leak: Leak,
) -> None:
    members, others = leak.known.members, leak.known.nonmembers
    draw, wanted = rng(0, "fit"), np.zeros(len(leak.images))
    mine, theirs = halves(np.arange(30), draw), halves(np.arange(30), draw)
    for half in (0, 1):
        known = Known(members[mine[half]], others[theirs[half]])
        attacks = [fitted(LpLA(), leak.view, known), fitted(Similarity(), leak.view, known)]
        rest = torch.cat([members[mine[1 - half]], others[theirs[1 - half]]])
        rows, tested = (
            np.array([[float(a.score(leak.view, one[None])[0]) for a in attacks] for one in some])
            for some in (rest, leak.images)
        )
        mean, spread = np.mean(rows, axis=0), np.std(rows, axis=0)
        model = LogisticRegression(max_iter=1000)
        model.fit((rows - mean) / spread, [1] * 15 + [0] * 15)
        wanted += model.decision_function((tested - mean) / spread) / 2
    attack = Stacking(attacks=("lpla", "similarity"))
    attack.fit(leak.view, leak.known, rng(0, "fit"))
    got = attack.score(leak.view, leak.images)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6)


# -- traps


def test_attack__that_knows_what_it_was_fitted_on_is_not_believed(leak: Leak) -> None:
    """On its own images it is perfect, so a classifier that had seen them would read it alone."""
    assert leak.auc(OfTests()) > 0.95
    alone = leak.auc(OfTests(lpla=False))
    assert alone == chance(60, 60)
    level = fitted(Level(), leak.view, leak.known)
    both, truth = leak.known.both()
    assert set(zip(level.score(leak.view, both), truth, strict=True)) == {(100, 1), (0, 0)}


def test_fit__keeps_subjects_in_one_half(leak: Leak) -> None:
    subjects = np.arange(30) // 6, np.arange(30) // 5
    known = Known(leak.known.members, leak.known.nonmembers, subjects=subjects)
    attack = fitted(OfTests(), leak.view, known)
    names = digests(known.both()[0].numpy())
    every = np.concatenate([subjects[0], 100 + subjects[1]])
    seen = [
        {of for name, of in zip(names, every.tolist(), strict=True) if name in parts[0]._truth}
        for parts, _ in attack._stacks
    ]
    assert seen[0] and seen[1] and not seen[0] & seen[1] and seen[0] | seen[1] == {*every}


def test_untrained__control_is_fitted_on_itself(leak: Leak, make_moco: Callable[..., Any]) -> None:
    """What was learnt of the encoder plays no part in the scores of another."""
    attack, other = Stacking(), view_of(make_moco())
    fitted(attack, leak.view, leak.known)
    again = fitted(attack, other, leak.known).score(other, leak.images)
    alone = fitted(Stacking(), other, leak.known).score(other, leak.images)
    np.testing.assert_array_equal(again, alone)


# -- which attacks


@pytest.mark.parametrize("kind", [Stacking, StackingWhite, StackingRounds])
def test_parts__are_all_short_attacks_that_its_threat_permits(kind: type[Stacking]) -> None:
    names = {part.name for part in kind().parts()}
    assert {"similarity", "lpla"} <= names
    assert ("combined" in names) == (kind is not Stacking)
    assert ({"semi-rounds", "loss-slope"} <= names) == (kind is StackingRounds)
    for name in names:
        cls = registry.load("attack", name)
        assert kind.needs.covers(cls.needs) and not cls.uses_shadows
    assert kind().choices == {"attacks": ", ".join(part.name for part in kind().parts())}
    looks = {leak for name in names for leak in registry.load("attack", name).looks_at}
    assert looks == set(kind.looks_at)


def test_shadows__are_asked_for_where_one_reads_them() -> None:
    assert Stacking(attacks=("similarity", "rmia")).asks_shadows()
    assert not Stacking().asks_shadows()


@pytest.mark.parametrize("name", ["ascent", "dataset-inference", "internal", "stacking-white"])
def test_parts__it_cannot_score_are_refused(name: str) -> None:
    with pytest.raises(
        InputError, match=rf"^unknown attack of stacking '{name}'.*\(known: baseline"
    ):
        Stacking(attacks=(name,)).asks_shadows()


def test_readable__are_all_built_in_attacks_that_score_images_of_such_a_view() -> None:
    classes = [registry.load("attack", name) for name in registry.names("attack")]
    apart = ActiveAttack, DatasetAttack, Stacking
    scoring = [c for c in classes if not issubclass(c, apart)]
    assert {c for c in scoring if StackingRounds.needs.covers(c.needs)} == {*READABLE}


def test_fit__too_few_known_images_are_refused(leak: Leak) -> None:
    few = Known(leak.known.members[:3], leak.known.nonmembers)
    for known in (few, NOBODY):
        with pytest.raises(InputError, match="stacking needs at least 4 known members and non-mem"):
            Stacking().fit(leak.view, known, rng(0))
