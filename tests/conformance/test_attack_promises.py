"""An attack that breaks a promise is told which one, in one sentence."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from fedmia.attacks.base import Attack, DatasetAttack, Known, Scores
from fedmia.attacks.dataset_inference import exchange_test
from fedmia.defenses.gaussian import Gaussian
from fedmia.settings import option
from fedmia.ssl.moco import MoCo
from fedmia.testing import check_attack, check_defense, check_ssl
from fedmia.threat import Threat

if TYPE_CHECKING:  # no class of tests, though its name begins like one
    from fedmia.records import SetComparison

from _broken import broken
from attack_hooks import check_attack_hooks


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
class Sets(Norm):
    """Mean length, with a twin of the same scores."""

    def score_sets(self, view: Any, sets: Tensor, known: Known) -> Scores:
        scores = self.score(view, sets.flatten(0, 1)).reshape(len(sets), -1).mean(axis=1)
        return np.stack([scores, scores], axis=1)


@dataclass
class Owner(Norm, DatasetAttack):
    """Whether a set's embeddings are longer than others of its classes."""

    def infer(
        self, view: Any, images: Tensor, classes: Any, asked: Any, rng: np.random.Generator
    ) -> list[SetComparison]:
        values = self.score(view, images)
        return [exchange_test(values[s], classes[s], values[o], classes[o], rng) for s, o in asked]


# What `score`, `score_sets` or `infer` returns in place of what it should.


