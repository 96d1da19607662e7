"""Local training of several clients in one pass: where one client has a tensor, they have one with
a row for each.

`torch.func.vmap` maps a method's own losses over the rows. What follows a step (SGD, the momentum
update, the ring of a bank) treats each number by itself, and so all rows at once.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from fedmia.data.images import ByteArray
from fedmia.ssl.base import SSLMethod, State
from fedmia.ssl.train import Batch, BatchViews, Job, group_views, running_statistics


def client_tensors(module: nn.Module) -> State:
    """Parameters and buffers that differ between clients: the floating ones of a module's state."""
    state = module.state_dict(keep_vars=True)
    return {name: tensor for name, tensor in state.items() if tensor.is_floating_point()}


def stack_method(method: SSLMethod, count: int, device: torch.device | str) -> SSLMethod:
    """A copy of a method that holds the tensors of several clients.

    Args:
        method: of one client; stays as it is.
        count: number of clients.
        device: where they train.

    Returns:
        The copy. Each of its `client_tensors` has a dimension more, the first, of `count`.
    """
    stacked = copy.deepcopy(method).to(device)
    for tensor in {id(t): t for t in client_tensors(stacked).values()}.values():
        tensor.data = tensor.data.expand(count, *tensor.shape).contiguous()
    return stacked


def stack(states: Sequence[Mapping[str, Tensor]], device: torch.device | str) -> State:
    """The states of several clients as one.

    Args:
        states: equal in names and shapes, and in all numbers that are not floating.
        device: of the result.

    Returns:
        Floating tensors with a row for each state; others as the first state has them.
    """
    rows = {name: [state[name].to(device) for state in states] for name in states[0]}
    return {n: torch.stack(r) if r[0].is_floating_point() else r[0] for n, r in rows.items()}


def unstack(state: State, count: int) -> list[State]:
    """The states of several clients, from `stack`'s; floating tensors are views of its rows.

    Args:
        state: of all.
        count: number of clients.

    Returns:
        One state a client.
    """
    rows = {n: t.unbind() if t.is_floating_point() else [t] * count for n, t in state.items()}
    return [{name: values[i] for name, values in rows.items()} for i in range(count)]


def finite_rows(state: State, count: int) -> list[bool]:
    """Of each client whether all its tensors are finite.

    Args:
        state: of all, as of `stack`.
        count: number of clients.

    Returns:
        One value a client.
    """
    floating = [t.flatten(1) for t in state.values() if t.is_floating_point()]
    if not floating:
        return [True] * count
    lengths = torch.stack([torch.linalg.vector_norm(t, dim=1) for t in floating]).isfinite()
    finite: list[bool] = lengths.all(dim=0).tolist()
    return [
        good or all(bool(t[i].isfinite().all()) for t in floating) for i, good in enumerate(finite)
    ]


class StackedJob(Job):
    """Clients of as many images each, in one pass; `images` and `rng` are those of the first.

    Each sees the views that it would see alone, in the same order; sums alone are rounded
    otherwise. `method`, of `stack_method`, and the optimizer hold all clients.

    Args:
        members: images and stream of each client.
        rest: fields of `Job`, by name.

    Attributes:
        client_losses: filled in by `run`: mean loss of each.
    """

    def __init__(
        self, members: Sequence[tuple[ByteArray, np.random.Generator]], **rest: Any
    ) -> None:
        super().__init__(**rest)
        self.members = members
        self.client_losses = list[float]()

    def batches(self) -> Iterator[Batch]:
        """Pairs of views of every batch, those of one client after those of another."""
        pixels = torch.from_numpy(np.concatenate([images for images, _ in self.members]))
        return group_views(pixels.to(self.device), self.augment, self._drawn_together())

    def _drawn_together(self) -> Iterator[BatchViews]:
        """What each draws for itself, its images after those of the clients before it."""
        each = len(self.images)
        for parts in zip(*(self._drawn(each, rng) for _, rng in self.members), strict=True):
            rows = np.concatenate([rows + each * i for i, (rows, _) in enumerate(parts)])
            yield rows, np.concatenate([uniforms for _, uniforms in parts], axis=1)

    def forward(self, view1: Tensor, view2: Tensor) -> Tensor:
        """Losses of a step, float32 (clients, B), of the views of `batches`."""
        views = tuple(view.unflatten(0, (len(self.members), -1)) for view in (view1, view2))
        half = self.train.precision == "bfloat16"
        autocast = torch.autocast(self.device.type, torch.bfloat16, enabled=half)
        step = vmap(partial(functional_call, self.method))
        with autocast, running_statistics(self.method, views[0].shape[1]):
            losses, self.method.latest = step(client_tensors(self.method), views)
        total: Tensor = losses.float()
        return total

    def mean_loss(self, sums: Sequence[Tensor], count: int) -> float:
        """Over all clients; notes each one's."""
        rows = torch.stack(list(sums), dim=1).tolist() if sums else [[0.0]] * len(self.members)
        self.client_losses = [sum(steps) / max(count, 1) for steps in rows]
        return sum(self.client_losses) / len(rows)
