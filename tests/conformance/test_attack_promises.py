"""An attack that breaks a promise is told which one, in one sentence."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from fedmia.attacks._exchange import exchange_test
from fedmia.attacks.base import Attack, DatasetAttack, Known, Scores
from fedmia.defenses.gaussian import Gaussian
from fedmia.settings import option
from fedmia.ssl.moco import MoCo
from fedmia.testing import check_attack, check_defense, check_ssl
from fedmia.threat import Threat

if TYPE_CHECKING:  # no class of tests, though its name begins like one
    from fedmia.attacks._exchange import SetComparison

from _broken import broken


@dataclass
class Norm(Attack):
    """Length of the embedding."""

    paper: ClassVar[str] = "none yet"
    needs: ClassVar[Threat] = Threat("black_box", "outsider")
    views: int = option(3, "augmented views an image", ge=1)

    def score(self, view: Any, images: Tensor) -> Scores:
        rows = view.embed_views(images, self.views)
        return np.asarray(rows.norm(dim=2).mean(dim=1).double().numpy())


@dataclass
class Undeclared(Norm):
    needs: ClassVar[Any] = "black box"


@dataclass
class Truthful(Norm):
    def score(self, view: Any, images: Tensor, truth: Any = None) -> Scores:
        return super().score(view, images)


@dataclass
class Eager(Norm):
    def __getattribute__(self, name: str) -> Any:
        return True if name == "_fit_done" else super().__getattribute__(name)


@dataclass
class Trains(Norm):
    def score(self, view: Any, images: Tensor) -> Scores:
        with torch.no_grad():
            next(view._method.parameters()).mul_(1.01)
        return super().score(view, images)


@dataclass
class Backward(Norm):
    def score(self, view: Any, images: Tensor) -> Scores:
        view._method.encoder(images[:1].float() / 255).sum().backward()
        return super().score(view, images)


@dataclass
class Paints(Norm):
    def score(self, view: Any, images: Tensor) -> Scores:
        scores = super().score(view, images)
        images[0] = 0
        return scores


@dataclass
class Column(Norm):
    def score(self, view: Any, images: Tensor) -> Scores:
        return super().score(view, images)[:, None]


@dataclass
class Single(Norm):
    def score(self, view: Any, images: Tensor) -> Any:
        return super().score(view, images).astype(np.float32)


@dataclass
class Torch(Norm):
    def score(self, view: Any, images: Tensor) -> Any:
        return torch.from_numpy(super().score(view, images))


@dataclass
class Infinite(Norm):
    def score(self, view: Any, images: Tensor) -> Scores:
        return super().score(view, images) * np.inf


@dataclass
class Fickle(Norm):
    def fit(self, view: Any, known: Known, rng: np.random.Generator) -> None:
        self._shift = np.random.default_rng().normal()

    def score(self, view: Any, images: Tensor) -> Scores:
        return super().score(view, images) + self._shift


@dataclass
class Global(Norm):
    def score(self, view: Any, images: Tensor) -> Scores:
        return super().score(view, images) + np.random.normal(size=len(images))


@dataclass
class GlobalTorch(Norm):
    def score(self, view: Any, images: Tensor) -> Scores:
        return super().score(view, images) + float(torch.rand(()))


@dataclass
class GlobalPython(Norm):
    def score(self, view: Any, images: Tensor) -> Scores:
        return super().score(view, images) + random.random()


@dataclass
class Positions(Norm):
    """Takes the first half of what it scores for members."""

    def score(self, view: Any, images: Tensor) -> Scores:
        return super().score(view, images) + (np.arange(len(images)) < len(images) // 2)


@dataclass
class Neighbours(Norm):
    def score(self, view: Any, images: Tensor) -> Scores:
        scores = super().score(view, images)
        return scores - np.roll(scores, 1)


@dataclass
class Ranks(Norm):
    def score(self, view: Any, images: Tensor) -> Scores:
        scores = super().score(view, images)
        return np.asarray(scores - scores.mean())


@dataclass
class Remembers(Norm):
    def score(self, view: Any, images: Tensor) -> Scores:
        scores = super().score(view, images) + getattr(self, "_calls", 0.0)
        self._calls = 1.0 if len(images) == 9 else 0.0
        return scores


@dataclass
class Grows(Norm):
    _seen: float = field(default=0.0, init=False, repr=False)

    def fit(self, view: Any, known: Known, rng: np.random.Generator) -> None:
        self._seen += float(known.members.float().mean())

    def score(self, view: Any, images: Tensor) -> Scores:
        return super().score(view, images) + self._seen


@dataclass
class Denies(Norm):
    @property
    def learns(self) -> bool:
        return False

    def fit(self, view: Any, known: Known, rng: np.random.Generator) -> None:
        self._centre = float(known.members.float().mean())

    def score(self, view: Any, images: Tensor) -> Scores:
        return super().score(view, images) - self._centre


@dataclass
class Behind(Norm):
    def score(self, view: Any, images: Tensor) -> Scores:
        with torch.no_grad():
            view._method.encoder(images[:4].float() / 255)
        return super().score(view, images)


@dataclass
class Overdraws(Norm):
    def score(self, view: Any, images: Tensor) -> Scores:
        before, budget = view.queries, view._meter.budget
        view._meter.budget = None
        scores = super().score(view, images)
        view.queries, view._meter.budget = before + len(images) * self.views, budget
        return scores


@dataclass
class Closure(Norm):
    def fit(self, view: Any, known: Known, rng: np.random.Generator) -> None:
        self._function = lambda x: x


@dataclass
class TwoColumns(Norm):
    def features(self, view: Any, images: Tensor) -> Any:
        return ("a", "b", "c"), np.zeros((len(images), 2))


@dataclass
class NoClient(Norm):
    needs: ClassVar[Threat] = Threat("white_box", "server")

    def score(self, view: Any, images: Tensor) -> Scores:
        return np.asarray(view.embed_views(images, 3).norm(dim=2).mean(dim=1).double().numpy())

    def by_client(self, view: Any, images: Tensor) -> Any:
        return np.array([99]), self.score(view, images)[None]


@dataclass
class Sets(Norm):
    """Mean length, with a twin of the same scores."""

    def score_sets(self, view: Any, sets: Tensor, known: Known) -> Scores:
        scores = self.score(view, sets.flatten(0, 1)).reshape(len(sets), -1).mean(axis=1)
        return np.stack([scores, scores], axis=1)


@dataclass
class OneScore(Sets):
    def score_sets(self, view: Any, sets: Tensor, known: Known) -> Scores:
        return super().score_sets(view, sets, known)[:, 0]


@dataclass
class Pools(Sets):
    def score_sets(self, view: Any, sets: Tensor, known: Known) -> Scores:
        scores = super().score_sets(view, sets, known)
        return np.asarray(scores - scores.mean())


@dataclass
class Dice(Sets):
    def score_sets(self, view: Any, sets: Tensor, known: Known) -> Scores:
        return super().score_sets(view, sets, known) + float(torch.rand(()))


@dataclass
class Unpaid(Sets):
    def score_sets(self, view: Any, sets: Tensor, known: Known) -> Scores:
        with view.unmetered():
            return super().score_sets(view, sets, known)


@dataclass
class Owner(Norm, DatasetAttack):
    """Whether a set's embeddings are longer than others of its classes."""

    def infer(
        self, view: Any, images: Tensor, classes: Any, asked: Any, rng: np.random.Generator
    ) -> list[SetComparison]:
        values = self.score(view, images)
        return [exchange_test(values[s], classes[s], values[o], classes[o], rng) for s, o in asked]


