"""One experiment: frozen, validated, complete. Every default stands here or in its plugin."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self

from fedmia.attacks.base import ActiveAttack
from fedmia.partitions.split import SplitOptions
from fedmia.settings import Options, option, registry
from fedmia.settings.choices import Layer, PluginChoice, choose_attacks
from fedmia.settings.commands.attacks import ATTACKS, AttackSettings
from fedmia.settings.commands.data import GENERATED, Data
from fedmia.settings.commands.effects import OF_EXPERIMENTS
from fedmia.settings.commands.machine import FederationMachine
from fedmia.settings.commands.roles import (
    ATTACKERS,
    QUICK,
    check_attack_options,
    expand_lists,
    granted_threat,
    is_client,
    is_quick,
    refusal,
)
from fedmia.settings.errors import opt
from fedmia.settings.fields import plugin, plugins, section
from fedmia.settings.values import convert
from fedmia.ssl.train import Train
from fedmia.threat import Threat

MEMBERS, NONMEMBERS = 220, 740  # docs/findings/does_it_leak.md argues the default's sizes


@dataclass(frozen=True)
class Federation(Options):
    """Clients and rounds."""

    clients: int = option(10, "clients in the federation", ge=1)
    rounds: int = option(27, "rounds of federated training, attacked ones included", ge=1)
    attack_rounds: int | None = option(
        None,
        "the last rounds, in which the active attacker may craft its updates (none: 3, but at most "
        "half of all); the rounds before are clean",
        ge=1,
    )
    attacked_rate: str = option(
        "schedule",
        "learning rate of honest clients in attacked rounds: schedule (train.schedule continues) "
        "or constant (the first rate again, a jump where the schedule has fallen)",
        choices=("schedule", "constant"),
    )
    participation: float = option(1.0, "share of the clients that train in a round", gt=0, le=1)
    batch_norm: str = option(
        "average",
        "running statistics of batch norm: averaged, or each client's own (local)",
        choices=("average", "local"),
    )
    snapshots: int = option(3, "evenly spread rounds whose model is evaluated", ge=1)
    keep_updates: int | None = option(
        None,
        "evenly spread rounds whose client updates are kept, each in a file as large as the "
        "model (none: the evaluated rounds with --attacker server, else 0)",
        ge=0,
    )
    placebo: bool | Literal["auto"] = option(
        "auto",
        "train the federation once more on other images, as a control where nothing can leak "
        "(auto: with an active attack, a server that attacks, or an attack on rounds)",
    )
    on_failure: str = option(
        "stop",
        "when a client fails, is late or sends what cannot be averaged: stop the run and report "
        "its finished rounds, retry the client (3 attempts in all), or drop it for good, also from "
        "the statistics",
        choices=("stop", "retry", "drop"),
    )
    client_timeout: float | None = option(
        None, "seconds that a client may work on a round (none: no limit)", gt=0
    )
    min_clients: int = option(1, "fewest clients that must send an update in a round", ge=1)
    secure_aggregation: bool = option(
        False,
        "the server sees only the sum of a round's updates (attacks and strategies are limited to "
        "this view; nothing is encrypted)",
    )


@dataclass(frozen=True)
class Pretrain(Options):
    """What a server does before the first federated round."""

    mode: str = option(
        "none",
        "none; pooled: the server trains on all clients' private images; public: on non-member "
        "images apart from all others",
        choices=("none", "pooled", "public"),
    )
    epochs: int | None = option(
        None, "epochs of the server's training (none: 100 with a mode, else 0)", ge=0
    )

    @classmethod
    def complete(cls, **values: Any) -> Self:
        """Build of the values that are given; a number of epochs is written out."""
        built = cls(**values)
        lasting = 0 if built.mode == "none" else 100
        return replace(built, epochs=lasting if built.epochs is None else built.epochs)


@dataclass(frozen=True)
class Experiment(AttackSettings):
    """All that decides a run's numbers, as it runs: every option of every choice is written out.

    `complete` makes it of what a user gave. Its `attacks` are the names themselves: `main` and
    `all` have become the built-in attacks that the attacker's role permits.

    Attributes:
        defense: the defences of the clients, in the order in which they act.

    Raises:
        InputError: for an unknown plugin or option or a value out of range.
            `fedmia.settings.commands.compatibility.check_experiment` checks whether the values suit
            one another.
    """

    needs: ClassVar[Mapping[str, Any]] = OF_EXPERIMENTS

    attacks: tuple[str, ...] = option(
        ("main",),
        "attacks to run: names, or the lists main (federated contrastive learning), quick (without "
        "long computations) and all, as far as the attacker's role permits; or none",
        heading=ATTACKS,
    )
    attacker: str = option(
        "none",
        "role of the last client(s); of one that is no client, such as the server, every client is "
        "honest",
        choices=ATTACKERS,
    )
    malicious: int = option(1, "clients that take the attacker's role", ge=1)
    attacker_trains: bool = option(
        True, "malicious clients also train on their own images; false: they send no update"
    )
    machine: FederationMachine = section(FederationMachine)
    federation: Federation = section(Federation)
    data: Data = section(Data, head="name")
    partition: PluginChoice = plugin("partition", "dirichlet", "how images are dealt to clients")
    split: SplitOptions = section(SplitOptions)
    model: PluginChoice = plugin("model", "smallnet", "encoder")
    ssl: PluginChoice = plugin("ssl", "moco", "self-supervised method")
    strategy: PluginChoice = plugin("strategy", "fedavg", "how the server aggregates")
    train: Train = section(Train)
    pretrain: Pretrain = section(Pretrain, head="mode", decides=True)
    defense: tuple[Layer, ...] = plugins(
        "defense", "defences of the defended clients, in the order in which they act"
    )
    defended_clients: tuple[int, ...] | None = option(
        None,
        "clients that defend themselves, as 0-4,7, where a defence names none of its own (none: "
        "all honest ones)",
        ge=0,
    )

    @classmethod
    def attack_names(cls, flat: Mapping[str, Any]) -> tuple[str, ...]:
        """Names of the attacks that flat settings run."""
        names = convert(opt("attacks"), flat.get("attacks", cls.attacks), tuple[str, ...])
        path = "federation.secure_aggregation"
        sums = convert(opt(path), flat.get(path, False), bool)
        return expand_attacks(names, str(flat.get("attacker", cls.attacker)), sums)

    @classmethod
    def complete(cls, **values: Any) -> Self:
        """Build the experiment that given values ask for."""
        incomplete = super().complete(**values)
        granted_threat(incomplete.attacker)  # a role that attacks nothing is refused
        sums = incomplete.federation.secure_aggregation
        names = expand_attacks(incomplete.attacks, incomplete.attacker, sums)
        check_attack_options(incomplete.attack, names)
        choices = choose_attacks(names, incomplete.attack)
        own_rate = registry.load("ssl", incomplete.ssl.name).lr
        return replace(
            incomplete,
            attacks=names,
            attack={name: one.options for name, one in choices.items()},
            attack_choices=choices,
            split=replace(incomplete.split, **default_sizes(incomplete)),
            ssl=incomplete.data.fill_views(incomplete.ssl),
            train=incomplete.train.fill_rate(own_rate),
        )

    @property
    def malicious_clients(self) -> tuple[int, ...]:
        """Ids of the clients in the attacker's role: the last ones; none of them is the server."""
        count = min(self.malicious, self.federation.clients) if is_client(self.attacker) else 0
        return tuple(range(self.federation.clients - count, self.federation.clients))

    @property
    def threat(self) -> Threat:
        """What the attacker is granted."""
        return granted_threat(self.attacker, self.federation.secure_aggregation)

    @property
    def holder(self) -> int | None:
        """Id of the client that the attacker reads through, None where it is no client."""
        return next(iter(self.malicious_clients), None)

    @property
    def active_attack(self) -> str | None:
        """Name of the attack whose client crafts updates, if one is run."""
        kinds = {n: registry.load("attack", n) for n in self.attacks}
        return next((n for n, cls in kinds.items() if issubclass(cls, ActiveAttack)), None)

    @property
    def attack_rounds(self) -> int:
        """How many of the last rounds may be attacked: none without an active attack."""
        attack_rounds, rounds = self.federation.attack_rounds, self.federation.rounds
        if self.active_attack is None:
            return 0
        return min(3, rounds // 2) if attack_rounds is None else attack_rounds

    @property
    def has_placebo(self) -> bool:
        """Whether the federation is run once more as the placebo."""
        if (placebo := self.federation.placebo) != "auto":
            return placebo
        kinds = [registry.load("attack", name) for name in self.attacks]
        needed = any(issubclass(k, ActiveAttack) or k.reads_training() for k in kinds)
        return needed or bool(self.threat.row.keeps)

    @property
    def honest_clients(self) -> tuple[int, ...]:
        """Ids of the clients that do not take the attacker's role: the first ones."""
        return tuple(range(self.federation.clients - len(self.malicious_clients)))

    def layer_client_ids(self, layer: Layer) -> tuple[int, ...]:
        """Ids of the clients that apply a defence, sorted."""
        clients = self.defended_clients if layer.clients is None else layer.clients
        return self.honest_clients if clients is None else tuple(sorted(clients))

    @property
    def defended(self) -> tuple[int, ...]:
        """Ids of the clients that apply a defence, sorted."""
        return tuple(sorted({c for layer in self.defense for c in self.layer_client_ids(layer)}))


def default_sizes(experiment: Experiment) -> dict[str, int]:
    """Sizes of roles that a source of no file has where none are given."""
    data, split = experiment.data.plugin, experiment.split
    if split.members is not None or data not in GENERATED:
        return {}
    # Digits have as many for certain.
    whole = (data, split) == ("digits", SplitOptions(known=split.known))
    return {"members": MEMBERS} | ({"nonmembers": NONMEMBERS} if whole else {})


def expand_attacks(names: tuple[str, ...], attacker: str, sums: bool = False) -> tuple[str, ...]:
    """The attacks that names stand for: `main` and `all` become names of attacks.

    Args:
        names: of attacks, `main`, `all` or `none`.
        attacker: the attacker's role; `main` and `all` become the attacks that it permits.
        sums: whether the server sees only sums of updates.

    Returns:
        Names of attacks in order, each once; of `("none",)` no name.

    Raises:
        InputError: an unknown attack, or one that is named twice.
    """
    if names == ("none",):
        return ()
    every = {n: registry.load("attack", n) for n in registry.names("attack")}
    known = {n: cls for n, cls in every.items() if refusal(cls, attacker, sums=sums) is None}
    main = [n for n, cls in known.items() if cls.main]
    # One active attack fits into a federation: of several, all means the main one.
    whole = [n for n, cls in known.items() if cls.main or not issubclass(cls, ActiveAttack)]
    quick = [n for n, cls in known.items() if is_quick(cls)]
    return expand_lists(names, {"main": main, "all": whole, QUICK: quick})