def positions(scores: Scores) -> Scores:
    """The first half of what is scored are members."""
    return scores + (np.arange(len(scores)) < len(scores) // 2)


CHANGED: dict[str, tuple[type[Attack], Callable[[Any], Any]]] = {
    "Column": (Norm, lambda scores: scores[:, None]),
    "Single": (Norm, lambda scores: scores.astype(np.float32)),
    "Torch": (Norm, torch.from_numpy),
    "Infinite": (Norm, lambda scores: scores * np.inf),
    "Global": (Norm, lambda scores: scores + np.random.normal(size=len(scores))),
    "GlobalTorch": (Norm, lambda scores: scores + float(torch.rand(()))),
    "GlobalPython": (Norm, lambda scores: scores + random.random()),
    "Positions": (Norm, positions),
    "Neighbours": (Norm, lambda scores: scores - np.roll(scores, 1)),
    "Ranks": (Norm, lambda scores: scores - scores.mean()),
    "OneScore": (Sets, lambda scores: scores[:, 0]),
    "Pools": (Sets, lambda scores: scores - scores.mean()),
    "Dice": (Sets, lambda scores: scores + float(torch.rand(()))),
    "Brief": (Owner, lambda sets: sets[1:]),
    "Certain": (Owner, lambda sets: [replace(one, p_value=0.0) for one in sets]),
}

# What else a faulty attack does, by the method in which it does it.


def score_with_truth(self: Any, view: Any, images: Tensor, truth: Any = None) -> Scores:
    return Norm.score(self, view, images)


def score_and_train(self: Any, view: Any, images: Tensor) -> Scores:
    with torch.no_grad():
        next(view._method.parameters()).mul_(1.01)
    return Norm.score(self, view, images)


def score_and_keep_a_gradient(self: Any, view: Any, images: Tensor) -> Scores:
    view._method.encoder(images[:1].float() / 255).sum().backward()
    return Norm.score(self, view, images)


def score_and_paint(self: Any, view: Any, images: Tensor) -> Scores:
    scores = Norm.score(self, view, images)
    images[0] = 0
    return scores


def score_after_nine(self: Any, view: Any, images: Tensor) -> Scores:
    scores = Norm.score(self, view, images) + getattr(self, "_calls", 0.0)
    self._calls = 1.0 if len(images) == 9 else 0.0
    return scores


def score_behind_the_view(self: Any, view: Any, images: Tensor) -> Scores:
    with torch.no_grad():
        view._method.encoder(images[:4].float() / 255)
    return Norm.score(self, view, images)


def score_over_budget(self: Any, view: Any, images: Tensor) -> Scores:
    before, budget = view.queries, view._meter.budget
    view._meter.budget = None
    scores = Norm.score(self, view, images)
    view.queries, view._meter.budget = before + len(images) * self.views, budget
    return scores


def score_fitted(self: Any, view: Any, images: Tensor) -> Scores:
    return Norm.score(self, view, images) + self._shift


def fit_at_random(self: Any, view: Any, known: Known, rng: np.random.Generator) -> None:
    self._shift = np.random.default_rng().normal()


def fit_on_top(self: Any, view: Any, known: Known, rng: np.random.Generator) -> None:
    self._shift = getattr(self, "_shift", 0.0) + float(known.members.float().mean())


def fit_on_members(self: Any, view: Any, known: Known, rng: np.random.Generator) -> None:
    self._shift = float(known.members.float().mean())


def fit_a_function(self: Any, view: Any, known: Known, rng: np.random.Generator) -> None:
    self._function = lambda x: x


def two_columns(self: Any, view: Any, images: Tensor) -> Any:
    return ("a", "b", "c"), np.zeros((len(images), 2))


def name_no_client(self: Any, view: Any, images: Tensor) -> Any:
    return np.array([99]), self.score(view, images)[None]


def score_server(self: Any, view: Any, images: Tensor) -> Scores:
    return np.asarray(view.embed_views(images, 3).norm(dim=2).mean(dim=1).double().numpy())


def score_places(self: Any, view: Any, images: Tensor) -> Any:
    return self.score(view, images).argsort().argsort()[:, None] / len(images)


def score_unpaid(self: Any, view: Any, sets: Tensor, known: Known) -> Scores:
    with view.unmetered():
        return Sets.score_sets(self, view, sets, known)


def infer_without_classes(self: Any, view: Any, images: Tensor, classes: Any, *rest: Any) -> Any:
    return Owner.infer(self, view, images, 0 * classes, *rest)


def infer_places(self: Any, view: Any, images: Tensor, classes: Any, asked: Any, rng: Any) -> Any:
    sets = Owner.infer(self, view, images, classes, asked, rng)
    first = [float(positions.mean() < len(images) / 2) for positions, _ in asked]
    return [t if t.p_value is None else replace(t, difference=d)
            for t, d in zip(sets, first, strict=True)]  # fmt: skip


def infer_at_random(
    self: Any, view: Any, images: Tensor, classes: Any, asked: Any, rng: Any
) -> Any:
    own = np.random.default_rng(np.random.randint(1 << 30))
    return Owner.infer(self, view, images, classes, asked, own)


METHODS: dict[str, tuple[type[Attack], dict[str, Any]]] = {
    "Undeclared": (Norm, {"needs": "black box"}),
    "Truthful": (Norm, {"score": score_with_truth}),
    "Trains": (Norm, {"score": score_and_train}),
    "Backward": (Norm, {"score": score_and_keep_a_gradient}),
    "Paints": (Norm, {"score": score_and_paint}),
    "Fickle": (Norm, {"fit": fit_at_random, "score": score_fitted}),
    "Remembers": (Norm, {"score": score_after_nine}),
    "Grows": (Norm, {"fit": fit_on_top, "score": score_fitted}),
    "Denies": (
        Norm,
        {"learns": property(lambda self: False), "fit": fit_on_members, "score": score_fitted},
    ),
    "Behind": (Norm, {"score": score_behind_the_view}),
    "Overdraws": (Norm, {"score": score_over_budget}),
    "Closure": (Norm, {"fit": fit_a_function}),
    "TwoColumns": (Norm, {"features": two_columns}),
    "NoClient": (
        Norm,
        {
            "needs": Threat("white_box", "server"),
            "score": score_server,
            "by_client": name_no_client,
        },
    ),
    "Unnamed": (Norm, {"score_without": Norm.score}),
    "Placed": (
        Norm, {"without": {"placed-zero": "nothing"}, "score_without": score_places}
    ),
    "Unpaid": (Sets, {"score_sets": score_unpaid}),
    "Classless": (Owner, {"infer": infer_without_classes}),
    "Places": (Owner, {"infer": infer_places}),
    "OwnDraws": (Owner, {"infer": infer_at_random}),
}  # fmt: skip
RESULT = {Norm: "score", Sets: "score_sets", Owner: "infer"}


def wrong_attack(name: str) -> type[Attack]:
    """The faulty attack of that name; pickle finds it in this module."""
    if name not in globals():
        if name in CHANGED:
            base, change = CHANGED[name]
            result = RESULT[base]
            right = getattr(base, result)
            methods = {result: lambda self, *rest: change(right(self, *rest))}
            if base is Norm:  # whose arguments are checked
                methods = {result: lambda self, view, images: change(right(self, view, images))}
        else:
            base, methods = METHODS[name]
        globals()[name] = dataclass(type(name, (base,), {**methods, "__module__": __name__}))
    cls: type[Attack] = globals()[name]
    return cls


SENTENCES = [
    "Undeclared.needs must be one of",
    "Truthful.score must take (self, view, images), not (self, view, images, truth)",
    "Trains changes its target: encoder.backbone.layer1.0.weight differs after score",
    "Backward changes its target: it leaves a gradient in",
    "Paints changes the images that it scores",
    "Column: scores are of shape (20, 1), not (20,)",
    "Single: scores are float32, not float64",
    "Torch: score returns a Tensor, not a NumPy array",
    "Infinite: scores are not finite",
    "Fickle: two fits with one seed give different scores (largest change ",
    "Global: draws from the global random generators",
    "GlobalTorch: draws from the global random generators",
    "GlobalPython: draws from the global random generators",
    "Positions: score reads the truth off positions: copies of one image score "
    "differently, members first other than shuffled (largest change 1)",
    "Neighbours: the scores depend on the order of the candidates (largest change ",
    "Ranks: an image's score depends on what else is scored (largest change ",
    "Remembers: a call of score changes later scores (largest change 1)",
    "Grows: a second fit does not forget the first (largest change ",
    "Denies: says that it does not learn, but exchanging the known images changes",
    "Behind: 64 images passed through the encoder but 60 queries were counted",
    "Overdraws exceeds its budget of 59 queries",
    "Closure cannot be pickled once fitted: ",
]
OF_HOOKS = [
    "Unnamed: lacks the names `without` of its twins",
    "Placed: score_without: an image's score depends on what else is scored",
    "TwoColumns: features are (20, 2), not (20, 3)",
    "NoClient: by_client must name distinct clients of [0, 1, 2, 3], got [99]",
    "OneScore: score_sets gives float64 (5,), not float64 (5, 2)",
    "Pools: a set's score depends on the other sets (largest change ",
    "Dice: score_sets draws from the global random generators, or does not repeat itself",
    "Unpaid: score_sets: 60 images passed, 0 were counted",
    "Brief: infer answers 2 of 3 sets",
    "Certain: infer: a p-value must lie in (0, 1], got 0",
    "Classless: infer compares images of different classes",
    "Places: infer reads the truth off positions: other places of the images, other ",
    "OwnDraws: infer draws from the global random generators, or does not repeat",
]


@pytest.mark.parametrize("sentence", OF_HOOKS, ids=lambda s: re.split("[ .:]", s)[0])
def test_check_attack_hooks__says_what_is_wrong(sentence: str) -> None:
    wrong = wrong_attack(re.split("[ .:]", sentence)[0])
    assert broken(check_attack_hooks, wrong).startswith(sentence)


def test_check_attack__wants_a_dataclass_of_its_options() -> None:
    options = {"rounds": option(3, "models", ge=1), "__annotations__": {"rounds": "int"}}
    bare = type("Bare", (Norm,), options)
    assert broken(check_attack, bare) == "Bare must be a dataclass: it lacks @dataclass"


@pytest.mark.slow
def test_check_attack__takes_a_class_or_an_instance_and_leaves_no_trace() -> None:
    state = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    check_attack(Norm)
    for right in (Sets, Owner):
        check_attack_hooks(right)
    one = Norm(views=2)
    check_attack(one)
    assert vars(one) == {"views": 2}
    check_ssl(MoCo(dim=4, queue=3))
    check_defense(Gaussian)
    assert torch.equal(state[0], torch.get_rng_state()) and random.getstate() == state[2]
    np.testing.assert_array_equal(state[1], np.random.get_state()[1])
