"""Models on which images differ in difficulty, far more than members differ from others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from fedmia.attacks.base import Attack, Known, Scores
from fedmia.data.images import digests
from fedmia.nets.base import Backbone
from fedmia.seeding import rng, torch_rng
from fedmia.threat import BlackBox, ClientView, Shadow
from tests.attacks.planted import fitted, method_of, view_of

WIDTH = 24


class Levels(Backbone):
    """What a view has in common with the other views of its image is as large as its level.

    Models differ in the levels alone.
    """

    layers = ("layer1",)
    width = WIDTH

    def __init__(self, stored: Tensor, level: Tensor) -> None:
        super().__init__()
        flat = stored.flatten(1).float() / 255
        draw = torch_rng(0, "levels")
        own = nn.functional.normalize(torch.randn(len(flat), WIDTH, generator=draw), dim=1)
        mix = torch.randn(WIDTH, flat.shape[1], generator=draw) / flat.shape[1] ** 0.5
        for name, tensor in (("stored", flat), ("own", own), ("mix", mix)):
            self.register_buffer(name, tensor, persistent=False)
        self.level = nn.Parameter(level)

    def stages(self, x: Tensor) -> dict[str, Tensor]:
        flat = x.flatten(1)
        index = torch.cdist(flat.detach(), self.stored).argmin(dim=1)
        out = self.level[index, None] * self.own[index]
        out = out + torch.sin(15 * flat) @ self.mix.T / 3
        return {"layer1": out[:, :, None, None]}


@dataclass
class World:
    """A pool of images, how easy each is under every model, and what membership adds.

    Attributes:
        members, others: indices of the images to score. known: two sets of indices.
        shadow: indices of images that the shadows train on, or not.
    """

    pool: Tensor
    easy: Tensor
    members: NDArray[np.int64]
    others: NDArray[np.int64]
    known: tuple[NDArray[np.int64], NDArray[np.int64]]
    shadow: NDArray[np.int64]
    gain: float = 0.25
    noise: float = 0.05

    def model(self, trained: Sequence[int], seed: int, gain: float | None = None) -> Any:
        level = self.easy.clone()
        level[list(trained)] += self.gain if gain is None else gain
        draw = torch_rng(seed, "noise")
        level += self.noise * torch.randn(len(level), generator=draw)
        return method_of(Levels(self.pool, level)).eval()

    def target(self) -> Any:
        return self.model([*self.members, *self.known[0]], seed=0)

    def view(self, method: Any, kind: type[BlackBox] = BlackBox, **more: Any) -> Any:
        return view_of(method, kind=kind, held=self.pool[np.concatenate(self.known)], **more)

    def shadows(self, count: int, online: bool = False) -> tuple[Shadow, ...]:
        """Each trained on half of the shadow images, and online on half of all the others."""
        results = []
        rest = np.concatenate([self.members, self.others, *self.known])
        for i in range(count):
            own = rng(i // 2, "own").permutation(self.shadow)
            half = own[: len(own) // 2] if i % 2 else own[len(own) // 2 :]
            if online:
                more = rng(i // 2, "more").permutation(rest)
                part = more[: len(more) // 2] if i % 2 else more[len(more) // 2 :]
                half = np.concatenate([half, part])
            apart = np.setdiff1d(np.concatenate([own, rest]) if online else own, half)
            view = self.view(self.model(half, seed=i + 1))
            results.append(Shadow(view, self.pool[half], self.pool[apart]))
        return tuple(results)

    def rounds(self, count: int = 6) -> ClientView:
        """A client's view of rounds in which the members' level grows from 0 to the full gain."""
        last = self.target()
        received = {}
        for r in range(count):
            trained = [*self.members, *self.known[0]]
            state = self.model(trained, seed=r + 20, gain=self.gain * r / (count - 1))
            received[3 * r] = state.shared_state()
        last.load_shared(received[3 * (count - 1)])
        return self.view(last, ClientView, received=received)

    def scores(self, attack: Attack, view: BlackBox) -> tuple[Scores, Scores]:
        """Of the members and of the others, scored in mixed order."""
        fitted(attack, view, Known(*(self.pool[k] for k in self.known)))
        both = np.concatenate([self.members, self.others])
        order = rng(0, "order").permutation(len(both))
        scores = np.empty(len(both))
        scores[order] = attack.score(view, self.pool[both[order]])
        return scores[: len(self.members)], scores[len(self.members) :]


def make_world(pool: Tensor, scored: int = 100, known: int = 30) -> World:
    """A world of distinct images: `scored` and `known` a side, the rest for the shadows."""
    assert len(set(digests(pool.numpy()))) == len(pool)
    order = rng(0, "world").permutation(len(pool))
    cuts = np.cumsum([scored, scored, known, known])
    members, others, first, second, rest = np.split(order, cuts)
    easy = 0.4 + 1.6 * torch.rand(len(pool), generator=torch_rng(0, "easy"))
    return World(pool, easy, members, others, (first, second), rest)


def tpr(members: Scores, others: Scores, fpr: float = 0.01) -> float:
    """Largest share of members above a threshold that at most `fpr` of the others exceed."""
    allowed = int(fpr * len(others))
    return float((members > np.sort(others)[::-1][allowed]).mean())
