"""Every error of `fedmia.testing` says what is wrong and what to change: a plugin of each fault."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from _broken import broken
from test_attack_promises import SENTENCES, Norm, wrong_attack
from test_promises import (
    WRONG_METHODS,
    counted,
    first_twice,
    hoard,
    into_the_first,
    into_the_received,
    moco,
    plugin,
    real,
    refunded,
    refuse,
    releases,
    scaled,
    shared,
)

from fedmia.defenses.base import Defense, Epsilon
from fedmia.defenses.gaussian import Gaussian
from fedmia.observers.base import RunObserver
from fedmia.records.note import Note
from fedmia.seeding import rng
from fedmia.settings import option
from fedmia.settings.errors import InputError
from fedmia.ssl.base import State
from fedmia.ssl.moco import MoCo
from fedmia.testing import check_attack, check_defense, check_observer, check_ssl, check_strategy
from strategies.base import FederatedStrategy
from strategies.fedavg import FedAvg


@dataclass
class NoisyMean(FederatedStrategy):
    """The mean with noise, whose option has a name of its own; it declares no neutral setting."""

    paper: ClassVar[str] = "none yet"
    noise: float = option(0.1, "standard deviation of the noise on each weight", ge=0)

    def aggregate(self, received: State, updates: Any) -> State:
        updates = list(updates)
        draw = rng(self.phase.seed, "noisy-mean", updates[0].round)
        return {
            n: t + self.noise * torch.from_numpy(draw.normal(size=t.shape)).to(t)
            for n, t in self.mean(updates).items()
        }


@dataclass
class NeutralNoisyMean(NoisyMean):
    """The same, which declares it."""

    neutral: ClassVar[Mapping[str, Any]] = {"noise": 0.0}


@dataclass
class Keeps(FedAvg):
    """Keeps what no checkpoint holds."""

    kept: Any = field(default=None, init=False)

    def aggregate(self, received: State, updates: Any) -> State:
        self.kept = object()
        return FedAvg.aggregate(self, received, updates)


@dataclass
class Forgets(FedAvg):
    """What it keeps is a field like those of options, which a checkpoint leaves out."""

    calls: int = 0

    def aggregate(self, received: State, updates: Any) -> State:
        merged = FedAvg.aggregate(self, received, updates)
        self.calls += 1
        return {n: t + (self.calls - 1) for n, t in merged.items()}


# A plugin, what its error tells to change, and what it says of the fault.
Fault = tuple[Any, str] | tuple[Any, str, str]


def test_check_strategy__takes_any_name_for_what_it_neutralises() -> None:
    check_strategy(NeutralNoisyMean)
    check_strategy(NeutralNoisyMean(noise=0.5))


def strategies() -> Iterator[Fault]:
    yield (
        NoisyMean,
        'at its defaults; declare those under which it is: `neutral = {"noise": VALUE}`',
    )
    names = plugin("Named", NeutralNoisyMean, neutral={"sigma": 0.0})
    yield names, ".neutral names ['sigma'], none of its options; those are ['noise']"
    averages = plugin("Lies", FedAvg, neutral={}, aggregate=lambda s, received, ups: received)
    yield averages, "declare those under which it is"
    yield plugin("Halves", NeutralNoisyMean, neutral={"noise": 0.5}), "correct its `neutral`"
    first = plugin(
        "First", FedAvg, aggregate=lambda s, received, ups: min(ups, key=by_client).state
    )
    yield first, "off the mean of the updates at its neutral setting {'server_lr': 1.0}; correct"
    yield plugin("Twice", FedAvg, aggregate=first_twice), "draw from rng(self.course.seed, NAME, up"
    yield plugin("InUpdate", FedAvg, aggregate=into_the_first), "return new tensors (t.clone())"
    yield plugin("InPlace", FedAvg, aggregate=into_the_received), "return new tensors (t.clone())"
    yield plugin("Shares", FedAvg, aggregate=shared), "init=False and a default_factory"
    yield (
        plugin("Drops", FedAvg, aggregate=lambda *_: {}),
        "return those received, look at ['bias']",
    )
    yield Keeps, "keep tensors by name, or what JSON holds"
    yield Forgets, "keep what a round leaves for the next in fields with init=False"


def by_client(update: Any) -> int:
    client: int = update.client
    return client


def stated(**values: Any) -> dict[str, Any]:
    """A defence's methods that state a privacy of these values."""
    usual = {"value": 1.0, "delta": 0.0, "standing": "guaranteed", "assumptions": "none"}

    def privacy(self: Any, memory: dict[str, Any]) -> Epsilon:
        return Epsilon(**{**usual, "rounds": memory.get("rounds", 0), **values})

    return {"train": counted, "privacy": privacy}


def metrics_of_tensors(self: Any, received: State, trained: State, *rest: Any) -> Any:
    return trained, {"norm": torch.ones(())}


