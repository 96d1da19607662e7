"""Honest clients of one round at work side by side, in one pass of stacked weights.

What leaves a client and what it keeps is what it would be alone but for rounding: each draws from
its own streams. Clients with defences, roles that attack and strategies with a client's half are
left to work alone.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import Any

from torch.optim import Optimizer

from clients.client_round import ClientRound
from clients.client_setup import ClientSetup
from clients.local_state import begin_training, end_training
from fedmia.ssl import TwoView
from fedmia.ssl.base import SSLMethod, State
from fedmia.ssl.stacked import StackedJob, finite_rows, stack, stack_method, unstack
from fedmia.ssl.train import make_optimizer
from fedmia.storage.arena import Arena, gather, outline
from fedmia.storage.snapshot import ClientState, Update

# What `auto` takes: more are hardly faster. On a CPU a step of more than TINY numbers of pixels
# costs more in arithmetic than in calls, which a pass of many saves.
MANY, TINY = 64, 1024


def count_together(client_setup: ClientSetup) -> tuple[int, str]:
    """How many clients train in one pass.

    Returns:
        The number, and why it is 1 where the options would have more.
    """
    run = client_setup.experiment
    sizes = Counter(len(client_setup.parts["members"][c]) for c in run.honest_clients)
    if (number := run.machine.clients_at_once) == "auto":
        pixels = client_setup.channels * client_setup.size**2
        tiny = pixels * min(run.train.batch_size, max(sizes)) <= TINY and sizes.total() >= MANY
        number = MANY if tiny or client_setup.device != "cpu" else 1
    if number == 1:
        return 1, ""
    whole = run.train.optimizer != "sgd" or run.train.clip_grad is not None
    alike, strategy = sum(n for n in sizes.values() if n > 1), run.strategy.plugin("strategy")
    method = client_setup.method(-1, None)
    obstacles = {
        "federation.client_timeout is of one client": run.federation.client_timeout is not None,
        f"strategy {run.strategy.name} acts on each client": strategy.has_halves,
        "most clients have numbers of images of their own": 2 * alike < sizes.total(),
        "adamw, lars and clip_grad treat a weight tensor as one": whole,
        f"{run.ssl.name} has steps that are of one client": not method.stackable,
    }
    reason = next((name for name, stands in obstacles.items() if stands), "")
    return 1 if reason else int(number), reason


def train_group(
    rounds: Sequence[ClientRound], plain: TwoView, arena: Arena
) -> list[tuple[Update, ClientState | None]]:
    """Clients of as many images each, at work as if they were one client with stacked tensors.

    Args:
        rounds: of the clients, one group of `form_groups`.
        plain: a method of one client, on the CPU; stays as it is.
        arena: gets what they keep.

    Returns:
        What each client sends, and what it keeps.
    """
    first, count, setup = rounds[0], len(rounds), rounds[0].client_setup
    device, cache = setup.device, setup.method_cache
    method, optimizer = cache.take(count) or _stack(plain, count, setup)
    method.load_shared({n: t.expand(count, *t.shape) for n, t in first.received.items()})
    members = [(setup.images[one.indices], one.stream("train")) for one in rounds]
    job = setup.job(
        method, members[0][0], first.task.round, first.stream("train"), first.task.craft,
        optimizer, first.halt, partial(StackedJob, members=members),
    )  # fmt: skip
    assert isinstance(job, StackedJob)
    before = [one.local_state.tensors for one in rounds]
    begin_training(job, gather(before, device) if before[0] else {})
    if not before[0]:  # each from a copy of its own: other threads draw other clients' banks
        method.load_local(stack(_first_banks(rounds, copy.deepcopy(plain)), device))
    seconds = job.run()["seconds"] / count
    trained, staying = end_training(job, setup)
    finite, slots = finite_rows(staying, count), arena.write(staying, count)
    cache.give(method, optimizer, count)
    results = list[tuple[Update, ClientState | None]]()
    for i, sent in enumerate(unstack(trained, count)):
        rounds[i].note_trained(sent, slots[i] if finite[i] else before[i])
        about = {"loss": job.client_losses[i], "seconds": seconds}
        results.append(rounds[i].final(sent, about))
    return results


def _stack(plain: TwoView, count: int, setup: ClientSetup) -> tuple[SSLMethod, Optimizer]:
    """A method of so many clients, and its optimizer."""
    method = stack_method(plain, count, setup.device)
    return method, make_optimizer(method, setup.experiment.train)


def _first_banks(rounds: Sequence[ClientRound], plain: TwoView) -> list[State]:
    """What each client's method draws; weights, and so the momentum encoder, are what it receives.

    Args:
        plain: a method of one client, on the CPU; changes.
    """
    banks = list[State]()
    for one in rounds:
        one.client_setup.renew(plain, one.task.client, len(one.indices))
        banks.append(TwoView.local_state(plain))
    return banks


def form_groups(rounds: Sequence[ClientRound]) -> list[list[int]]:
    """Which clients can train in one pass: honest ones without defence, with as many images, whose
    states have the same shapes and the same numbers where these are not floating.

    Args:
        rounds: of one round of a branch.

    Returns:
        The places of each group of two or more; who is in none works alone.
    """
    groups: dict[tuple[Any, ...], list[int]] = {}
    for place, one in enumerate(rounds):
        if one.client_setup.roles[one.task.client] != "honest" or one.defense:
            continue
        key = len(one.indices), outline(one.local_state.tensors)
        groups.setdefault(key, []).append(place)
    return [group for group in groups.values() if len(group) > 1]
