"""A plugin that breaks a promise is told which one, in one sentence."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from fedmia.attacks import EncoderMIV, PartCrop, Similarity
from fedmia.attacks._exchange import exchange_test
from fedmia.attacks.ascent import AscentAlgorithm1
from fedmia.attacks.base import Attack, DatasetAttack, Known, Scores
from fedmia.data.base import Request
from fedmia.defenses.base import Defense, Epsilon
from fedmia.defenses.gaussian import Gaussian
from fedmia.options.errors import InputError
from fedmia.settings import option
from fedmia.ssl.base import State
from fedmia.ssl.moco import MoCo, MomentumContrast
from fedmia.storage.snapshot import Update
from fedmia.testing import check_attack, check_defense, check_ssl, check_strategy
from fedmia.threat import Threat
from strategies.base import FederatedStrategy
from strategies.fedavg import FedAvg

if TYPE_CHECKING:  # no class of tests, though its name begins like one
    from fedmia.attacks._exchange import SetComparison


def broken(check: Callable[[Any], None], plugin: Any) -> str:
    """The sentence, which must be one line."""
    with pytest.raises(AssertionError) as caught:
        check(plugin)
    message = str(caught.value)
    assert "\n" not in message
    return message


def name_of(value: Any) -> str:
    """A plugin's, in the place of a whole sentence."""
    return getattr(value, "__name__", "says")


# -- attacks ---------------------------------------------------------------------------------------


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


# -- self-supervised methods -----------------------------------------------------------------------


class Made(MomentumContrast):
    """A MoCo of which tests change one thing."""


def moco(**methods: Any) -> type[MoCo]:
    """MoCo whose built method has other `methods`."""

    @dataclass(frozen=True)
    class Wrong(MoCo):
        def build(self, *args: Any) -> MomentumContrast:
            method = super().build(*args)
            method.__class__ = type("Made", (MomentumContrast,), methods)
            return method

    return Wrong


real = MomentumContrast


def shuffled(self: Any, *args: Any) -> Tensor:
    losses = real.losses(self, *args)
    return losses - losses.mean() / 2


def forgetful_load(self: Any, state: State) -> None:
    real.load_local(self, {n: t for n, t in state.items() if n not in ("queue", "pointer")})


def dropping_load(self: Any, state: State) -> None:
    name = next(iter(state))
    real.load_shared(self, state | {name: self.shared_state()[name]})


def without_key(self: Any) -> State:
    return {n: t for n, t in real.local_state(self).items() if not n.startswith("key.")}


def no_copy(self: Any) -> State:
    return {n: t.detach() for n, t in self.encoder.state_dict().items()}


def enqueueing(self: Any, z1: Tensor, z2: Tensor) -> Tensor:
    losses = real.output_losses(self, z1, z2)
    self.queue[0] = z1[0].detach()
    return losses


def restarting(self: Any) -> None:
    with torch.no_grad():
        next(self.encoder.parameters()).zero_()


WRONG_METHODS: list[tuple[str, dict[str, Any], str]] = [
    ("losses", {"losses": shuffled},
     "an image's loss depends on the others of its batch, but coupled is False"),
    ("mean", {"losses": lambda s, a, b: real.losses(s, a, b).mean()[None]},
     "losses of 5 images are of shape (1,), not (5,)"),
    ("detached", {"losses": lambda s, a, b: real.losses(s, a, b).detach()},
     "losses have no gradient"),
    ("memory", {"remembers": property(lambda s: "")},
     "an image's loss depends on those of earlier steps, but remembers is empty"),
    ("global", {"losses": lambda s, a, b: real.losses(s, a, b) * torch.rand(())},
     "two trainings with one seed differ in "),
    ("queue", {"load_local": forgetful_load}, "load_local loses queue"),
    ("shared", {"load_shared": dropping_load}, "load_shared loses backbone.layer1.0.weight"),
    ("key", {"local_state": without_key},
     "local_state lacks something: a client that is restored trains otherwise, see "),
    ("renew", {"renew_bank": lambda s, images, generator: None},
     "renew is not what build is, see bank.rows"),
    ("copy", {"shared_state": no_copy}, "shared_state is no copy: "),
    ("local", {"local_state": lambda s: real.local_state(s) | {"queue": s.queue}},
     "local_state is no copy: queue moves with training"),
    ("lenient", {"load_shared": lambda s, state: s.encoder.load_state_dict(state, strict=False)},
     "load_shared takes a state in which a tensor lacks a parameter"),
    ("bank", {"output_losses": enqueueing}, "output_losses change bank.rows"),
    ("observer", {"output_losses": lambda s, a, b: real.output_losses(s, a, b).detach()},
     "output_losses have no gradient"),
    ("fill", {"fill_bank": lambda s, pixels: restarting(s)},
     "fill_bank changes the shared backbone.layer1.0.weight"),
    ("round", {"begin_round": restarting},
     "beginning a round changes the shared backbone.layer1.0.weight"),
]  # fmt: skip