@dataclass
class Unnamed(Norm):
    def score_without(self, view: Any, images: Tensor) -> Any:
        return self.score(view, images)


@dataclass
class Placed(Norm):
    control, over = "placed-zero", "nothing"

    def score_without(self, view: Any, images: Tensor) -> Any:
        return self.score(view, images).argsort().argsort() / len(images)


@dataclass
class Brief(Owner):
    def infer(self, view: Any, images: Tensor, *rest: Any) -> list[SetComparison]:
        return super().infer(view, images, *rest)[1:]


@dataclass
class Certain(Owner):
    def infer(self, view: Any, images: Tensor, *rest: Any) -> list[SetComparison]:
        return [replace(t, p_value=0.0) for t in super().infer(view, images, *rest)]


@dataclass
class Classless(Owner):
    def infer(self, view: Any, images: Tensor, classes: Any, *rest: Any) -> list[SetComparison]:
        return super().infer(view, images, 0 * classes, *rest)


@dataclass
class Places(Owner):
    def infer(
        self, view: Any, images: Tensor, classes: Any, asked: Any, rng: Any
    ) -> list[SetComparison]:
        inferences = super().infer(view, images, classes, asked, rng)
        first = [float(s.mean() < len(images) / 2) for s, _ in asked]
        return [t if t.p_value is None else replace(t, difference=d)
                for t, d in zip(inferences, first, strict=True)]  # fmt: skip


