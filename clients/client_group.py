"""Honest clients of one round at work side by side, in one pass of stacked weights.

What leaves a client and what it keeps is what it would be alone but for rounding: each draws from
its own streams. Clients with defences, roles that attack and strategies with a client's half are
left to work alone.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from torch.optim import Optimizer

from clients.client_context import ClientContext
from clients.client_round import ClientRound
from fedmia.ssl import TwoView
from fedmia.ssl.base import SSLMethod, State
from fedmia.ssl.stacked import StackedJob, stack, stack_method, unstack
from fedmia.ssl.train import Job, make_optimizer
from fedmia.storage.snapshot import ClientState, StrategyContext, Update

# What `auto` takes: more are hardly faster. On a CPU a step of more than TINY numbers of pixels
# costs more in arithmetic than in calls, which a pass of many saves.
MANY, TINY = 64, 1024


def count_together(client_context: ClientContext) -> tuple[int, str]:
    """How many clients train in one pass.

    Returns:
        The number, and why it is 1 where the options would have more.
    """
    run = client_context.experiment
    sizes = Counter(len(client_context.parts["members"][c]) for c in run.honest_clients)
    if (number := run.clients_at_once) == "auto":
        pixels = client_context.channels * client_context.size**2
        tiny = pixels * min(run.train.batch_size, max(sizes)) <= TINY and sizes.total() >= MANY
        number = MANY if tiny or client_context.device != "cpu" else 1
    if number == 1:
        return 1, ""
    whole = run.train.optimizer != "sgd" or run.train.clip_grad is not None
    alike, strategy = sum(n for n in sizes.values() if n > 1), run.strategy.plugin("strategy")
    method = client_context.method(-1, None)
    obstacles = {
        "federation.client_timeout is of one client": run.federation.client_timeout is not None,
        f"strategy {run.strategy.name} acts on each client": strategy.has_halves,
        "most clients have numbers of images of their own": 2 * alike < sizes.total(),
        "adamw, lars and clip_grad treat a weight tensor as one": whole,
        f"{run.ssl.name} has steps that are of one client": not method.stackable,
    }
    reason = next((name for name, stands in obstacles.items() if stands), "")
    return 1 if reason else int(number), reason


class ClientGroup(ClientRound):
    """Clients of as many images each, at work as if they were one client with stacked tensors.

    Args:
        rounds: of the clients, one group of `form_groups`.
        plain: a method of one client, on the CPU; stays as it is.
    """

    def __init__(self, rounds: Sequence[ClientRound], plain: TwoView) -> None:
        self.__dict__.update(vars(rounds[0]))
        # Of its own: other threads draw other clients' banks.
        self._rounds, self._plain, self.memory = rounds, copy.deepcopy(plain), {}
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
        for i, own in enumerate(unstack(staying, count)):
            # Rows of their own: one client's state would keep all others' in memory.
            self._rounds[i]._trained = local, sent[i], {n: t.clone() for n, t in own.items()}
            about = {"loss": losses[i], "seconds": metrics["seconds"] / count}
            updates.append(self._rounds[i].finish_round(sent[i], about))
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
            banks, on_cpu = list[State](), replace(self.client_context, device="cpu")
            for one in self._rounds:  # their momentum encoder is what they receive
                on_cpu.renew(self._plain, one.task.client, len(one.indices))
                banks.append(TwoView.local_state(self._plain))
            job.method.load_local(stack(banks, self.client_context.device))


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
