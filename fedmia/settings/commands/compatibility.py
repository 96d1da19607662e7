"""Checks that the options of an experiment suit one another, before anything is loaded."""

from __future__ import annotations

import math
import re
from pathlib import Path

from fedmia.defenses.base import TrainingConditions
from fedmia.defenses.stack import check_exclusive
from fedmia.partitions.base import Partition
from fedmia.runtime.device import count_gpus, gpus_if_missing
from fedmia.settings import registry
from fedmia.settings.commands.experiment import Experiment
from fedmia.settings.commands.norms import norm_of
from fedmia.settings.commands.roles import refusal
from fedmia.settings.errors import InputError, opt, prefix_errors, wrong_value
from fedmia.ssl.base import SSL


def check_experiment(experiment: Experiment) -> None:
    """Refuse combinations that cannot run or whose result would be void.

    Raises:
        InputError: one line that names the value and the reason.
    """
    for check in (
        _check_attacker,
        _check_attacks,
        _check_rounds,
        _check_cohort,
        _check_aggregation,
        _check_machine,
        _check_partition,
        _check_groups,
        _check_defended,
        _check_defense,
        _check_pretrain,
        _check_training,
        _check_public,
        _check_pixels,
    ):
        check(experiment)
    check_gpu(experiment.machine.device)


def _check_attacker(experiment: Experiment) -> None:
    if not experiment.malicious_clients or experiment.honest_clients:
        return
    clients = experiment.federation.clients
    raise InputError(
        f"{opt('malicious', experiment.malicious)} of {opt('federation.clients', clients)} with "
        f"{opt('attacker', experiment.attacker)} leaves no honest client, so no images to attack; "
        f"malicious is at most {clients - 1}, or more clients are needed"
    )


def _check_attacks(experiment: Experiment) -> None:
    known, needs = experiment.split.known, dict[str, int]()
    for name in experiment.attacks:
        built = experiment.attack_choices[name].plugin("attack")
        sums = experiment.federation.secure_aggregation
        reason = refusal(type(built), experiment.attacker, built.asks_shadows(), sums)
        if reason:
            got = opt("attacker", experiment.attacker)
            raise InputError(f"attack '{name}' {reason}; got {got}")
        _check_updates(experiment, name)
        needs[name] = built.known_needed
    if needs and min(needs.values()) > known:  # of several attacks the others run
        name = min(needs, key=needs.__getitem__)
        raise wrong_value(
            opt("split.known"), known, f">= {needs[name]} for attack '{name}', which learns from "
            "them and chooses a threshold on a part left out",
        )  # fmt: skip


def _check_updates(experiment: Experiment, name: str) -> None:
    """Refuse an attack on clients' updates where too few updates are kept or sent."""
    cls, federation = registry.load("attack", name), experiment.federation
    if cls.needs.row.keeps != "updates":
        return
    if _cohort_size(experiment) < cls.least_clients:
        share = opt("federation.participation", f"{federation.participation:g}")
        raise InputError(
            f"attack '{name}' compares the updates of at least {cls.least_clients} clients a "
            f"round, got {opt('federation.clients', federation.clients)} {share}"
        )
    if federation.keep_updates == 0:
        none = opt("federation.keep_updates", 0)
        raise InputError(f"attack '{name}' reads updates: {none} keeps none")


def _check_rounds(experiment: Experiment) -> None:
    """Refuse an active attack without a clean round before its first round."""
    if experiment.active_attack is None:
        return
    rounds, attacked = experiment.federation.rounds, experiment.attack_rounds
    mention = opt("federation.rounds", rounds)
    if rounds == 1:
        raise InputError(f"{mention} leaves no clean round before an attacked one; at least 2")
    if attacked >= rounds:
        raise InputError(
            f"{opt('federation.attack_rounds', attacked)} of {mention} leaves no clean round; "
            f"at most {rounds - 1}"
        )


