"""A method, a defence or a strategy that breaks a promise is told which one, in one sentence."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from _broken import broken, name_of
from torch import Tensor

from fedmia.attacks import EncoderMIV, PartCrop, Similarity
from fedmia.attacks.ascent import AscentAlgorithm1
from fedmia.data.base import Request
from fedmia.defenses.base import Defense, Epsilon
from fedmia.defenses.gaussian import Gaussian
from fedmia.records.note import Note
from fedmia.settings.errors import InputError
from fedmia.ssl.base import State
from fedmia.ssl.moco import MoCo, MomentumContrast
from fedmia.storage.snapshot import Update
from fedmia.testing import check_attack, check_defense, check_ssl, check_strategy
from strategies.fedavg import FedAvg

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


def keeping_load(self: Any, state: State) -> None:
    real.load_local(self, state)
    self.bank.rows = state["queue"]


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


# Name of a fault, what is wrong of a MoCo, and what is said of it.
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
    ("kept", {"load_local": keeping_load}, "load_local keeps what it is given: queue moves"),
    ("shared", {"load_shared": dropping_load}, "load_shared loses backbone.layer1.0.weight"),
    ("key", {"local_state": without_key},
     "local_state lacks something: a client that is restored trains otherwise, see "),
    ("renew", {"renew_bank": lambda s, images, generator: None},
     "renew leaves what another client had, see bank.rows"),
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


def test_check_ssl__of_options() -> None:
    @dataclass(frozen=True)
    class Chatty(MoCo):
        def notes(self, images: int) -> list[Note]:
            return [Note("plugin", {"text": "two\nlines"})]

    @dataclass(frozen=True)
    class Unseeded(MoCo):
        def build(self, backbone: Any, training_data: Any, generator: Any) -> MomentumContrast:
            method = super().build(backbone, training_data, generator)
            torch.nn.init.normal_(method.encoder.head.weight)  # type: ignore[arg-type]
            return method

    assert broken(check_ssl, Chatty).startswith("Chatty: a note is no line")
    assert broken(check_ssl, Unseeded) == (
        "Unseeded: encoder.head.weight is not drawn from the generator of build; set weights by "
        "that generator alone, as self.encoder and self.predictor do"
    )


# -- defences --------------------------------------------------------------------------------------


def plugin(name: str, base: type, **methods: Any) -> Any:
    """A dataclass that extends `base` by these methods."""
    return dataclass(frozen=issubclass(base, Defense))(type(name, (base,), methods))


def scaled(self: Any, received: State, trained: State, memory: Any, rng: Any) -> Any:
    upload, metrics = Gaussian.release(self, received, trained, memory, rng)
    return {n: 0.99 * t for n, t in upload.items()}, metrics


def releases(change: Callable[[Tensor], Tensor]) -> Any:
    """A release of trained tensors, each changed."""
    return lambda self, received, trained, *rest: ({n: change(t) for n, t in trained.items()}, {})


def hoard(self: Any, preparation: Any, memory: dict[str, Any]) -> None:
    memory["weights"] = torch.zeros(2)


def refuse(self: Any, setting: Any) -> None:
    raise InputError("never")


def counted(self: Any, job: Any, memory: Any) -> Any:
    memory["rounds"] = memory.get("rounds", 0) + 1
    return job.run()


def refunded(self: Any, memory: dict[str, Any], **more: Any) -> Epsilon:
    rounds = memory.get("rounds", 0)
    return Epsilon(
        value=3.0 - rounds,
        delta=0.0,
        rounds=rounds,
        standing="guaranteed",
        assumptions="none",
        **more,
    )


def test_neutral_setting__says_what_is_wrong() -> None:
    said = "Scales: release is not the identity at its neutral setting {'epsilon': None, 'scale': "
    text = broken(check_defense, plugin("Scales", Gaussian, release=scaled))
    assert text.startswith(said) and text.endswith("see backbone.layer1.0.weight")


# -- strategies ------------------------------------------------------------------------------------


def halved(self: Any, received: State, updates: list[Update]) -> State:
    return {n: t / 2 for n, t in FedAvg.aggregate(self, received, updates).items()}


def first_twice(self: Any, received: State, updates: list[Update]) -> State:
    return FedAvg.aggregate(self, received, [updates[0], *updates])


def into_the_first(self: Any, received: State, updates: list[Update]) -> State:
    merged = FedAvg.aggregate(self, received, updates)
    return {n: t.copy_(merged[n]) for n, t in updates[0].state.items()}


def into_the_received(self: Any, received: State, updates: list[Update]) -> State:
    merged = FedAvg.aggregate(self, received, updates)
    return {n: t.copy_(merged[n]) for n, t in received.items()}


def shared(self: Any, received: State, updates: list[Update], rounds: list[int] = []) -> State:  # noqa: B006
    rounds.append(1)  # of all instances
    merged = FedAvg.aggregate(self, received, updates)
    return {n: t * (1 + 1e-7 * len(rounds)) for n, t in merged.items()}


@pytest.mark.parametrize(
    ("aggregate", "said"),
    [
        (
            halved,
            "the aggregate of one update is not the update at its neutral setting ",
        ),
        (first_twice, "aggregate depends on the order of the updates; "),
        (into_the_first, "aggregate changes head.weight of client 0's update in place"),
        (into_the_received, "aggregate changes the received head.weight in place"),
        (shared, "two instances aggregate the same updates otherwise "),
    ],
    ids=name_of,
)
def test_check_strategy__says_what_is_wrong(aggregate: Any, said: str) -> None:
    wrong = plugin("Wrong", FedAvg, aggregate=aggregate)
    assert broken(check_strategy, wrong).startswith(f"Wrong: {said}")


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