@pytest.mark.parametrize(("methods", "said"), [w[1:] for w in WRONG_METHODS],
                         ids=[w[0] for w in WRONG_METHODS])  # fmt: skip
def test_check_ssl__says_what_is_wrong(methods: dict[str, Any], said: str) -> None:
    assert broken(check_ssl, moco(**methods)).startswith(f"Wrong: {said}")


def test_check_ssl__of_options() -> None:
    @dataclass(frozen=True)
    class Chatty(MoCo):
        def notes(self, images: int) -> list[str]:
            return ["two\nlines"]

    @dataclass(frozen=True)
    class Unseeded(MoCo):
        def build(self, backbone: Any, recipe: Any, generator: Any) -> MomentumContrast:
            method = super().build(backbone, recipe, generator)
            torch.nn.init.normal_(method.encoder.head.weight)  # type: ignore[arg-type]
            return method

    assert broken(check_ssl, Chatty).startswith("Chatty: notes are no lines")
    assert broken(check_ssl, Unseeded) == (
        "Unseeded: encoder.head.weight is not drawn from the generator of build"
    )


# -- defences --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scales(Gaussian):
    def release(self, received: State, trained: State, memory: Any, rng: Any) -> Any:
        upload, metrics = super().release(received, trained, memory, rng)
        return {n: 0.99 * t for n, t in upload.items()}, metrics


@dataclass(frozen=True)
class InPlace(Defense):
    def release(self, received: State, trained: State, memory: Any, rng: Any) -> Any:
        return {n: t.add_(0.1) for n, t in trained.items()}, {}


@dataclass(frozen=True)
class Doubles(Defense):
    def release(self, received: State, trained: State, memory: Any, rng: Any) -> Any:
        return {n: t.double() for n, t in trained.items()}, {}


@dataclass(frozen=True)
class GlobalNoise(Defense):
    def release(self, received: State, trained: State, memory: Any, rng: Any) -> Any:
        return {n: t + 0.1 * torch.rand(()) for n, t in trained.items()}, {}


@dataclass(frozen=True)
class Idle(Defense):
    def train(self, job: Any, memory: Any) -> dict[str, float]:
        return {"loss": 0.0}


@dataclass(frozen=True)
class Hoards(Defense):
    def prepare(self, preparation: Any, memory: dict[str, Any]) -> None:
        memory["weights"] = torch.zeros(2)


@dataclass(frozen=True)
class Refuses(Defense):
    def check(self, setting: Any) -> None:
        raise InputError("never")


@dataclass(frozen=True)
class Refunds(Defense):
    def train(self, job: Any, memory: Any) -> Any:
        memory["rounds"] = memory.get("rounds", 0) + 1
        return job.run()

    def privacy(self, memory: dict[str, Any]) -> Epsilon:
        rounds = memory.get("rounds", 0)
        return Epsilon(3.0 - rounds, 0.0, rounds, "guaranteed", "none")


@dataclass(frozen=True)
class Groups(Refunds):
    def privacy(self, memory: dict[str, Any]) -> Epsilon:
        return replace(super().privacy(memory), unit="group")