def _check_training(experiment: Experiment) -> None:
    """Refuse batches of which the method learns nothing, a warm-up longer than the training, and an
    optimizer that the strategy cannot use."""
    train, federation, pretrain = experiment.train, experiment.federation, experiment.pretrain
    experiment.ssl.plugin("ssl").check_batch("train.batch_size", train.batch_size)
    lasting = {
        "the epochs of the run": federation.rounds * train.local_epochs,
        opt("pretrain.epochs"): pretrain.epochs or math.inf,
    }
    for what, epochs in lasting.items():
        if train.warmup_epochs >= epochs:
            allowed = f"< {epochs}, {what}"
            raise wrong_value(opt("train.warmup_epochs"), train.warmup_epochs, allowed)
    if train.optimizer == "sgd":
        return
    chosen = opt("train.optimizer", train.optimizer)
    if experiment.strategy.plugin("strategy").gradients:
        raise InputError(
            f"{opt('strategy', experiment.strategy.name)} reads gradients off the clients' "
            f"steps, which those of {chosen} are not; {opt('train.optimizer', 'sgd')}"
        )


def _check_cohort(experiment: Experiment) -> None:
    """Refuse a round that needs more clients than its cohort has."""
    federation = experiment.federation
    cohort_size = _cohort_size(experiment)
    if federation.min_clients > cohort_size:
        allowed = f"<= {cohort_size}, the clients of a round"
        raise wrong_value(opt("federation.min_clients"), federation.min_clients, allowed)


def _cohort_size(experiment: Experiment) -> int:
    """Number of clients in a round's cohort."""
    federation = experiment.federation
    return max(1, int(federation.participation * federation.clients + 0.5))


def _check_aggregation(experiment: Experiment) -> None:
    """Refuse a strategy that the cohort, the norm or secure aggregation does not allow."""
    built = experiment.strategy.plugin("strategy")
    federation, mention = experiment.federation, opt("strategy", experiment.strategy.name)
    if built.least > (cohort_size := _cohort_size(experiment)):
        raise InputError(
            f"{mention} with these options needs >= {built.least} clients a round, "
            f"got {cohort_size}"
        )
    with prefix_errors(mention):
        built.check(norm_of(experiment))
    if built.private and experiment.pretrain.mode == "pooled":
        raise InputError(
            f"{opt('pretrain.mode', 'pooled')} with {mention}: the server would train on the "
            "private images themselves, which its noise does not cover"
        )
    if not federation.secure_aggregation:
        return
    sums = opt("federation.secure_aggregation", "true")
    if built.singles:
        raise InputError(f"{mention} looks at single updates, and {sums} shows their sum alone")
    if federation.keep_updates:
        raise InputError(
            f"{opt('federation.keep_updates', federation.keep_updates)} keeps single updates, and "
            f"{sums} shows their sum alone"
        )


def _check_machine(experiment: Experiment) -> None:
    """Refuse shares of a GPU that Ray does not know, and a device that its clients do not get."""
    address = experiment.machine.ray_address
    for name in ("cpus_per_client", "gpus_per_client"):
        share = getattr(experiment.machine, name) or 0
        if share > 1 and share != int(share):
            raise wrong_value(opt(f"machine.{name}"), share, "a share below 1 or a whole number")
    share = experiment.machine.gpus_per_client
    if share and experiment.machine.device != "cpu" and address is None and not count_gpus():
        raise InputError(
            f"{opt('machine.gpus_per_client', f'{share:g}')}: torch finds no CUDA GPU on this "
            f"machine; {opt('machine.ray_address')} joins a cluster that has some"
        )
    on_gpu = experiment.machine.device.startswith("cuda")
    if on_gpu and experiment.machine.backend == "ray" and not experiment.machine.gpus_per_client:
        raise InputError(
            f"{opt('machine.device', experiment.machine.device)}: clients on Ray get no GPU "
            f"without {opt('machine.gpus_per_client')}, such as "
            f"{opt('machine.gpus_per_client', 0.25)}"
        )
    if address is not None and not re.fullmatch(r"auto|[^:/]+:[0-9]{1,5}", address):
        raise wrong_value(opt("machine.ray_address"), address, "auto or HOST:PORT")


def _check_partition(experiment: Experiment) -> None:
    built: Partition = experiment.partition.plugin("partition")
    built.check(experiment.data.source(), experiment.data.plugin)


