"""Whether the parts of an experiment suit one another: asked once, before anything is loaded."""

from __future__ import annotations

from fedmia import registry
from fedmia.errors import InputError
from fedmia.runtime.device import gpus_without
from fedmia.settings.experiment import Experiment
from fedmia.settings.roles import refusal


def check(experiment: Experiment) -> None:
    """Refuse combinations that cannot run or whose result would be void.

    Raises:
        InputError: one line that names the value and the reason.
    """
    for one in (_attacker, _attacks, _defended, _defense, _pretrain, _pixels, _device):
        one(experiment)


def _attacker(experiment: Experiment) -> None:
    if not experiment.malicious_clients or experiment.honest_clients:
        return
    clients = experiment.federation.clients
    raise InputError(
        f"--clients {clients} --attacker {experiment.attacker} --malicious "
        f"{experiment.malicious} leaves no honest client, so no images to attack; "
        f"{_at_most(clients)}"
    )


def _at_most(clients: int) -> str:
    return f"--malicious is at most {clients - 1}" if clients > 1 else "--clients must be >= 2"


def _attacks(experiment: Experiment) -> None:
    for name in experiment.attacks:
        built = registry.build("attack", name, experiment.attack[name])
        reason = refusal(type(built), experiment.attacker, built.asks_shadows())
        if reason:
            raise InputError(f"attack '{name}' {reason}; got --attacker {experiment.attacker}")
        _updates(experiment, name)


def _updates(experiment: Experiment, name: str) -> None:
    """What an attack on clients' updates has to compare."""
    cls, federation = registry.load("attack", name), experiment.federation
    if cls.needs.vantage != "server":
        return
    clients, share = federation.clients, federation.participation
    if int(share * clients + 0.5) < cls.least_clients:
        raise InputError(
            f"attack '{name}' compares the updates of at least {cls.least_clients} clients a "
            f"round, got --clients {clients} --federation.participation {share:g}"
        )
    if federation.keep_updates == 0:
        raise InputError(f"attack '{name}' reads updates: --federation.keep_updates 0 keeps none")


def _defended(experiment: Experiment) -> None:
    named = experiment.defended_clients
    if named is None:
        return
    listed = ",".join(map(str, named))
    if experiment.defense is None:
        raise InputError(f"--defended-clients {listed} needs --defense NAME")
    if not named:
        raise InputError("--defended-clients names no client (none: all honest ones)")
    last = experiment.federation.clients - 1
    for client in named:
        if client > last:
            raise InputError(f"--defended-clients: no client {client}; the clients are 0-{last}")
        if client in experiment.malicious_clients:
            raise InputError(
                f"--defended-clients: client {client} is malicious; the honest ones are "
                f"0-{len(experiment.honest_clients) - 1}"
            )
        if named.count(client) > 1:
            raise InputError(f"--defended-clients names client {client} twice")


def _defense(experiment: Experiment) -> None:
    if experiment.defense is None:
        return
    norm = str(experiment.model.options.get("norm", "group"))
    if experiment.ssl.options.get("head_norm") == "batch":
        norm = "batch"
    if norm == "batch" and experiment.federation.batch_norm == "local":
        norm = "local"  # the running statistics never leave the client
    coupled = registry.load("ssl", experiment.ssl.name).coupled
    where = f"--defense {experiment.defense.name}"
    if coupled:
        where += f" with --ssl {experiment.ssl.name}"
    try:
        experiment.defense.build("defense").check(norm=norm, coupled=coupled)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _pretrain(experiment: Experiment) -> None:
    mode, rounds = experiment.pretrain.mode, experiment.pretrain.rounds
    if mode == "none" and rounds:
        raise InputError(f"--pretrain none leaves nothing for --pretrain-rounds {rounds} to do")
    if mode != "none" and not rounds:
        raise InputError(f"--pretrain {mode} needs --pretrain-rounds >= 1, got 0")
    if mode == "pooled" and experiment.defense is not None:
        raise InputError(
            f"--pretrain pooled with --defense {experiment.defense.name}: the server would train "
            "on the private images themselves, which no client's defence covers"
        )
    if mode == "public" and not experiment.split.public:
        raise InputError("--pretrain public needs --split.public > 0, got 0")


def _pixels(experiment: Experiment) -> None:
    mean, std = experiment.data.mean, experiment.data.std
    for flag, values in (("--mean", mean), ("--std", std)):
        if values is not None and len(values) not in (1, 3):
            raise InputError(f"{flag} takes 1 or 3 values, one a channel, got {len(values)}")
    if mean is not None and std is not None and len(mean) != len(std):
        raise InputError(f"--mean has {len(mean)} values and --std {len(std)}; as many are needed")


def _device(experiment: Experiment) -> None:
    device, found = experiment.device, gpus_without(experiment.device)
    if found == 0:
        raise InputError(f"--device {device}: torch finds no CUDA GPU on this machine")
    if found is not None:
        raise InputError(f"--device {device}: the GPUs here are cuda:0 to cuda:{found - 1}")