@pytest.mark.parametrize(
    ("cls", "said"),
    [
        (Groups, "Groups: unit must be of ('image', 'client'), got 'group'"),
        (Scales, "Scales: at zero strength release is not the identity: backbone.layer1.0.weight"),
        (InPlace, "InPlace: release changes the trained backbone.layer1.0.weight in place"),
        (Doubles, "Doubles: the released backbone.layer1.0.weight is of another form"),
        (GlobalNoise, "GlobalNoise draws from the global random generators"),
        (Idle, "Idle: train leaves the weights or the step as they were"),
        (Hoards, "Hoards: memory must be JSON-able: "),
        (Refuses, "Refuses.check refuses even group norm and uncoupled losses: never"),
        (Refunds, "Refunds: epsilon falls from 2 to 1"),
    ],
    ids=name_of,
)
def test_check_defense__says_what_is_wrong(cls: type[Defense], said: str) -> None:
    assert broken(check_defense, cls).startswith(said)


# -- strategies ------------------------------------------------------------------------------------


@dataclass
class Halves(FedAvg):
    def aggregate(self, received: State, updates: list[Update]) -> State:
        return {n: t / 2 for n, t in super().aggregate(received, updates).items()}


@dataclass
class First(FedAvg):
    """Weighs the first update most."""

    def aggregate(self, received: State, updates: list[Update]) -> State:
        return super().aggregate(received, [updates[0], *updates])


@dataclass
class Accumulates(FedAvg):
    def aggregate(self, received: State, updates: list[Update]) -> State:
        return {n: t.copy_(super(Accumulates, self).aggregate(received, updates)[n])
                for n, t in updates[0].state.items()}  # fmt: skip


@dataclass
class Writes(FedAvg):
    def aggregate(self, received: State, updates: list[Update]) -> State:
        aggregated = super().aggregate(received, updates)
        return {n: t.copy_(aggregated[n]) for n, t in received.items()}


@dataclass
class Shares(FedAvg):
    velocity: ClassVar[dict[str, float]] = {"rounds": 0.0}

    def aggregate(self, received: State, updates: list[Update]) -> State:
        self.velocity["rounds"] += 1e-7
        aggregated = super().aggregate(received, updates)
        return {n: t * (1 + self.velocity["rounds"]) for n, t in aggregated.items()}


@pytest.mark.parametrize(
    ("cls", "said"),
    [
        (Halves, "Halves: the aggregate of one update is not the update (head.weight by "),
        (First, "First: aggregate depends on the order of the updates (head.weight by "),
        (Accumulates, "Accumulates: aggregate changes head.weight of client 0's update in place"),
        (Writes, "Writes: aggregate changes the received head.weight in place"),
        (Shares, "Shares: two instances aggregate the same updates otherwise: "),
    ],
    ids=name_of,
)
def test_check_strategy__says_what_is_wrong(cls: type[FederatedStrategy], said: str) -> None:
    assert broken(check_strategy, cls).startswith(said)


@pytest.mark.slow
def test_import__needs_no_federation_and_no_test_runner() -> None:
    program = (
        "import sys\nimport fedmia.testing\n"
        "found = {'flwr', 'ray', 'opacus', 'pytest', 'strategies'} & set(sys.modules)\n"
        "assert not found, found\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("check", [check_attack, check_ssl, check_defense, check_strategy])
def test_checks__refuse_another_kind(check: Callable[[Any], None]) -> None:
    assert broken(check, Request).startswith("Request must be a subclass of ")


@pytest.mark.parametrize(
    ("check", "plugin"),
    [
        (check_attack, PartCrop(setting="shadow", crops=2, epochs=1)),
        (check_attack, EncoderMIV(fit_on="known", views=3, epochs=2)),
        (check_attack, Similarity(pairs="all", views=3)),
        pytest.param(
            check_attack,
            AscentAlgorithm1(batch=4, steps=1, lr=0.01),
            marks=pytest.mark.slow,
        ),  # fmt: skip
        (check_ssl, MoCo(dim=4, queue=3, symmetric=True)),
        (check_ssl, MoCo(dim=4, queue_policy="reset")),
        (check_defense, Gaussian(scale=0.2, clip=3.0)),
        (check_defense, Gaussian(sensitivity="sampled", samples=1)),
        (check_strategy, FedAvg(weighting="examples")),
    ],
    ids=lambda value: getattr(value, "__name__", type(value).__name__),
)
def test_checks__take_instances_as_they_are(check: Callable[[Any], None], plugin: Any) -> None:
    check(plugin)