def _check_groups(experiment: Experiment) -> None:
    if (column := experiment.groups) is None:
        return
    if Path(column).suffix in (".csv", ".npy"):
        raise InputError(
            f"{opt('groups', column)}: a run takes a column of its data source; "
            f"{opt('data.name', 'list:FILE')} has one for images of any folder"
        )
    if not experiment.data.source().columns:
        raise InputError(
            f"{opt('groups', column)}: data source '{experiment.data.plugin}' has no columns; "
            f"{opt('data.name', 'list:FILE')} has one for images of any folder"
        )


def _check_defended(experiment: Experiment) -> None:
    clients = experiment.defended_clients
    for layer in experiment.defense:
        if layer.clients is not None:
            _check_honest(experiment, layer.clients, f"{opt('defense', layer.name)}, clients")
    if clients is not None:
        _check_honest(experiment, clients, opt("defended_clients"))


def _check_honest(experiment: Experiment, clients: tuple[int, ...], where: str) -> None:
    """Refuse clients, given by the option `where`, that do not exist or are malicious."""
    if not clients:
        raise InputError(f"{where} names no client (none: all honest ones)")
    last = experiment.federation.clients - 1
    for client in clients:
        if client > last:
            raise InputError(f"{where}: no client {client}; the clients are 0-{last}")
        if client in experiment.malicious_clients:
            raise InputError(
                f"{where}: client {client} is malicious; the honest ones are "
                f"0-{len(experiment.honest_clients) - 1}"
            )
        if clients.count(client) > 1:
            raise InputError(f"{where} names client {client} twice")


def _check_defense(experiment: Experiment) -> None:
    ssl: SSL = experiment.ssl.plugin("ssl")
    built = [(layer, layer.plugin("defense")) for layer in experiment.defense]
    before = experiment.pretrain.mode == "public"
    setting = TrainingConditions(norm_of(experiment), ssl, experiment.split.public, before)
    for layer, defense in built:
        where = opt("defense", layer.name)
        if ssl.coupled:
            where += f" with {opt('ssl', experiment.ssl.name)}"
        with prefix_errors(where):
            defense.check(setting)
    for client in experiment.defended:
        own = [(n.name, d) for n, d in built if client in experiment.layer_client_ids(n)]
        names = [name for name, _ in own]
        for name in names:
            if names.count(name) > 1:
                raise InputError(f"{opt('defense', name)} is given twice to client {client}")
        with prefix_errors(f"{opt('defense', ','.join(names))}, client {client}"):
            check_exclusive(own)


def _check_pretrain(experiment: Experiment) -> None:
    mode, epochs = experiment.pretrain.mode, experiment.pretrain.epochs
    mention = opt("pretrain.mode", mode)
    if mode != "none" and not epochs:
        raise wrong_value(opt("pretrain.epochs"), 0, f">= 1 with {mention}")
    if mode == "pooled" and experiment.defense:
        defended = opt("defense", experiment.defense[0].name)
        raise InputError(
            f"{mention} with {defended}: the server would train "
            "on the private images themselves, which no client's defence covers"
        )
    if mode == "public" and not experiment.split.public:
        raise wrong_value(opt("split.public"), 0, f"> 0 with {mention}")


def _check_public(experiment: Experiment) -> None:
    """Refuse a method that trains against public images where there are none."""
    if experiment.ssl.plugin("ssl").public and not experiment.split.public:
        why = f"> 0 with {opt('ssl', experiment.ssl.name)}, which trains against public images here"
        raise wrong_value(opt("split.public"), 0, why)


def _check_pixels(experiment: Experiment) -> None:
    for name in ("mean", "std"):
        values = getattr(experiment.data, name)
        if values is not None and len(values) not in (1, 3):
            raise wrong_value(opt(f"data.{name}"), values, "1 or 3 values, one a channel")


def check_gpu(device: str) -> None:
    """Refuse a GPU that is not there.

    Raises:
        InputError: naming those that are.
    """
    gpus, mention = gpus_if_missing(device), opt("machine.device", device)
    if gpus == 0:
        raise InputError(f"{mention}: torch finds no CUDA GPU on this machine")
    if gpus is not None:
        raise InputError(f"{mention}: the GPUs here are cuda:0 to cuda:{gpus - 1}")