def draws_anew(self: Any, received: State, trained: State, *rest: Any) -> Any:
    shift = float(np.random.default_rng().normal())
    return {n: t + shift for n, t in trained.items()}, {}


def paints(self: Any, job: Any, memory: Any) -> Any:
    metrics = job.run()
    job.images[:] = 0
    return metrics


def tells_by_type(self: Any, memory: dict[str, Any]) -> Epsilon:
    value = 1.0 + isinstance(memory["pair"], list)
    return Epsilon(value=value, delta=0.0, rounds=2, standing="guaranteed", assumptions="none")


def keeps_a_tuple(self: Any, preparation: Any, memory: dict[str, Any]) -> None:
    memory["pair"] = (1, 2)


# What is said of the fault of a defence.
SAID = {
    "Groups": "unit must be of ('image', 'client'), got 'group'",
    "InPlace": "release changes the trained backbone.layer1.0.weight in place",
    "Doubles": "the released backbone.layer1.0.weight is of another form",
    "Global": "draws from the global random generators",
    "Idle": "train leaves the weights or the step as they were",
    "Hoards": "memory must be JSON-able: ",
    "Refuses": ".check refuses even group norm and uncoupled losses: never",
    "Refunds": "epsilon falls from 2 to 1",
}


def defences() -> Iterator[Fault]:
    for name, methods, words in (
        ("Refuses", {"check": refuse}, "test `norm` and `ssl` of its setting"),
        ("InPlace", {"release": releases(lambda t: t.add_(0.1))}, "return new tensors (t.clone())"),
        ("Doubles", {"release": releases(torch.Tensor.double)}, "return torch.float32 ("),
        ("Drops", {"release": lambda *_: ({}, {})}, "drops or adds tensors; return those received"),
        ("Tensors", {"release": metrics_of_tensors}, "wrap each in float()"),
        ("Global", {"release": releases(lambda t: t + torch.rand(()))}, "draw from the rng of rel"),
        ("Anew", {"release": draws_anew}, "draw from the rng of release, in train from job.rng"),
        ("Mute", {"train": lambda self, job, memory: job.run() and {}}, 'return {"loss": FLOAT}'),
        ("Idle", {"train": lambda self, job, memory: {"loss": 0.0}}, "job.run() does both"),
        ("Paints", {"train": paints}, "work on a copy of job.images"),
        ("Hoards", {"prepare": hoard}, "t.tolist(), float(x)"),
        ("Types", {"prepare": keeps_a_tuple, "privacy": tells_by_type}, "JSON makes tuples lists"),
        ("Groups", stated(unit="group"), "unit must be of ('image', 'client')"),
        ("Vague", stated(assumptions=""), "must be an Epsilon with a standing of"),
        ("Certain", stated(delta=1.0), "delta must be in [0, 1)"),
        ("Uncounted", stated(rounds=0), "count each in memory"),
        ("Refunds", {"train": counted, "privacy": refunded}, "add up what all rounds in memory"),
    ):
        yield plugin(name, Defense, **methods), words, SAID.get(name, "")
    yield plugin("Scales", Gaussian, release=scaled), "correct its `neutral`; see backbone"
    wrong = {"neutral": {"strength": 0.0}}
    yield plugin("Named", Gaussian, **wrong), ".neutral names ['strength'], none of its options"


def attacks() -> Iterator[Fault]:
    for name, words in (
        ("Undeclared", "`needs: ClassVar[Threat] = Threat(..)`"),
        ("Truthful", "must take (self, view, images), not"),
        ("Trains", "work on a copy, of a white box view.copy_method()"),
        ("Backward", "work on a copy, of a white box view.copy_method()"),
        ("Paints", "work on images.clone()"),
        ("Column", "return one number an image"),
        ("Single", "end score with .astype(np.float64)"),
        ("Torch", "of a tensor return .numpy()"),
        ("Infinite", "give such images a number, too"),
        ("Fickle", "in score from rng(view.seed, NAME)"),
        ("Global", "draw from the rng that fit is given"),
        ("Positions", "score an image by its pixels, never by its index"),
        ("Neighbours", "score each image by itself"),
        ("Ranks", "with no mean or rank of the images to score"),
        ("Remembers", "let score keep nothing on self"),
        ("Grows", "let fit set anew all that score reads"),
        ("Denies", "let `learns` be True"),
        ("Behind", "reach the encoder by methods of the view alone, which count"),
        ("Overdraws", "and catch no BudgetError"),
        ("Closure", "no function and no open file"),
        ("GlobalTorch", ""),
        ("GlobalPython", ""),
    ):
        (said,) = (one for one in SENTENCES if re.split("[ .:]", one)[0] == name)
        yield wrong_attack(name), words, said
    yield (
        dataclass(type("Nameless", (Norm,), {"paper": ""})),
        '`paper: ClassVar[str] = "NAME, YEAR"`',
    )
    own = {"name": option("mine", "name"), "__annotations__": {"name": "str"}}
    yield (
        dataclass(type("Own", (Norm,), own)),
        "cannot be called {'name'}, as every attack has it; re",
    )
    free = {"score": lambda self, view, images: np.zeros(len(images))}
    yield dataclass(type("Free", (Norm,), free)), "let each run ask the view anew, at least once"


