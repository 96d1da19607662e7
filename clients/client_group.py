"""Honest clients of one round at work side by side, in one pass of stacked weights.

What leaves a client and what it keeps is what it would be alone but for rounding: each draws from
its own streams. Clients with defences, roles that attack and strategies with a client's half are
left to work alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import torch
from torch.optim import Optimizer

from clients.client_context import ClientContext
from clients.client_round import ClientRound
from fedmia.ssl._twoview import TwoView
from fedmia.ssl.base import SSLMethod, State
from fedmia.ssl.stacked import StackedJob, stack, stack_method, stacking_obstacles, unstack
from fedmia.ssl.train import Job, make_optimizer
from fedmia.storage.snapshot import ClientState, StrategyContext, Update

# What `auto` takes on a GPU: as many as have so many bytes of weights together, of which training
# needs some eight times as many; more than MOST are no faster.
WEIGHTS, MOST = 1 << 30, 256


def count_together(client_context: ClientContext) -> tuple[int, str]:
    """How many clients train in one pass.

    Returns:
        The number, and why it is 1 where the options would have more.
    """
    number = client_context.experiment.clients_at_once
    if number == 1 or (number == "auto" and client_context.device == "cpu"):
        return 1, ""
    run, method = client_context.experiment, client_context.method(-1, None)
    sizes = Counter(len(client_context.parts["members"][c]) for c in run.honest_clients)
    alike, strategy = sum(n for n in sizes.values() if n > 1), run.strategy.build("strategy")
    obstacles = {
        "federation.client_timeout is of one client": run.federation.client_timeout is not None,
        f"strategy {run.strategy.name} acts on each client": strategy.has_halves,
        "most clients have numbers of images of their own": 2 * alike < sizes.total(),
    } | stacking_obstacles(method, run.train)
    if reason := next((name for name, stands in obstacles.items() if stands), ""):
        return 1, reason
    size = sum(w.numel() * w.element_size() for w in method.trainable())
    return (max(1, min(MOST, WEIGHTS // size)) if number == "auto" else int(number)), ""


class ClientGroup(ClientRound):
    """Clients of as many images each, at work as if they were one client with stacked tensors.

    Args:
        rounds: of the clients, one group of `form_groups`.
        plain: a method of one client, on the CPU.
    """

    def __init__(self, rounds: Sequence[ClientRound], plain: TwoView) -> None:
        self.__dict__.update(vars(rounds[0]))
        self._rounds, self._plain, self.memory = rounds, plain, {}
        self.received = {n: t.expand(len(rounds), *t.shape) for n, t in self.received.items()}
        before, device = [one._kept_tensors for one in rounds], self.client_context.device
        self.kept = ClientState(stack(before, device)) if before[0] else None

    def work(self) -> list[Update]:
        """The updates of all clients; what they keep goes into each one's own store."""
        _, metrics, _ = self.train()
        assert self._trained is not None and isinstance(self._job_done, StackedJob)
        local, trained, staying = self._trained
        count, losses, updates = len(self._rounds), self._job_done.client_losses, list[Update]()
        sent = unstack({n: t.cpu() for n, t in trained.items()}, count)
        seconds = metrics["seconds"] / count
        for i, own in enumerate(unstack(staying, count)):
            # Rows of their own: one client's state would keep all others' in memory.
            own = {name: tensor.clone() for name, tensor in own.items()}
            self._rounds[i]._trained = local, sent[i], own
            metrics = {"loss": losses[i], "seconds": seconds}
            updates.append(self._rounds[i].finish_round(sent[i], metrics))
        return updates

    def _take_cached(self) -> tuple[SSLMethod, Optimizer]:
        method = stack_method(self._plain, len(self._rounds), self.client_context.device)
        return method, make_optimizer(method, self._run.train)

    def _make_job(self, *order: Any, **options: Any) -> tuple[Job, StrategyContext]:
        job, local = super()._make_job(*order, **options)
        images = self.client_context.images
        members = [(images[one.indices], one.stream("train")) for one in self._rounds]
        own = {field.name: getattr(job, field.name) for field in fields(Job)}
        return StackedJob(**own, members=members), local

    def _restore_state(self, job: Job, local: StrategyContext) -> None:
        super()._restore_state(job, local)
        if self.kept is None:
            job.method.load_local(self._first_banks())

    def _first_banks(self) -> State:
        """The banks that clients begin with; their momentum encoder is what they receive."""
        banks, on_cpu = list[State](), replace(self.client_context, device="cpu")
        for one in self._rounds:
            on_cpu.renew(self._plain, one.task.client, len(one.indices))
            banks.append(TwoView.local_state(self._plain))
        return stack(banks, self.client_context.device)


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
        if one.client_context.roles[one.task.client] != "honest" or one.defense:
            continue
        key = tuple(
            (n, t.shape, t.dtype, () if t.is_floating_point() else tuple(t.flatten().tolist()))
            for n, t in sorted(one._kept_tensors.items())
        )
        groups.setdefault((len(one.indices), key), []).append(place)
    return [group for group in groups.values() if len(group) > 1]


def work_together(rounds: Sequence[ClientRound], plain: TwoView) -> list[Update]:
    """The updates of a group, in halves where the memory of a GPU is too short for all.

    Args:
        rounds: one group of `form_groups`.
        plain: a method of one client, on the CPU.

    Returns:
        One update a client, in their order.
    """
    try:
        return ClientGroup(rounds, plain).work()
    except torch.OutOfMemoryError:
        if len(rounds) == 1:
            raise
    torch.cuda.empty_cache()
    half = len(rounds) // 2
    return work_together(rounds[:half], plain) + work_together(rounds[half:], plain)