@dataclass
class OwnDraws(Owner):
    def infer(
        self, view: Any, images: Tensor, classes: Any, asked: Any, rng: Any
    ) -> list[SetComparison]:
        own = np.random.default_rng(np.random.randint(1 << 30))
        return super().infer(view, images, classes, asked, own)


WRONG_ATTACKS: list[tuple[type[Attack], str]] = [
    (type("Bare", (Norm,), {}), "Bare must be a dataclass: it lacks @dataclass"),
    (Undeclared, "Undeclared.needs must be one of"),
    (Truthful, "Truthful.score must take (self, view, images), not (self, view, images, truth)"),
    (Eager, "Eager: score works before fit"),
    (Trains, "Trains changes its target: encoder.backbone.layer1.0.weight differs after score"),
    (Backward, "Backward changes its target: it leaves a gradient in"),
    (Paints, "Paints changes the images that it scores"),
    (Column, "Column: scores are of shape (20, 1), not (20,)"),
    (Single, "Single: scores are float32, not float64"),
    (Torch, "Torch: score returns a Tensor, not a NumPy array"),
    (Infinite, "Infinite: scores are not finite"),
    (Fickle, "Fickle: two fits with one seed give different scores (largest change "),
    (Global, "Global: draws from the global random generators"),
    (GlobalTorch, "GlobalTorch: draws from the global random generators"),
    (GlobalPython, "GlobalPython: draws from the global random generators"),
    (Positions, "Positions: score reads the truth off positions: copies of one image score "
                "differently, members first other than shuffled (largest change 1)"),
    (Neighbours, "Neighbours: the scores depend on the order of the candidates (largest change "),
    (Ranks, "Ranks: an image's score depends on what else is scored (largest change "),
    (Remembers, "Remembers: a call of score changes later scores (largest change 1)"),
    (Grows, "Grows: a second fit does not forget the first (largest change "),
    (Denies, "Denies: says that it does not learn, but exchanging the known images changes"),
    (Behind, "Behind: 64 images passed through the encoder but 60 queries were counted"),
    (Overdraws, "Overdraws exceeds its budget of 59 queries"),
    (Closure, "Closure cannot be pickled once fitted: "),
    (Unnamed, "Unnamed: lacks the `control` and `over` of its twin"),
    (Placed, "Placed: score_without: an image's score depends on what else is scored"),
    (TwoColumns, "TwoColumns: features are (20, 2), not (20, 3)"),
    (NoClient, "NoClient: by_client must name distinct clients of [0, 1, 2, 3], got [99]"),
    (OneScore, "OneScore: score_sets gives float64 (5,), not float64 (5, 2)"),
    (Pools, "Pools: a set's score depends on the other sets (largest change "),
    (Dice, "Dice: score_sets draws from the global random generators, or does not repeat itself"),
    (Unpaid, "Unpaid: score_sets: 60 images passed, 0 were counted"),
    (Brief, "Brief: infer answers 2 of 3 sets"),
    (Certain, "Certain: infer: a p-value must lie in (0, 1], got 0"),
    (Classless, "Classless: infer compares images of different classes"),
    (Places, "Places: infer reads the truth off positions: other places of the images, other "),
    (OwnDraws, "OwnDraws: infer draws from the global random generators, or does not repeat"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("cls", "said"), WRONG_ATTACKS, ids=lambda value: getattr(value, "__name__", "")
)
def test_check_attack__says_what_is_wrong(cls: type[Attack], said: str) -> None:
    assert broken(check_attack, cls).startswith(said)


@pytest.mark.slow
def test_check_attack__takes_a_class_or_an_instance_and_leaves_no_trace() -> None:
    state = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    for right in (Norm, Sets, Owner):
        check_attack(right)
    one = Norm(views=2)
    check_attack(one)
    assert vars(one) == {"views": 2}
    check_ssl(MoCo(dim=4, queue=3))
    check_defense(Gaussian)
    assert torch.equal(state[0], torch.get_rng_state()) and random.getstate() == state[2]
    np.testing.assert_array_equal(state[1], np.random.get_state()[1])