def unstable(self: Any, view1: Any, view2: Any) -> Any:
    return real.losses(self, view1, view2) * float("inf")


WAYS = {
    "losses": "say `coupled = True` on the class of options", "mean": "(loss.expand(B))",
    "detached": "detach targets alone", "memory": "such as 'a queue of outputs'",
    "global": "from draw_seed(generator)", "queue": "copy every tensor that local_state gives",
    "shared": "copy every tensor of the state", "copy": "give t.detach().clone()",
    "key": "as buffers or in local_state and load_local", "lenient": "raise ValueErr",
    "renew": "see bank.rows; set it anew, or return False", "fill": "let it fill the bank alone",
    "bank": "an observer calls them: keep nothing there",
    "round": "change there what is local alone",
}  # fmt: skip


def methods() -> Iterator[Fault]:
    losses = real.losses
    for name, changed, said in WRONG_METHODS:
        yield moco(**changed), WAYS.get(name, ""), f"Wrong: {said}"
    for changed, words in (
        ({"losses": unstable}, "a batch of one image has no deviation"),
        ({"remembers": property(lambda s: "two\nlines")}, "write it without a line break"),
        (
            {"trainable": lambda s: [*s.encoder.head.parameters()]},
            "name their module in shared_mod",
        ),
        ({"probe_losses": lambda s, a, b: losses(s, a, b)}, "define output_losses alone"),
    ):
        yield moco(**changed), words
    yield dataclass(frozen=True)(type("Slow", (MoCo,), {"lr": 0.0})), "`lr: ClassVar[float] = 0.06`"
    views = {"augment": property(lambda self: None)}
    yield dataclass(frozen=True)(type("Blind", (MoCo,), views)), "of a TwoViewSSL set paper_views"
    for notes, words in (
        (None, "return [] where"),
        ([Note("plugin", {"text": "a\nb"})], "write one s"),
    ):
        own = {"notes": lambda self, images, notes=notes: notes}
        yield dataclass(frozen=True)(type("Chatty", (MoCo,), own)), words
    for seed, words in (
        (None, "set weights by that generator alone"),
        (0, "another seed builds the "),
    ):
        yield dataclass(frozen=True)(type("Unseeded", (MoCo,), {"build": reset(seed)})), words


def reset(seed: int | None) -> Callable[..., Any]:
    """A `build` whose weights are drawn globally, or by a fixed seed."""

    def build(self: Any, backbone: Any, training_data: Any, generator: torch.Generator) -> Any:
        own = generator if seed is None else torch.Generator().manual_seed(seed)
        method = MoCo.build(self, backbone, training_data, own)
        if seed is None:
            torch.nn.init.normal_(method.encoder.head.weight)  # type: ignore[arg-type]
        return method

    return build


def observers() -> Iterator[Fault]:
    def fails(self: Any, *_: Any) -> None:
        raise ValueError("no")

    def changes(self: Any, values: dict[str, float], step: int) -> None:
        values["x"] = 1.0

    def draws(self: Any, *_: Any) -> None:
        np.random.rand()

    def threads(self: Any, *_: Any) -> None:
        torch.set_num_threads(torch.get_num_threads() + 1)

    def refuses(self: Any, folder: Any) -> None:
        if folder is None:
            error = InputError("a folder")
            error.args = ("a\nfolder",)
            raise error

    nothing = {name: lambda self, *_: None for name in ("begin", "scalars", "report", "end")}
    for broken_methods, words in (
        ({"begin": fails}, "and `end` without `report` if they fail"),
        ({"scalars": changes}, "work on a copy"),
        ({"end": draws}, "np.random.default_rng()"),
        ({"begin": threads}, "put them back before a method returns"),
        ({"check": refuses}, "shorten its error"),
    ):
        yield dataclass(type("Careless", (RunObserver,), {**nothing, **broken_methods})), words


FAULTS = [
    pytest.param(check, faulty, words, id=f"{kind.__name__}-{faulty.__name__}-{number}")
    for kind, check in (
        (strategies, check_strategy), (defences, check_defense), (attacks, check_attack),
        (methods, check_ssl), (observers, check_observer),
    )
    for number, (faulty, *words) in enumerate(kind())
]  # fmt: skip


@pytest.mark.parametrize(("check", "faulty", "words"), FAULTS)
def test_error__says_what_is_wrong_and_what_to_change(
    check: Callable[[Any], None], faulty: Any, words: list[str]
) -> None:
    threads = torch.get_num_threads()
    try:
        text = broken(check, faulty)
        assert all(word in text for word in words)
    finally:
        torch.set_num_threads(threads)
